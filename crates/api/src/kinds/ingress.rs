//! Ingress: rules by which requests from outside reach services.

use crate::print::{self, AGE, NAME, or_none};
use crate::{Column, Fields, Generation, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static INGRESS: Resource = Resource::namespaced("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress")
    .short(&["ing"])
    .stored_at("ingress")
    .with_subresources(&[Subresource::STATUS])
    .with_rules(&IngressRules);

struct IngressRules;

impl Rules for IngressRules {
    fn prepare_create(&self, ingress: &mut Value) {
        ingress.set("status", json!({"loadBalancer": {}}));
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, ingress: &Value, now: i64) -> Vec<Value> {
        let spec = &ingress["spec"];
        vec![
            print::name(ingress),
            or_none(spec.text("ingressClassName")),
            hosts(spec).into(),
            addresses(&ingress["status"]).into(),
            if spec.list("tls").is_empty() { "80" } else { "80, 443" }.into(),
            print::age(ingress, now),
        ]
    }
}

fn hosts(spec: &Value) -> String {
    let hosts: Vec<String> = spec
        .list("rules")
        .iter()
        .map(|rule| rule.text("host").to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    print::at_most_three(&hosts, "*")
}

fn addresses(status: &Value) -> String {
    let ingress = status["loadBalancer"].list("ingress").iter();
    let mut addresses: Vec<&str> = ingress
        .map(|point| match point.text("ip") {
            "" => point.text("hostname"),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Class", "The ingress class, which names the controller."),
    print::text("Hosts", "The host names that are routed."),
    print::text("Address", "Where the load balancer listens."),
    print::text("Ports", "The ports it listens on."),
    AGE,
];
