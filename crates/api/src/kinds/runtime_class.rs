//! RuntimeClass: which container runtime handler runs a pod.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Value};

pub static RUNTIME_CLASS: Resource =
    Resource::cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass")
        .with_rules(&RuntimeClassRules);

struct RuntimeClassRules;

impl Rules for RuntimeClassRules {
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
