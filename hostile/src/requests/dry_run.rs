//! Requests that promise to change nothing.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::client::JSON;
use crate::verdict::{Verdict, judge};
use crate::world::World;

pub const EMPTY_DRY_RUN: Case = Case {
    name: "requests/empty-dry-run",
    class: "",
    must_not: "A request with `dryRun=` writes or deletes.",
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
    for deleted in [
        admin.delete(&format!("{kept}?dryRun="))?,
        admin.body("DELETE", &kept, JSON, &in_body)?,
    ] {
        attempts.push(match admin.get(&kept)?.is_success() {
            true => Verdict::Blocked(deleted.summary()),
            false => Verdict::Succeeded(format!(
                "a deletion with an empty dryRun was carried out ({})",
                deleted.status
            )),
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
    judge(&attempts)
}
