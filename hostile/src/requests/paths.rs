//! Paths that two readers could read in two ways.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::client::Client;
use crate::verdict::{Verdict, blocked, succeeded};
use crate::world::World;

pub const ENCODED_PATHS: Case = Case {
    name: "requests/encoded-paths",
    class: "",
    must_not: "A Secret of another namespace is read by a path that is written in an unusual way.",
    needs: &[],
    run: encoded_paths,
};

const VALUE: &str = "aG9zdGlsZS1zZWNyZXQ=";

/// `OWN` and `VICTIM` stand for the namespaces.
const PATHS: &[&str] = &[
    "/api/v1/namespaces/VICTIM/secrets/s",
    "/api/v1/namespaces/VICTIM/secrets/s/",
    "/api/v1/namespaces/VICTIM/secrets//s",
    "/api/v1//namespaces/VICTIM/secrets/s",
    "//api/v1/namespaces/VICTIM/secrets/s",
    "/api//v1/namespaces/VICTIM/secrets/s",
    "/api/v1/namespaces/OWN/../VICTIM/secrets/s",
    "/api/v1/namespaces/OWN/./../VICTIM/secrets/s",
    "/api/v1/namespaces/OWN/%2e%2e/VICTIM/secrets/s",
    "/api/v1/namespaces/OWN/%2E%2E/VICTIM/secrets/s",
    "/api/v1/namespaces/OWN/.%2e/VICTIM/secrets/s",
    "/api/v1/namespaces/OWN%2F..%2FVICTIM/secrets/s",
    "/api/v1/namespaces/OWN%2f..%2fVICTIM/secrets/s",
    "/api/v1/namespaces/OWN/secrets/..%2F..%2FVICTIM%2Fsecrets%2Fs",
    "/api/v1/namespaces/OWN/secrets/..%2f..%2f..%2fVICTIM%2fsecrets%2fs",
    "/api/v1/namespaces/OWN/secrets/../../VICTIM/secrets/s",
    "/api/v1/namespaces/OWN/secrets/%2e%2e/%2e%2e/VICTIM/secrets/s",
    "/api/v1/namespaces/OWN%252F..%252FVICTIM/secrets/s",
    "/api/v1/namespaces/OWN;/../VICTIM/secrets/s",
    "/api/v1/namespaces/VICTIM;x=OWN/secrets/s",
    "/api/v1/namespaces/VICTIM/secrets/s;x",
    "/api/v1/namespaces/VICTIM%00/secrets/s",
    "/api/v1/namespaces/OWN%00VICTIM/secrets/s",
    "/api/v1/namespaces/VICTIM/secrets/s%00",
    "/api/v1/namespaces/VICTIM/secrets/s%20",
    "/api/v1/namespaces/VICTIM/secrets/%73",
    "/api/v1/namespaces/VICTIM/%73ecrets/s",
    "/api/v1/%6eamespaces/VICTIM/secrets/s",
    "/api/v1/namespaces/VICTIM/Secrets/s",
    "/API/V1/namespaces/VICTIM/secrets/s",
    "/api/v1/namespaces/OWN\\..\\VICTIM/secrets/s",
    "/api/v1/namespaces/OWN%5C..%5CVICTIM/secrets/s",
    "/api/v1/namespaces/OWN/secrets/s?namespace=VICTIM",
    "/api/v1/namespaces/OWN/secrets?fieldSelector=metadata.namespace%3DVICTIM",
    "/api/v1/secrets?fieldSelector=metadata.namespace%3DVICTIM",
    "/api/v1/secrets",
    "/api/v1/secrets/",
    "/api/v1/secrets/s",
    "/api/v1/watch/namespaces/VICTIM/secrets/s?timeoutSeconds=1",
    "/api/v1/watch/secrets?timeoutSeconds=1",
    "/api/v1/namespaces/VICTIM/secrets?watch=1&timeoutSeconds=1",
    "/api/v1/namespaces/VICTIM/secrets?watch=false&watch=true&timeoutSeconds=1",
    "/api/v1/namespaces//secrets/s",
    "/api/v1/namespaces/%2A/secrets/s",
    "/api/v1/namespaces/*/secrets",
    "/healthz/../api/v1/namespaces/VICTIM/secrets/s",
    "/version/%2e%2e/api/v1/secrets",
    "/healthz/..%2fapi%2fv1%2fsecrets",
    "/openid/v1/jwks/../../../api/v1/secrets",
    "/.well-known/openid-configuration/../../api/v1/secrets",
    "/api/v1/proxy/namespaces/VICTIM/secrets/s",
    "https://localhost/api/v1/namespaces/VICTIM/secrets/s",
    "http://x/version@/api/v1/namespaces/VICTIM/secrets/s",
    "/api/v1/namespaces/VICTIM/secrets/s/status",
    "/api/v1/namespaces/VICTIM/secrets/s/scale",
];

fn encoded_paths(world: &World) -> Result<Verdict> {
    let (victim, own) = (world.namespace(json!({}))?, world.namespace(json!({}))?);
    world.admin.must_post(
        &victim.path("secrets"),
        &json!({"metadata": {"name": "s"}, "data": {"k": VALUE}}),
    )?;
    let honest = world.admin.get(&victim.path("secrets/s"))?;
    ensure!(
        honest.text().contains(VALUE),
        "the administrator does not see the secret"
    );
    let user = world.user_of(&own, json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]))?;
    user.must_get(&own.path("secrets"))?;
    let (stranger, _) = world.stranger()?;

    let mut through = Vec::new();
    for (who, client) in [
        ("a user of another namespace", &user),
        ("a stranger", &stranger),
        ("nobody", &world.anonymous()),
    ] {
        for path in PATHS {
            let path = path.replace("VICTIM", &victim.name).replace("OWN", &own.name);
            if reads(client, &path) {
                through.push(format!("{who} reads it by {path}"));
            }
        }
    }
    match through.is_empty() {
        true => blocked(format!("{} paths by 3 identities", PATHS.len())),
        false => succeeded(through.join("; ")),
    }
}

/// Whether the value comes; a server may also close the connection on what it cannot read.
fn reads(client: &Client, path: &str) -> bool {
    client.get(path).is_ok_and(|answer| answer.text().contains(VALUE))
}
