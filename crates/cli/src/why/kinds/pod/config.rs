//! Containers whose configuration names what is not there.

use api::Value;

use super::containers;
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::{Look, between};

pub fn cannot_be_configured(_: &Facts, pod: &Value) -> Vec<Finding> {
    let containers = containers(pod).into_iter();
    let failing =
        containers.filter(|container| container.status.str("state.waiting.reason") == "CreateContainerConfigError");
    failing
        .map(|container| {
            let message = container.status.str("state.waiting.message");
            let whose = format!("the {}", container.called());
            missing(message, pod.namespace(), &whose).unwrap_or_else(|| {
                let finding = Finding::broken(
                    "container-config",
                    format!("The configuration of {} is invalid.", container.called()),
                )
                .detail(format!("Kubelet: {message}"));
                match message.contains("runAsNonRoot") {
                    true => finding
                        .next("Set securityContext.runAsUser to a user other than 0, or use an image that sets one."),
                    false => finding,
                }
            })
        })
        .collect()
}

/// What a message says of a ConfigMap or Secret that is missing, or of a key in it.
pub fn missing(message: &str, namespace: &str, whose: &str) -> Option<Finding> {
    if let Some(key) = between(message, "couldn't find key ", " in ") {
        let place = message.split_once(&format!("{key} in ")).map(|(_, place)| place)?;
        let (kind, name) = place.split_once(' ')?;
        let name = name.rsplit('/').next().unwrap_or(name);
        return Some(key_missing(kind, name, key, namespace, whose));
    }
    if let Some(key) = message
        .split_once("references non-existent config key: ")
        .map(|(_, key)| key)
    {
        let name = between(message, "configmap \"", "\"").unwrap_or("of the volume");
        return Some(key_missing("ConfigMap", name, key, namespace, whose));
    }
    if let Some(key) = message
        .split_once("references non-existent secret key: ")
        .map(|(_, key)| key)
    {
        return Some(key_missing("Secret", "of the volume", key, namespace, whose));
    }
    for (kind, word) in [("ConfigMap", "configmap"), ("Secret", "secret")] {
        let name = between(message, &format!("{word} \""), "\" not found")
            .or_else(|| between(message, &format!("{word}s \""), "\" not found"));
        if let Some(name) = name {
            let create = match word {
                "secret" => "secret generic",
                _ => "configmap",
            };
            return Some(
                Finding::broken(
                    "config-missing",
                    format!("{kind} \"{name}\", required by {whose}, does not exist."),
                )
                .next(format!(
                    "Create it: kubectl -n {namespace} create {create} {name} --from-literal=KEY=VALUE"
                ))
                .next("Or correct the reference, or mark it as optional: true."),
            );
        }
    }
    None
}

fn key_missing(kind: &str, name: &str, key: &str, namespace: &str, whose: &str) -> Finding {
    let key = key.trim().trim_end_matches('.');
    let resource = kind.to_lowercase();
    Finding::broken(
        "config-key-missing",
        format!("{kind} \"{name}\" has no key \"{key}\", required by {whose}."),
    )
    .next(format!("Add the key: kubectl -n {namespace} edit {resource} {name}"))
    .next("Or correct the reference, or mark it as optional: true.")
}
