//! A runtime class brings its overhead, and the nodes that have the runtime, into the pod.

use std::sync::Arc;

use api::kinds::pod::POD;
use api::kinds::runtime_class::RUNTIME_CLASS;
use api::{Error, Fields, Value};
use async_trait::async_trait;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct RuntimeClass;

#[async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.is(&POD, "")
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let Some(class) = class_of(attributes, lookup)? else {
            return Ok(());
        };
        if let Some(overhead) = class["overhead"].get("podFixed") {
            let given = &attributes.object["spec"]["overhead"];
            if given.is_object() && given != overhead {
                let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
                return Err(attributes.forbidden(why));
            }
            attributes.object.ensure("spec").set("overhead", overhead.clone());
        }
        if class.has("scheduling") {
            schedule(attributes, &class["scheduling"])?;
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let class = class_of(attributes, lookup)?.unwrap_or_default();
        let overhead = &attributes.object["spec"]["overhead"];
        match class["overhead"].get("podFixed") {
            Some(defined) if defined != overhead => {
                Err(attributes.forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
            }
            None if overhead.is_object() => Err(attributes
                .forbidden("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")),
            _ => Ok(()),
        }
    }
}

fn class_of(attributes: &Attributes, lookup: &dyn Lookup) -> Result<Option<Arc<Value>>, Error> {
    let Some(name) = attributes.object["spec"]["runtimeClassName"].as_str() else {
        return Ok(None);
    };
    match lookup.get(&RUNTIME_CLASS, "", name) {
        Some(class) => Ok(Some(class)),
        None => Err(attributes.forbidden(format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

/// Adds the class's node selector and tolerations to the pod's own.
fn schedule(attributes: &mut Attributes, scheduling: &Value) -> Result<(), Error> {
    for (key, wanted) in scheduling.entries("nodeSelector") {
        let given = &attributes.object["spec"]["nodeSelector"][key];
        let (given, wanted) = (given.as_str(), wanted.as_str().unwrap_or_default());
        if let Some(given) = given.filter(|given| *given != wanted) {
            return Err(attributes.forbidden(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {given}"
            )));
        }
        attributes.object.ensure("spec").ensure("nodeSelector").set(key, wanted);
    }
    let spec = attributes.object.ensure("spec");
    let mut tolerations = spec.list("tolerations").to_vec();
    for toleration in scheduling.list("tolerations") {
        if !tolerations.iter().any(|held| tolerates_all_of(held, toleration)) {
            tolerations.retain(|held| !tolerates_all_of(toleration, held));
            tolerations.push(toleration.clone());
        }
    }
    if !tolerations.is_empty() {
        spec.set("tolerations", tolerations);
    }
    Ok(())
}

/// Whether the first toleration tolerates every taint that the second does, for at least as long.
fn tolerates_all_of(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let exists = wide.text("operator") == "Exists";
    let key = wide["key"] == narrow["key"] || exists && wide.text("key").is_empty();
    let value = exists || wide["value"] == narrow["value"] && wide["operator"] == narrow["operator"];
    let effect = wide["effect"] == narrow["effect"] || wide.text("effect").is_empty();
    let time = match (wide["tolerationSeconds"].as_i64(), narrow["tolerationSeconds"].as_i64()) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => wide >= narrow,
    };
    key && value && effect && time
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, pod, run};

    #[test]
    fn overhead_and_nodes_come_with_the_class() {
        let class = json!({
            "metadata": {"name": "vm"},
            "overhead": {"podFixed": {"memory": "120Mi"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]},
        });
        let cluster = Cluster(vec![(&RUNTIME_CLASS, class)]);
        let admit = |spec| run(&RuntimeClass, create(&POD, pod(spec)), &cluster).map(|pod| pod["spec"].to_string());
        expect![[r#"{"nodeSelector":{"vm":"yes"},"overhead":{"memory":"120Mi"},"runtimeClassName":"vm","tolerations":[{"key":"vm","operator":"Exists"}]}"#]]
            .assert_eq(&admit(json!({"runtimeClassName": "vm", "tolerations": [{"key": "vm", "value": "x"}]})).unwrap());
        expect![[r#"pods "web" is forbidden: pod rejected: RuntimeClass "none" not found"#]]
            .assert_eq(&admit(json!({"runtimeClassName": "none"})).unwrap_err());
        expect![[r#"pods "web" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"#]]
            .assert_eq(&admit(json!({"overhead": {"cpu": "1"}})).unwrap_err());
        expect![[r#"pods "web" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no"#]]
            .assert_eq(&admit(json!({"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}})).unwrap_err());
    }
}
