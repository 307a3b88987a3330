//! ControllerRevision: a state that a workload had.

use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static CONTROLLER_REVISION: Resource = Resource::namespaced(
    "apps",
    "v1",
    "ControllerRevision",
    "controllerrevisions",
    "controllerrevision",
)
.with_rules(&ControllerRevisionRules);

struct ControllerRevisionRules;

impl Rules for ControllerRevisionRules {
    fn validate(&self, revision: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if revision.has("data") && !revision["data"].is_object() {
            problems.required(&Path::default(), "data", "data must be a valid JSON object");
        }
        problems.not_negative(revision, &Path::default(), "revision");
        problems.into_vec()
    }

    fn validate_create(&self, revision: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if !revision.has("data") {
            problems.required(&Path::default(), "data", "data is mandatory");
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(new, old, &Path::default(), "data");
        problems.into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, revision: &Value, now: i64) -> Vec<Value> {
        let owners = revision["metadata"].list("ownerReferences");
        let controller = match owners.iter().find(|owner| owner.flag("controller")) {
            Some(owner) => {
                let kind = match owner.text("apiVersion").split_once('/') {
                    Some((group, _)) => format!("{}.{group}", owner.text("kind")),
                    None => owner.text("kind").to_owned(),
                };
                format!("{}/{}", kind.to_lowercase(), owner.text("name"))
            }
            None => "<none>".to_owned(),
        };
        vec![
            print::name(revision),
            controller.into(),
            revision.number("revision").into(),
            print::age(revision, now),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Controller", "Whose state it is."),
    print::text("Revision", "Its number."),
    AGE,
];
