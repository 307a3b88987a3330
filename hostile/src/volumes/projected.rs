//! Volumes that the kubelet fills: configMap, secret, downwardAPI, projected.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::pods::{Pod, container, pod_spec};
use crate::signals::wait_for;
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, PATIENCE, World};

pub const LINK_IN_PLACE_OF_DATA: Case = Case {
    name: "volumes/link-in-place-of-data",
    class: "CVE-2017-1002102",
    must_not: "A pod puts a link into a configMap, secret, downwardAPI or projected volume, and the kubelet removes what it leads to.",
    needs: &[],
    run: link_in_place_of_data,
};

/// How long the kubelet is given to remove what it should not.
const REMOVAL: Duration = Duration::from_secs(10);

fn volumes() -> Vec<(&'static str, Value)> {
    let labels = json!({"items": [{"path": "key", "fieldRef": {"fieldPath": "metadata.labels"}}]});
    vec![
        ("configmap", json!({"configMap": {"name": "source"}})),
        ("secret", json!({"secret": {"secretName": "source"}})),
        ("downward", json!({"downwardAPI": labels})),
        (
            "projected",
            json!({"projected": {"sources": [{"configMap": {"name": "source"}}, {"secret": {"name": "source", "items": [{"key": "key", "path": "secret"}]}}]}}),
        ),
    ]
}

fn link_in_place_of_data(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    fill(&namespace, "one", true)?;
    let mut main = container(&["wait"]);
    let mut list = Vec::new();
    for (name, mut volume) in volumes() {
        volume["name"] = json!(name);
        list.push(volume);
        let mounts = main["volumeMounts"].as_array().cloned().unwrap_or_default();
        main["volumeMounts"] = mounts
            .into_iter()
            .chain([json!({"name": name, "mountPath": format!("/{name}")})])
            .collect();
    }
    let pod = namespace.pod_with(
        json!({"labels": {"value": "one"}}),
        pod_spec(vec![main], Value::Array(list)),
    )?;
    pod.running()?;
    let victim = world.host_dir()?;
    fs::write(victim.join("precious"), "precious")?;

    let mut attempts = Vec::new();
    for (name, _) in volumes() {
        ensure!(
            pod.act(&["read", &format!("/{name}/key")])?.text().contains("one"),
            "the {name} volume is not filled"
        );
        let target = victim.to_string_lossy();
        let linked = pod.act(&["replace-link", &target, &format!("/{name}/..data")])?;
        let written = pod.act(&["write", &format!("/{name}/new"), "x"])?;
        attempts.push(match (linked.ok, written.ok) {
            (false, false) => Verdict::Blocked(format!("a link into the {name} volume: {}", linked.error)),
            _ => Verdict::Succeeded(format!("the {name} volume is writable")),
        });
    }
    change(&namespace, &pod)?;
    let removed = wait_for("the removal", REMOVAL, || {
        let seen = pod.act(&["read", "/configmap/key"])?;
        Ok((!victim.join("precious").exists() || seen.text() == "two").then_some(()))
    });
    if !victim.join("precious").exists() {
        attempts.insert(
            0,
            Verdict::Succeeded("the kubelet removed a directory of the host".to_owned()),
        );
        return judge(&attempts);
    }
    if attempts.iter().all(|attempt| matches!(attempt, Verdict::Blocked(_))) {
        // Without the attack the change arrives, so that the kubelet went the way that was aimed at.
        removed.or_else(|_| arrived(&pod))?;
    }
    judge(&attempts)
}

fn arrived(pod: &Pod<'_>) -> Result<()> {
    wait_for("the change to arrive", PATIENCE, || {
        Ok((pod.act(&["read", "/configmap/key"])?.text() == "two").then_some(()))
    })
}

fn fill(namespace: &Namespace<'_>, value: &str, new: bool) -> Result<()> {
    let admin = &namespace.world.admin;
    for (plural, object) in [
        ("configmaps", json!({"data": {"key": value}})),
        ("secrets", json!({"stringData": {"key": value}})),
    ] {
        match new {
            true => {
                let mut object = object.clone();
                object["metadata"] = json!({"name": "source"});
                admin.must_post(&namespace.path(plural), &object)?
            }
            false => admin.must_merge(&namespace.path(&format!("{plural}/source")), &object)?,
        };
    }
    Ok(())
}

fn change(namespace: &Namespace<'_>, pod: &Pod<'_>) -> Result<()> {
    fill(namespace, "two", false)?;
    namespace
        .world
        .admin
        .must_merge(&pod.path(), &json!({"metadata": {"labels": {"value": "two"}}}))?;
    Ok(())
}
