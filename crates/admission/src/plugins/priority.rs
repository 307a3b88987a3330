//! Turns the name of a pod's priority class into its number.

use std::sync::Arc;

use api::kinds::pod::POD;
use api::kinds::priority_class::PRIORITY_CLASS;
use api::{Error, Fields, Value};
use async_trait::async_trait;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct Priority;

#[async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && (attributes.is(&POD, "") || attributes.is(&PRIORITY_CLASS, ""))
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        if !attributes.concerns(&POD) {
            return Ok(());
        }
        if attributes.operation == Operation::Update {
            keep(attributes);
            return Ok(());
        }
        let class = class_of(attributes, lookup)?;
        let spec = &attributes.object["spec"];
        if let Some(given) = spec["priority"].as_i64().filter(|given| *given != class.value) {
            return Err(attributes.forbidden(format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
                 computed {} from the given PriorityClass name",
                class.value
            )));
        }
        if let Some(given) = spec["preemptionPolicy"]
            .as_str()
            .filter(|given| *given != class.preemption)
        {
            return Err(attributes.forbidden(format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {} from the given PriorityClass name",
                class.preemption
            )));
        }
        let spec = attributes.object.ensure("spec");
        if !class.name.is_empty() {
            spec.set("priorityClassName", class.name);
        }
        spec.set("priority", class.value);
        spec.set("preemptionPolicy", class.preemption);
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        if !attributes.concerns(&PRIORITY_CLASS) || !attributes.object.flag("globalDefault") {
            return Ok(());
        }
        match default_class(lookup) {
            Some(class)
                if attributes.operation == Operation::Create
                    || class["metadata"]["name"] != attributes.object["metadata"]["name"] =>
            {
                Err(attributes.forbidden(format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    class["metadata"].text("name")
                )))
            }
            _ => Ok(()),
        }
    }
}

struct Class {
    name: String,
    value: i64,
    preemption: String,
}

/// Clients send pods back without the numbers they never set.
fn keep(attributes: &mut Attributes) {
    for field in ["priority", "preemptionPolicy"] {
        let old = attributes.old_object["spec"][field].clone();
        let spec = attributes.object.ensure("spec");
        if !spec.has(field) && !old.is_null() {
            spec.set(field, old);
        }
    }
}

fn class_of(attributes: &Attributes, lookup: &dyn Lookup) -> Result<Class, Error> {
    let found = match attributes.object["spec"].text("priorityClassName") {
        "" => default_class(lookup),
        name => {
            let class = lookup.get(&PRIORITY_CLASS, "", name);
            let missing = || attributes.forbidden(format!("no PriorityClass with name {name} was found"));
            Some(class.ok_or_else(missing)?)
        }
    };
    let class = found.unwrap_or_default();
    let preemption = match class.text("preemptionPolicy") {
        "" => "PreemptLowerPriority",
        policy => policy,
    };
    Ok(Class {
        name: class["metadata"].text("name").to_owned(),
        value: class.number("value"),
        preemption: preemption.to_owned(),
    })
}

/// Two defaults can only come from a race; the lower one is the safer.
fn default_class(lookup: &dyn Lookup) -> Option<Arc<Value>> {
    let classes = lookup.list(&PRIORITY_CLASS, "").into_iter();
    classes
        .filter(|class| class.flag("globalDefault"))
        .min_by_key(|class| class.number("value"))
        .map(Arc::new)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, pod, run};

    fn cluster() -> Cluster {
        Cluster(vec![(
            &PRIORITY_CLASS,
            json!({"metadata": {"name": "system-node-critical"}, "value": 2000001000, "preemptionPolicy": "Never"}),
        )])
    }

    #[test]
    fn a_class_gives_its_number() {
        let spec = |spec| run(&Priority, create(&POD, pod(spec)), &cluster()).map(|pod| pod["spec"].to_string());
        expect![[r#"{"preemptionPolicy":"PreemptLowerPriority","priority":0}"#]].assert_eq(&spec(json!({})).unwrap());
        expect![[r#"{"preemptionPolicy":"Never","priority":2000001000,"priorityClassName":"system-node-critical"}"#]]
            .assert_eq(&spec(json!({"priorityClassName": "system-node-critical"})).unwrap());
        expect![[r#"pods "web" is forbidden: no PriorityClass with name gone was found"#]]
            .assert_eq(&spec(json!({"priorityClassName": "gone"})).unwrap_err());
        expect![[r#"pods "web" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name"#]]
            .assert_eq(&spec(json!({"priority": 5})).unwrap_err());
    }

    #[test]
    fn there_is_one_default_class() {
        let class = |name: &str| json!({"metadata": {"name": name}, "value": 5, "globalDefault": true});
        let cluster = Cluster(vec![(&PRIORITY_CLASS, class("first"))]);
        expect![[r#"priorityclasses.scheduling.k8s.io "second" is forbidden: PriorityClass first is already marked as default. Only one default can exist"#]]
            .assert_eq(&run(&Priority, create(&PRIORITY_CLASS, class("second")), &cluster).unwrap_err());
        let admitted = run(&Priority, create(&POD, pod(json!({}))), &cluster).unwrap();
        assert_eq!(admitted["spec"]["priorityClassName"], "first");
    }
}
