//! Requests that promise to change nothing.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::client::{Client, JSON};
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, World};

pub const EMPTY_DRY_RUN: Case = Case {
    name: "requests/empty-dry-run",
    class: "",
    must_not: "A request with `dryRun=`, or with a dry run only in its query or body, writes, deletes or hands out a token.",
    needs: &[],
    run: empty_dry_run,
};

fn empty_dry_run(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let admin = &world.admin;
    let (collection, kept) = (namespace.path("configmaps"), namespace.path("configmaps/kept"));
    admin.must_post(&collection, &json!({"metadata": {"name": "kept"}}))?;
    let honest = admin.delete(&format!("{kept}?dryRun=All"))?;
    ensure!(
        honest.is_success() && admin.get(&kept)?.is_success(),
        "dryRun=All: {}",
        honest.summary()
    );

    let mut attempts = Vec::new();
    let made = admin.post(&format!("{collection}?dryRun="), &json!({"metadata": {"name": "made"}}))?;
    attempts.push(match admin.get(&namespace.path("configmaps/made"))?.is_success() {
        true => Verdict::Succeeded(format!("a creation with `dryRun=` was carried out ({})", made.status)),
        false => Verdict::Blocked(made.summary()),
    });
    let in_body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": [""]});
    let not_in_body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
    for deleted in [
        admin.delete(&format!("{kept}?dryRun="))?,
        admin.body("DELETE", &kept, JSON, &in_body)?,
        admin.body("DELETE", &format!("{kept}?dryRun=All"), JSON, &not_in_body)?,
        admin.body("DELETE", &format!("{kept}?dryRun="), JSON, &not_in_body)?,
        admin.body("DELETE", &format!("{collection}?dryRun=All"), JSON, &not_in_body)?,
    ] {
        attempts.push(match admin.get(&kept)?.is_success() {
            true => Verdict::Blocked(deleted.summary()),
            false => Verdict::Succeeded(format!("a deletion with a dryRun was carried out ({})", deleted.status)),
        });
    }
    let patched = admin.body(
        "PATCH",
        &format!("{kept}?dryRun="),
        crate::client::MERGE_PATCH,
        &json!({"data": {"changed": "1"}}),
    )?;
    attempts.push(match admin.get(&kept)?.json()["data"]["changed"].is_string() {
        true => Verdict::Succeeded(format!("a patch with `dryRun=` was carried out ({})", patched.status)),
        false => Verdict::Blocked(patched.summary()),
    });
    attempts.push(token(world, &namespace)?);
    judge(&attempts)
}

/// A token that was only tried to get.
fn token(world: &World, namespace: &Namespace<'_>) -> Result<Verdict> {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = namespace.path("serviceaccounts/default/token?dryRun=All");
    let answer = world.admin.post(&path, &request)?;
    let token = answer.json()["status"]["token"].as_str().unwrap_or_default().to_owned();
    if token.is_empty() {
        return Ok(Verdict::Blocked(format!("a token: {} without one", answer.status)));
    }
    let used = Client::with_token(world.cluster.api(), &token).get("/api/v1/namespaces/default/pods")?;
    Ok(match used.status {
        401 => Verdict::Blocked("a token that is nobody's".to_owned()),
        _ => Verdict::Succeeded("a token that was only tried to get is accepted".to_owned()),
    })
}
