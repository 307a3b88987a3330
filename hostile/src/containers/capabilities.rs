//! Capabilities that nobody gave.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::pods::{MAIN, container, pod_spec};
use crate::signals::wait_for;
use crate::verdict::{Verdict, judge};
use crate::world::{PATIENCE, World};

pub const INHERITED: Case = Case {
    name: "containers/inherited-capabilities",
    class: "CVE-2022-29162",
    must_not: "Processes of containers, or commands executed in them, inherit capabilities, or those of a user that is not root have some.",
    needs: &[],
    run: inherited,
};

const NONE: &str = "0000000000000000";

fn inherited(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let mut attempts = Vec::new();
    for (user, sets) in [
        (0, &["CapInh", "CapAmb"][..]),
        (65534, &["CapInh", "CapAmb", "CapPrm", "CapEff"]),
    ] {
        let mut actions = Vec::new();
        sets.iter().for_each(|set| actions.extend(["status", set, "then"]));
        actions.push("wait");
        let mut main = container(&actions);
        main["securityContext"] = json!({"runAsUser": user});
        let pod = namespace.pod(pod_spec(vec![main], json!([])))?;
        pod.running()?;
        let of_first = wait_for("the capabilities", PATIENCE, || {
            let log = pod.log(MAIN)?;
            Ok((log.len() >= sets.len()).then_some(log))
        })?;
        for (set, first) in sets.iter().zip(of_first) {
            let executed = pod.act(&["status", set])?;
            for (whose, done) in [("the first process", first), ("an executed command", executed)] {
                ensure!(done.ok, "{whose} does not know its {set}: {}", done.error);
                attempts.push(match done.text() == NONE {
                    true => Verdict::Blocked(format!("{set} of {whose} of user {user} is empty")),
                    false => Verdict::Succeeded(format!("{set} of {whose} of user {user} is {}", done.text())),
                });
            }
        }
    }
    judge(&attempts)
}
