//! How `kubectl get services` sums up a service.

use crate::print::{self, AGE, NAME, SELECTOR};
use crate::{Column, Fields, Value};

pub const COLUMNS: &[Column] = &[
    NAME,
    print::text("Type", "How the service is exposed."),
    print::text("Cluster-IP", "Its address inside the cluster."),
    print::text("External-IP", "Its addresses outside the cluster."),
    print::text("Port(s)", "Its ports, with their node ports."),
    AGE,
    SELECTOR,
];

pub fn cells(service: &Value, now: i64) -> Vec<Value> {
    let spec = &service["spec"];
    let address = spec
        .list("clusterIPs")
        .first()
        .and_then(Value::as_str)
        .unwrap_or_default();
    vec![
        print::name(service),
        spec.text("type").into(),
        print::or_none(address),
        external_address(service).into(),
        print::or_none(ports(spec)),
        print::age(service, now),
        print::labels(&spec["selector"]),
    ]
}

fn external_address(service: &Value) -> String {
    let spec = &service["spec"];
    let given = spec.list("externalIPs").iter().filter_map(Value::as_str);
    match spec.text("type") {
        "ClusterIP" | "NodePort" => some_or(given.collect(), "<none>"),
        "LoadBalancer" => {
            let mut balancers: Vec<&str> = service["status"]["loadBalancer"]
                .list("ingress")
                .iter()
                .map(|ingress| match ingress.text("ip") {
                    "" => ingress.text("hostname"),
                    ip => ip,
                })
                .filter(|address| !address.is_empty())
                .collect();
            balancers.sort_unstable();
            balancers.dedup();
            some_or(balancers.into_iter().chain(given).collect(), "<pending>")
        }
        "ExternalName" => spec.text("externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn some_or(addresses: Vec<&str>, none: &str) -> String {
    if addresses.is_empty() {
        none.to_owned()
    } else {
        addresses.join(",")
    }
}

fn ports(spec: &Value) -> String {
    let ports: Vec<String> = spec
        .list("ports")
        .iter()
        .map(|port| match port.number("nodePort") {
            0 => format!("{}/{}", port.number("port"), port.text("protocol")),
            node_port => format!("{}:{node_port}/{}", port.number("port"), port.text("protocol")),
        })
        .collect();
    ports.join(",")
}
