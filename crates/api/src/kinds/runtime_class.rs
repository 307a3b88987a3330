//! RuntimeClass: which container runtime handler runs a pod.

use crate::names::dns1123_label;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static RUNTIME_CLASS: Resource =
    Resource::cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass")
        .with_rules(&RuntimeClassRules);

struct RuntimeClassRules;

impl Rules for RuntimeClassRules {
    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if problems.needs(class, &Path::default(), "handler") {
            let handler = class.text("handler");
            problems.form(&Path::default(), "handler", handler, dns1123_label(handler, false));
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
