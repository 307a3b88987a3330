//! PriorityClass: a number by name, by which pods are preferred.

use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

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
        class.fill_absent("preemptionPolicy", "PreemptLowerPriority");
    }

    /// An update is only asked whether it leaves alone what cannot change.
    fn validate_create(&self, class: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let name = class["metadata"].text("name");
        let value = class.number("value");
        if name.starts_with("system-") && !SYSTEM_CLASSES.contains(&(name, value)) {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a \
                 known system priority class"
            );
            problems.forbidden(&Path::new("metadata"), "name", detail);
        }
        if !name.starts_with("system-") && value > HIGHEST {
            let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
            problems.forbidden(&Path::default(), "value", detail);
        }
        problems.one_of(
            class,
            &Path::default(),
            "preemptionPolicy",
            &["PreemptLowerPriority", "Never"],
        );
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if new["value"] != old["value"] {
            problems.forbidden(&Path::default(), "value", "may not be changed in an update.");
        }
        problems.immutable(new, old, &Path::default(), "preemptionPolicy");
        problems.into_vec()
    }

    /// Upstream numbers the first state and never counts on.
    fn prepare_create(&self, class: &mut Value) {
        class.ensure("metadata").set("generation", 1);
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

/// The highest priority that users can give.
const HIGHEST: i64 = 1_000_000_000;
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

const COLUMNS: &[Column] = &[
    NAME,
    print::integer("Value", "The priority of pods of this class."),
    print::boolean("Global-Default", "Whether pods without a class get this one."),
    AGE,
    print::text("PreemptionPolicy", "Whether pods of this class push others out."),
];
