//! IPAddress: an address of a service, claimed by being created.

use crate::print::{self, NAME};
use crate::{Column, Fields, Resource, Rules, Value};

pub static IP_ADDRESS: Resource = Resource::cluster("networking.k8s.io", "v1", "IPAddress", "ipaddresses", "ipaddress")
    .short(&["ip"])
    .with_rules(&IpAddressRules);

struct IpAddressRules;

impl Rules for IpAddressRules {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, address: &Value, _now: i64) -> Vec<Value> {
        let parent = &address["spec"]["parentRef"];
        let shown = match parent.is_object() {
            true => {
                let resource = match parent.text("group") {
                    "" => parent.text("resource").to_owned(),
                    group => format!("{}.{group}", parent.text("resource")),
                };
                let parts = [resource.as_str(), parent.text("namespace"), parent.text("name")];
                let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                parts.join("/")
            }
            false => "<none>".to_owned(),
        };
        vec![print::name(address), shown.into()]
    }
}

const COLUMNS: &[Column] = &[NAME, print::text("ParentRef", "The service that holds it.")];
