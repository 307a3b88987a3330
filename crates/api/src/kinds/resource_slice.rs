//! ResourceSlice: the devices of a pool, on a node or reachable from some.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Value};

pub static RESOURCE_SLICE: Resource = Resource::cluster(
    "resource.k8s.io",
    "v1",
    "ResourceSlice",
    "resourceslices",
    "resourceslice",
)
.with_rules(&ResourceSliceRules);

struct ResourceSliceRules;

impl Rules for ResourceSliceRules {
    fn default(&self, slice: &mut Value) {
        for device in slice.ensure("spec").list_mut("devices") {
            if let Some(Value::Object(mappings)) = device.get_mut("nodeAllocatableResourceMappings") {
                for mapping in mappings.values_mut() {
                    mapping.fill("allocationMultiplier", "1");
                }
            }
        }
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn field(&self, slice: &Value, path: &str) -> Option<String> {
        match path {
            "spec.nodeName" => Some(slice["spec"].text("nodeName").to_owned()),
            "spec.driver" => Some(slice["spec"].text("driver").to_owned()),
            _ => None,
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, slice: &Value, now: i64) -> Vec<Value> {
        let spec = &slice["spec"];
        vec![
            print::name(slice),
            spec.text("nodeName").into(),
            spec.text("driver").into(),
            spec["pool"].text("name").into(),
            print::age(slice, now),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Node", "The node that has the devices."),
    print::text("Driver", "The driver that serves them."),
    print::text("Pool", "The pool they belong to."),
    AGE,
];
