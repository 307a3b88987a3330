//! ComponentStatus: the health of parts of the control plane, as it was shown long ago.

use crate::print::{self, NAME};
use crate::{Column, Fields, Resource, Rules, Value, Verb};

pub static COMPONENT_STATUS: Resource =
    Resource::cluster("", "v1", "ComponentStatus", "componentstatuses", "componentstatus")
        .short(&["cs"])
        .with_verbs(&[Verb::Get, Verb::List])
        .not_stored()
        .deprecated("v1 ComponentStatus is deprecated in v1.19+")
        .with_rules(&ComponentStatusRules);

struct ComponentStatusRules;

impl Rules for ComponentStatusRules {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, component: &Value, _now: i64) -> Vec<Value> {
        let conditions = component.list("conditions");
        let healthy = conditions.iter().find(|condition| condition.text("type") == "Healthy");
        let state = match healthy.map(|condition| condition.text("status")) {
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
            None => "Unknown",
        };
        let text = |field: &str| healthy.map_or("", |condition| condition.text(field)).into();
        vec![print::name(component), state.into(), text("message"), text("error")]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Status", "Whether the component is healthy."),
    print::text("Message", "What it says."),
    print::text("Error", "What is wrong with it."),
];
