//! Endpoints: the addresses behind a Service, in the form that EndpointSlice replaced.

use crate::names::{dns1123_label, dns1123_subdomain, endpoint_address, is_address, label_key, port_number};
use crate::print::{self, AGE, NAME};
use crate::warnings;
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static ENDPOINTS: Resource = Resource::namespaced("", "v1", "Endpoints", "endpoints", "endpoints")
    .short(&["ep"])
    .stored_at("services/endpoints")
    .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
    .with_rules(&EndpointsRules);

struct EndpointsRules;

impl Rules for EndpointsRules {
    fn default(&self, endpoints: &mut Value) {
        for subset in endpoints.list_mut("subsets") {
            for port in subset.list_mut("ports") {
                port.fill("protocol", "TCP");
            }
        }
    }

    fn validate(&self, endpoints: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for (index, subset) in endpoints.list("subsets").iter().enumerate() {
            validate_subset(subset, &Path::new("subsets").index(index), &mut problems);
        }
        problems.into_vec()
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, endpoints: &Value, now: i64) -> Vec<Value> {
        let addresses = print::at_most_three(&addresses(endpoints), "");
        let shown = if endpoints.list("subsets").is_empty() {
            "<none>".to_owned()
        } else {
            addresses
        };
        vec![print::name(endpoints), shown.into(), print::age(endpoints, now)]
    }

    fn warnings(&self, endpoints: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        for (at, subset) in endpoints.list("subsets").iter().enumerate() {
            for list in ["addresses", "notReadyAddresses"] {
                for (index, address) in subset.list(list).iter().enumerate() {
                    let place = Path::new("subsets").index(at).child(list).index(index).child("ip");
                    warnings.extend(warnings::of_address(address.text("ip"), &place));
                }
            }
        }
        warnings
    }
}

/// Every ready address with every port.
fn addresses(endpoints: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for subset in endpoints.list("subsets") {
        let ips = || subset.list("addresses").iter().map(|address| address.text("ip"));
        if subset.list("ports").is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for port in subset.list("ports") {
            all.extend(ips().map(|ip| join(ip, port.number("port"))));
        }
    }
    all
}

fn join(ip: &str, port: i64) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

fn validate_subset(subset: &Value, path: &Path, problems: &mut Problems) {
    if subset.list("addresses").is_empty() && subset.list("notReadyAddresses").is_empty() {
        problems.required(path, "", "must specify `addresses` or `notReadyAddresses`");
    }
    for list in ["addresses", "notReadyAddresses"] {
        for (index, address) in subset.list(list).iter().enumerate() {
            let ip = address.text("ip");
            let path = path.child(list).index(index);
            problems.form(&path, "ip", ip, endpoint_address(ip));
            if !is_address(ip) {
                problems.invalid(&path, "ip", ip, "must be a valid IP address");
            }
            let host = address.text("hostname");
            if !host.is_empty() {
                problems.form(&path, "hostname", host, dns1123_label(host, false));
            }
            if let Some(node) = address["nodeName"].as_str() {
                problems.form(&path, "nodeName", node, dns1123_subdomain(node, false));
            }
        }
    }
    for (index, port) in subset.list("ports").iter().enumerate() {
        let path = path.child("ports").index(index);
        match port.text("name") {
            "" if subset.list("ports").len() > 1 => problems.required(&path, "name", ""),
            "" => {}
            name => problems.form(&path, "name", name, dns1123_label(name, false)),
        }
        problems.form(&path, "port", port.number("port"), port_number(port.number("port")));
        problems.one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"]);
        if let Some(protocol) = port["appProtocol"].as_str() {
            problems.form(&path, "appProtocol", protocol, label_key(protocol));
        }
    }
}

const COLUMNS: &[Column] = &[NAME, print::text("Endpoints", "The first ready addresses."), AGE];
