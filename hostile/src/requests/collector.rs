//! Objects that keep controllers busy.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::signals::{self, wait_for};
use crate::verdict::{Verdict, blocked, succeeded};
use crate::world::{PATIENCE, World};

pub const OWNERS_THAT_LEAD_NOWHERE: Case = Case {
    name: "requests/owners-that-lead-nowhere",
    class: "",
    must_not: "An ownerReference that no kind fits keeps the garbage collector busy and the log growing.",
    needs: &[],
    run: owners_that_lead_nowhere,
};

const WATCHED: Duration = Duration::from_secs(4);
/// Lines that a few odd objects may cost.
const TOLERATED: usize = 40;

fn owners_that_lead_nowhere(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let path = namespace.path("configmaps");
    let owned = |name: &str, version: &str, kind: &str| {
        let owner =
            json!({"apiVersion": version, "kind": kind, "name": "x", "uid": "00000000-0000-0000-0000-000000000001"});
        json!({"metadata": {"name": name, "ownerReferences": [owner]}})
    };
    let before = fs::read_to_string(world.cluster.log())?.lines().count();
    let mut taken = 0;
    for (index, (version, kind)) in [
        ("v1", "Nothing"),
        ("nothing.test/v1", "Nothing"),
        ("a/b/c", "Pod"),
        ("/", "Pod"),
        ("v1", "Po d/../"),
        ("apps/v1beta99", "Deployment"),
    ]
    .into_iter()
    .enumerate()
    {
        taken += usize::from(
            world
                .admin
                .post(&path, &owned(&format!("odd-{index}"), version, kind))?
                .is_success(),
        );
    }
    signals::sleep(WATCHED)?;
    let lines = fs::read_to_string(world.cluster.log())?
        .lines()
        .count()
        .saturating_sub(before);
    // It still does its work: an object whose owner is not there goes.
    world.admin.must_post(&path, &owned("orphan", "v1", "ConfigMap"))?;
    let orphan = namespace.path("configmaps/orphan");
    wait_for("the garbage collector", PATIENCE, || {
        Ok((world.admin.get(&orphan)?.status == 404).then_some(()))
    })?;
    ensure!(taken > 0, "not one odd reference was taken");
    match lines > TOLERATED {
        true => succeeded(format!(
            "{taken} objects cost {lines} lines of the log in {} s",
            WATCHED.as_secs()
        )),
        false => blocked(format!("{taken} objects with odd owners cost {lines} lines of the log")),
    }
}
