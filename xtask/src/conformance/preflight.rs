//! Whether a cluster is worth testing: the suite itself waits ten minutes before it says that no pod can start.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cluster::Kubectl;

/// How long the controllers may take to see that a node is Ready.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the first pod may take.
const FIRST_POD: Duration = Duration::from_secs(30);
const IMAGE: &str = "registry.k8s.io/pause:3.10.2";

/// Fails with the reason unless there are so many nodes that take pods, and a pod starts.
pub fn check(kubectl: &Kubectl, nodes: usize) -> Result<()> {
    let mut seen = Vec::new();
    let fit = crate::signals::wait_for("schedulable nodes", PATIENCE, || {
        seen = kubectl
            .run(&["get", "nodes", "-o", "json"])
            .ok()
            .map_or_else(Vec::new, |text| hindrances(&text));
        (seen.len() == nodes && seen.iter().all(|(_, hindrance)| hindrance.is_none())).then_some(())
    });
    if let Err(error) = fit {
        crate::signals::check()?;
        bail!("{nodes} nodes were to take pods ({error:#}): {}", describe(&seen));
    }
    first_pod(kubectl)
}

fn first_pod(kubectl: &Kubectl) -> Result<()> {
    let name = "preflight";
    let account = ["get", "serviceaccount", "default", "-o", "name"];
    kubectl.until("the default service account", PATIENCE, &account, |found| {
        !found.is_empty()
    })?;
    kubectl.run(&["run", name, "--image", IMAGE, "--image-pull-policy=Never"])?;
    let query = ["get", "pod", name, "-o", "jsonpath={.status.phase}"];
    let running = kubectl.until("the first pod", FIRST_POD, &query, |phase| phase == "Running");
    let told = running.with_context(|| {
        let events = [
            "get",
            "events",
            "--field-selector",
            "involvedObject.name=preflight",
            "-o",
            "jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}",
        ];
        kubectl.run(&events).unwrap_or_default()
    });
    told?;
    kubectl.run(&["delete", "pod", name, "--grace-period=0", "--force"])?;
    Ok(())
}

/// Each node with the reason why it takes no pods, if there is one.
fn hindrances(nodes: &str) -> Vec<(String, Option<String>)> {
    let list: Value = serde_json::from_str(nodes).unwrap_or_default();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items
        .iter()
        .map(|node| {
            (
                node["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                hindrance(node),
            )
        })
        .collect()
}

fn hindrance(node: &Value) -> Option<String> {
    let entries = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let conditions = entries(&node["status"]["conditions"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let bad = conditions.iter().find(|condition| {
        let wanted = if condition["type"] == "Ready" { "True" } else { "False" };
        condition["status"] != wanted
    });
    if let Some(bad) = bad {
        return Some(format!(
            "{} is {}: {}",
            text(&bad["type"]),
            text(&bad["status"]),
            text(&bad["message"])
        ));
    }
    if node["spec"]["unschedulable"] == true {
        return Some("it is cordoned".to_owned());
    }
    let taints = entries(&node["spec"]["taints"]);
    let taint = taints.iter().find(|taint| taint["effect"] != "PreferNoSchedule");
    taint.map(|taint| format!("it has the taint {}:{}", text(&taint["key"]), text(&taint["effect"])))
}

fn describe(seen: &[(String, Option<String>)]) -> String {
    let lines: Vec<String> = seen
        .iter()
        .map(|(name, hindrance)| format!("{name}: {}", hindrance.as_deref().unwrap_or("fit")))
        .collect();
    match lines.is_empty() {
        true => "there is no node".to_owned(),
        false => lines.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, conditions: &[(&str, &str)]) -> Option<String> {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| serde_json::json!({"type": kind, "status": status, "message": "why"}))
            .collect();
        hindrance(&serde_json::json!({"spec": spec, "status": {"conditions": conditions}}))
    }

    #[test]
    fn a_node_that_takes_no_pods_says_why() {
        let ready = [("Ready", "True"), ("DiskPressure", "False")];
        let none = || serde_json::json!({});
        assert_eq!(check(none(), &ready), None);
        assert_eq!(
            check(none(), &[("Ready", "False")]).as_deref(),
            Some("Ready is False: why")
        );
        assert_eq!(
            check(none(), &[("Ready", "True"), ("DiskPressure", "True")]).as_deref(),
            Some("DiskPressure is True: why")
        );
        let cordoned = serde_json::json!({"unschedulable": true});
        assert_eq!(check(cordoned, &ready).as_deref(), Some("it is cordoned"));
        let tainted = serde_json::json!({"taints": [{"key": "a", "effect": "NoExecute"}]});
        assert_eq!(check(tainted, &ready).as_deref(), Some("it has the taint a:NoExecute"));
    }
}
