//! RuntimeClass: which container runtime handler runs a pod.

use crate::names::dns1123_label;
use crate::pod_spec::{validate_requirements, validate_tolerations};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value, repeats, validate_labels};
use serde_json::json;

pub static RUNTIME_CLASS: Resource =
    Resource::cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass")
        .requiring_revision()
        .with_unqualified_finalizers()
        .with_rules(&RuntimeClassRules);

struct RuntimeClassRules;

impl Rules for RuntimeClassRules {
    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if problems.needs(class, &Path::default(), "handler") {
            let handler = class.text("handler");
            problems.form(&Path::default(), "handler", handler, dns1123_label(handler, false));
        }
        // Upstream looks at the overhead as if it were the limits of a container.
        let overhead = json!({"limits": class["overhead"]["podFixed"]});
        validate_requirements(&overhead, &Path::new("overhead"), &mut problems);
        let (scheduling, path) = (&class["scheduling"], Path::new("scheduling"));
        let place = path.child("nodeSelector");
        problems.extend(validate_labels(&scheduling["nodeSelector"], &place));
        let (tolerations, path) = (scheduling.list("tolerations"), path.child("tolerations"));
        validate_tolerations(tolerations, &path, &mut problems);
        let repeated = repeats(tolerations);
        for (index, toleration) in tolerations.iter().enumerate() {
            if repeated[index] {
                problems.duplicate(&path.index(index), "", toleration.clone());
            }
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(new, old, &Path::default(), "handler");
        problems.into_vec()
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, class: &Value, now: i64) -> Vec<Value> {
        vec![print::name(class), class.text("handler").into(), print::age(class, now)]
    }
}

const COLUMNS: &[Column] = &[NAME, print::text("Handler", "The handler's name in the runtime."), AGE];

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn what_it_adds_to_pods_is_checked_as_in_pods() {
        let toleration = json!({"key": "a", "operator": "Exists"});
        let class = json!({
            "handler": "h", "overhead": {"podFixed": {"cpu": "-1"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [toleration, toleration]},
        });
        let found = RuntimeClassRules.validate(&class);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        expect![[r#"
            overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0
            scheduling.tolerations[1]: Duplicate value: {"key":"a","operator":"Exists"}"#]]
        .assert_eq(&found.join("\n"));
    }
}
