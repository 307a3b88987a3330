//! LimitRange: bounds and defaults for what pods and claims of a namespace ask for.

use crate::{Fields, Resource, Rules, Value};

pub static LIMIT_RANGE: Resource = Resource::namespaced("", "v1", "LimitRange", "limitranges", "limitrange")
    .short(&["limits"])
    .with_rules(&LimitRangeRules);

struct LimitRangeRules;

impl Rules for LimitRangeRules {
    fn default(&self, range: &mut Value) {
        for limit in range.ensure("spec").list_mut("limits") {
            if limit.text("type") == "Container" {
                default_container_limit(limit);
            }
        }
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

/// The most is the default limit, the default limit the default request; the least comes last.
fn default_container_limit(limit: &mut Value) {
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let Some(amounts) = limit[from].as_object().cloned() else {
            continue;
        };
        for (resource, quantity) in amounts {
            limit.ensure(to).fill(&resource, quantity);
        }
    }
}
