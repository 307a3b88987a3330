//! EndpointSlice: some of the addresses behind a Service.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Value};

pub static ENDPOINT_SLICE: Resource = Resource::namespaced(
    "discovery.k8s.io",
    "v1",
    "EndpointSlice",
    "endpointslices",
    "endpointslice",
)
.with_rules(&EndpointSliceRules);

struct EndpointSliceRules;

impl Rules for EndpointSliceRules {
    fn default(&self, slice: &mut Value) {
        for port in slice.list_mut("ports") {
            if !port.has("name") {
                port.set("name", "");
            }
            port.fill("protocol", "TCP");
        }
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, slice: &Value, now: i64) -> Vec<Value> {
        let ports: Vec<String> = slice.list("ports").iter().map(port).collect();
        let addresses: Vec<String> = slice
            .list("endpoints")
            .iter()
            .flat_map(|endpoint| endpoint.list("addresses"))
            .map(|address| address.as_str().unwrap_or_default().to_owned())
            .collect();
        vec![
            print::name(slice),
            slice.text("addressType").into(),
            print::at_most_three(&ports, "<unset>").into(),
            print::at_most_three(&addresses, "<unset>").into(),
            print::age(slice, now),
        ]
    }
}

fn port(port: &Value) -> String {
    match (port["port"].as_i64(), port["name"].as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("AddressType", "The kind of address that every endpoint has."),
    print::text("Ports", "The first ports."),
    print::text("Endpoints", "The first addresses."),
    AGE,
];
