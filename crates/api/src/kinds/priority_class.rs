//! PriorityClass: a number by name, by which pods are preferred.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Value};

pub static PRIORITY_CLASS: Resource = Resource::cluster(
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses",
    "priorityclass",
)
.short(&["pc"])
.with_rules(&PriorityClassRules);

struct PriorityClassRules;

impl Rules for PriorityClassRules {
    fn default(&self, class: &mut Value) {
        class.fill("preemptionPolicy", "PreemptLowerPriority");
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, class: &Value, now: i64) -> Vec<Value> {
        vec![
            print::name(class),
            class.number("value").into(),
            class.flag("globalDefault").into(),
            print::age(class, now),
            class.text("preemptionPolicy").into(),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::integer("Value", "The priority of pods of this class."),
    print::boolean("Global-Default", "Whether pods without a class get this one."),
    AGE,
    print::text("PreemptionPolicy", "Whether pods of this class push others out.").wide(),
];
