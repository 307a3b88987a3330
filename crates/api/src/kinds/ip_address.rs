//! IPAddress: an address of a service, claimed by being created.

use std::net::IpAddr;

use crate::names::{dns1123_subdomain, ip_address, path_segment};
use crate::print::{self, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static IP_ADDRESS: Resource = Resource::cluster("networking.k8s.io", "v1", "IPAddress", "ipaddresses", "ipaddress")
    .short(&["ip"])
    .with_rules(&IpAddressRules);

struct IpAddressRules;

impl Rules for IpAddressRules {
    fn validate(&self, address: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (parent, path) = (&address["spec"]["parentRef"], Path::new("spec").child("parentRef"));
        if !parent.is_object() {
            problems.required(&Path::new("spec"), "parentRef", "");
            return problems.into_vec();
        }
        let group = parent.text("group");
        if !group.is_empty() {
            problems.form(&path, "group", group, dns1123_subdomain(group, false));
        }
        for field in ["resource", "name"] {
            if problems.needs(parent, &path, field) {
                problems.form(
                    &path,
                    field,
                    parent.text(field),
                    path_segment(parent.text(field), false),
                );
            }
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(&new["spec"], &old["spec"], &Path::new("spec"), "parentRef");
        problems.into_vec()
    }

    /// The name is the address, in its one canonical form.
    fn validate_name(&self, name: &str, _prefix: bool) -> Vec<String> {
        let found = ip_address(name);
        match name.parse::<IpAddr>() {
            Ok(address) if found.is_empty() && address.to_string() != name => {
                vec![format!("must be in canonical form (\"{address}\")")]
            }
            _ => found,
        }
    }

    /// An address with something random behind it would be none.
    fn generates_names(&self) -> bool {
        false
    }

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
