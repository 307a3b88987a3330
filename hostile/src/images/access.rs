//! Images that not everybody may have.

use anyhow::{Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::image::{Image, Tar};
use crate::pods::{Settled, container_of, pod_spec};
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, World};

pub const PRIVATE_IMAGE: Case = Case {
    name: "images/private-image",
    class: "",
    must_not: "A pod without a pull secret runs a private image because another pod has brought it to the node.",
    needs: &[],
    run: private_image,
};

/// Of the registry itself, for credentials go to no mirror.
const IMAGE: &str = "127.0.0.1:5000/private:1";
/// `user:password` as HTTP has it.
const CREDENTIALS: &str = "Basic dXNlcjpwYXNzd29yZA==";

fn private_image(world: &World) -> Result<Verdict> {
    let owner = world.namespace(json!({}))?;
    let thief = world.namespace(json!({}))?;
    let mark = Tar::default().file("private", 0o644, b"private").finish();
    let image = Image::honest(IMAGE, vec![world.base.clone(), mark]);
    world.registry.publish(&image, Some(CREDENTIALS))?;
    let pull_secret = |namespace: &Namespace<'_>, name: &str, password: &str| {
        let entry = json!({"auths": {"127.0.0.1:5000": {"auth": STANDARD.encode(format!("user:{password}"))}}});
        let secret = json!({"metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": entry.to_string()}});
        world.admin.must_post(&namespace.path("secrets"), &secret)
    };
    pull_secret(&owner, "right", "password")?;
    pull_secret(&thief, "wrong", "guessed")?;
    ensure!(
        matches!(started(&owner, &image.name, "Always", json!([]))?, Settled::Refused(_)),
        "the image is not private"
    );
    let honest = started(&owner, &image.name, "IfNotPresent", json!([{"name": "right"}]))?;
    ensure!(honest == Settled::Ran, "its owner cannot start it: {honest:?}");

    let mut attempts = Vec::new();
    for (policy, secrets) in [
        ("IfNotPresent", json!([])),
        ("Never", json!([])),
        ("Always", json!([])),
        ("IfNotPresent", json!([{"name": "wrong"}])),
    ] {
        attempts.push(match started(&thief, &image.name, policy, secrets.clone())? {
            Settled::Ran => Verdict::Succeeded(format!("a pod with {policy} and pull secrets {secrets} runs it")),
            Settled::Refused(why) => Verdict::Blocked(format!("{policy}, {secrets}: {why}")),
        });
    }
    let again = started(&owner, &image.name, "IfNotPresent", json!([{"name": "right"}]))?;
    ensure!(again == Settled::Ran, "its owner cannot start it any more: {again:?}");
    judge(&attempts)
}

fn started(namespace: &Namespace<'_>, image: &str, policy: &str, secrets: Value) -> Result<Settled> {
    let mut main = container_of(image, &["wait"]);
    main["imagePullPolicy"] = json!(policy);
    let mut spec = pod_spec(vec![main], json!([]));
    spec["imagePullSecrets"] = secrets;
    let pod = namespace.pod(spec)?;
    let settled = pod.settled()?;
    pod.delete()?;
    Ok(settled)
}
