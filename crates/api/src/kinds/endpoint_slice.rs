//! EndpointSlice: some of the addresses behind a Service.

use std::collections::HashSet;

use crate::names::{dns1123_label, dns1123_subdomain, ip_address, label_key, label_value, special_address};
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
            port.fill_absent("protocol", "TCP");
        }
    }

    /// What version 1 has no field for has no place in a new slice.
    fn prepare_create(&self, slice: &mut Value) {
        for endpoint in slice.list_mut("endpoints") {
            endpoint.remove("deprecatedTopology");
        }
    }

    fn validate(&self, slice: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.one_of(slice, &Path::default(), "addressType", &["FQDN", "IPv4", "IPv6"]);
        validate_ports(slice, &mut problems);
        problems.into_vec()
    }

    fn validate_create(&self, slice: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        validate_endpoints(slice, slice.text("addressType"), &mut problems);
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(new, old, &Path::default(), "addressType");
        // Addresses that were good enough stay so.
        if new["endpoints"] != old["endpoints"] {
            validate_endpoints(new, new.text("addressType"), &mut problems);
        }
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::SpecAndLabels
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

    fn warnings(&self, slice: &Value) -> Vec<String> {
        match slice.text("addressType") {
            "FQDN" => vec!["spec.addressType: FQDN endpoints are deprecated".to_owned()],
            _ => Vec::new(),
        }
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

fn validate_endpoints(slice: &Value, kind: &str, problems: &mut Problems) {
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
            match kind {
                "FQDN" => problems.form(&path, "", address, dns1123_subdomain(address, false)),
                "IPv4" | "IPv6" => validate_address(address, kind, (&list, &path), problems),
                _ => {}
            }
        }
        if let Some(name) = endpoint["hostname"].as_str() {
            problems.form(&path, "hostname", name, dns1123_label(name, false));
        }
        if let Some(node) = endpoint["nodeName"].as_str() {
            problems.form(&path, "nodeName", node, dns1123_subdomain(node, false));
        }
        validate_hints(&endpoint["hints"], &path.child("hints"), problems);
    }
}

/// An address of a family. What is not written as an address is told nothing more about.
fn validate_address(address: &str, family: &str, (list, path): (&Path, &Path), problems: &mut Problems) {
    let form = ip_address(address);
    if !form.is_empty() {
        return problems.form(path, "", address, form);
    }
    // Newer than other kinds, it takes an address in one notation alone.
    if let Ok(parsed) = address.parse::<std::net::Ipv6Addr>()
        && parsed.to_string() != address
        && family == "IPv6"
    {
        let detail = format!("must be in canonical form (\"{parsed}\")");
        return problems.invalid(path, "", address, detail);
    }
    if address.contains(':') != (family == "IPv6") {
        problems.invalid(list, "", address, format!("must be an {family} address"));
    }
    problems.form(path, "", address, special_address(address));
}

/// Zones and nodes that an endpoint is meant for, each once.
fn validate_hints(hints: &Value, path: &Path, problems: &mut Problems) {
    for list in ["forZones", "forNodes"] {
        let mut seen = HashSet::new();
        for (index, hint) in hints.list(list).iter().enumerate() {
            let (path, name) = (path.child(list).index(index), hint.text("name"));
            if !seen.insert(name) {
                problems.duplicate(&path, "name", name);
            }
            let found = match list {
                "forZones" => label_value(name),
                _ => dns1123_subdomain(name, false),
            };
            problems.form(&path, "name", name, found);
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
        problems.optional_one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"]);
        if let Some(protocol) = port["appProtocol"].as_str() {
            problems.form(&path, "appProtocol", protocol, label_key(protocol));
        }
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("AddressType", "The kind of address that every endpoint has."),
    print::text("Ports", "The first ports."),
    print::text("Endpoints", "The first addresses."),
    AGE,
];
