//! EndpointSlice: some of the addresses behind a Service.

use crate::names::{dns1123_label, dns1123_subdomain, endpoint_address};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Value};

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

    fn validate(&self, slice: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.one_of(slice, &Path::default(), "addressType", &["FQDN", "IPv4", "IPv6"]);
        validate_endpoints(slice, &mut problems);
        validate_ports(slice, &mut problems);
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(new, old, &Path::default(), "addressType");
        problems.into_vec()
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

const ENDPOINTS: usize = 1000;
const ADDRESSES: usize = 100;
const PORTS: usize = 20000;

fn validate_endpoints(slice: &Value, problems: &mut Problems) {
    let path = Path::new("endpoints");
    let endpoints = slice.list("endpoints");
    if endpoints.len() > ENDPOINTS {
        return problems.extend([FieldError::too_many(&path, endpoints.len(), ENDPOINTS)]);
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(index);
        let addresses = endpoint.list("addresses");
        if addresses.is_empty() {
            problems.required(&path, "addresses", "must contain at least 1 address");
        } else if addresses.len() > ADDRESSES {
            problems.extend([FieldError::too_many(
                &path.child("addresses"),
                addresses.len(),
                ADDRESSES,
            )]);
        }
        for (index, address) in addresses.iter().enumerate() {
            let address = address.as_str().unwrap_or_default();
            let (list, path) = (path.child("addresses"), path.child("addresses").index(index));
            match (slice.text("addressType"), address.contains(':')) {
                ("FQDN", _) => problems.form(&path, "", address, dns1123_subdomain(address, false)),
                (family, is_v6) => {
                    problems.form(&path, "", address, endpoint_address(address));
                    let fits = is_v6 == (family == "IPv6");
                    if !fits && matches!(family, "IPv4" | "IPv6") {
                        problems.invalid(&list, "", address, format!("must be an {family} address"));
                    }
                }
            }
        }
        if let Some(name) = endpoint["hostname"].as_str() {
            problems.form(&path, "hostname", name, dns1123_label(name, false));
        }
        if let Some(node) = endpoint["nodeName"].as_str() {
            problems.form(&path, "nodeName", node, dns1123_subdomain(node, false));
        }
    }
}

fn validate_ports(slice: &Value, problems: &mut Problems) {
    let path = Path::new("ports");
    let ports = slice.list("ports");
    if ports.len() > PORTS {
        return problems.extend([FieldError::too_many(&path, ports.len(), PORTS)]);
    }
    let mut names = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            problems.form(&path, "name", name, dns1123_label(name, false));
        }
        if names.contains(&name) {
            problems.duplicate(&path, "name", name);
        }
        names.push(name);
        problems.one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"]);
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("AddressType", "The kind of address that every endpoint has."),
    print::text("Ports", "The first ports."),
    print::text("Endpoints", "The first addresses."),
    AGE,
];
