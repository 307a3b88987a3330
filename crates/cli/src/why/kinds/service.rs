//! Services.

use api::Value;
use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::network_policy::NETWORK_POLICY;
use api::kinds::pod::POD;
use api::kinds::service::SERVICE;

use super::network_policy;
use crate::why::State;
use crate::why::facts::{Facts, map_selector, selector, selects};
use crate::why::finding::{Finding, Reference};
use crate::why::look::{self, Look};
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &SERVICE,
    reads: &[&POD, &ENDPOINT_SLICE, &NETWORK_POLICY],
    state,
    checks: &[
        selects_nothing,
        no_pod_is_ready,
        named_port_is_missing,
        port_is_not_declared,
        has_no_selector,
        policy_shuts_it,
        load_balancer_is_pending,
    ],
};

fn is_external(service: &Value) -> bool {
    service.str("spec.type") == "ExternalName"
}

fn state(facts: &Facts, service: &Value) -> State {
    if is_external(service) {
        return State::Healthy(format!("it is an alias for {}.", service.str("spec.externalName")));
    }
    if wants_address(service) {
        return State::Unhealthy("its load balancer has no address.".to_owned());
    }
    match ready_endpoints(facts, service) {
        0 => State::Unhealthy("0 ready endpoints.".to_owned()),
        number => State::Healthy(format!("{}.", look::count(number, "ready endpoint"))),
    }
}

fn ready_endpoints(facts: &Facts, service: &Value) -> usize {
    let slices = facts.list_in(&ENDPOINT_SLICE, service.namespace()).filter(|slice| {
        let name = slice.at("metadata.labels").get("kubernetes.io/service-name");
        name.and_then(Value::as_str) == Some(service.name())
    });
    let is_ready = |endpoint: &&Value| endpoint.at("conditions.ready").as_bool().unwrap_or(true);
    slices
        .map(
            |slice| match slice.items("ports").is_empty() && !service.items("spec.ports").is_empty() {
                // A slice without ports leads nowhere.
                true => 0,
                false => slice.items("endpoints").iter().filter(is_ready).count(),
            },
        )
        .sum()
}

/// The pods that it selects, those that have ended left out.
fn selected<'a>(facts: &'a Facts, service: &'a Value) -> Vec<&'a Value> {
    let selector = map_selector(service, "spec.selector");
    if selector.is_empty() || is_external(service) {
        return Vec::new();
    }
    let pods = facts.list_in(&POD, service.namespace());
    pods.filter(|pod| {
        let has_ended = matches!(pod.str("status.phase"), "Succeeded" | "Failed");
        !has_ended && selects(&selector, pod)
    })
    .collect()
}

fn selects_nothing(facts: &Facts, service: &Value) -> Vec<Finding> {
    let wanted = service.pairs("spec.selector");
    let is_empty = wanted.is_empty() || is_external(service) || !facts.knows(&POD);
    if is_empty || !selected(facts, service).is_empty() {
        return Vec::new();
    }
    let finding = Finding::broken(
        "selects-nothing",
        format!(
            "spec.selector {} matches no pod in the namespace.",
            look::labels(&wanted)
        ),
    );
    let finding = match nearest(facts, service, &wanted) {
        Some((pod, lines)) => finding.detail(format!("Closest match is {pod}:")).details(lines),
        None => finding.detail("No pod has any of these labels."),
    };
    vec![finding.next(format!(
        "Correct spec.selector or the labels of the pods: kubectl -n {} get pods --show-labels",
        service.namespace()
    ))]
}

/// The pod that differs in the fewest labels, and in which.
fn nearest(facts: &Facts, service: &Value, wanted: &[(&str, &str)]) -> Option<(String, Vec<String>)> {
    let label = |pod: &Value, key: &str| {
        pod.at("metadata.labels")
            .get(key)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let fits = |pod: &Value| {
        wanted
            .iter()
            .filter(|(key, value)| label(pod, key).as_deref() == Some(value))
            .count()
    };
    let has_keys = |pod: &Value| wanted.iter().filter(|(key, _)| label(pod, key).is_some()).count();
    let pods = facts.list_in(&POD, service.namespace());
    let best = pods.max_by_key(|pod| (fits(pod), has_keys(pod), std::cmp::Reverse(pod.name().to_owned())))?;
    if has_keys(best) == 0 {
        return None;
    }
    let wrong = wanted
        .iter()
        .filter(|(key, value)| label(best, key).as_deref() != Some(value));
    let lines = wrong.map(|(key, value)| match label(best, key) {
        Some(found) => format!("  it has {key}={found}, the selector requires {key}={value}"),
        None => format!("  it has no label {key}, the selector requires {key}={value}"),
    });
    Some((format!("pod/{}", best.name()), lines.collect()))
}

fn no_pod_is_ready(facts: &Facts, service: &Value) -> Vec<Finding> {
    let pods = selected(facts, service);
    let is_ready = |pod: &&&Value| pod.condition_is("Ready", "True").is_some();
    let unready = pods.iter().find(|pod| !is_ready(pod));
    let Some(unready) =
        unready.filter(|_| !pods.iter().any(|pod| is_ready(&pod)) && !service.yes("spec.publishNotReadyAddresses"))
    else {
        return Vec::new();
    };
    let number = pods.len();
    let message = match number {
        1 => "The only selected pod is not Ready.".to_owned(),
        number => format!("None of the {number} selected pods is Ready."),
    };
    vec![Finding::broken("no-ready-pod", message).because_of(Reference::of(&POD, unready))]
}

fn container_ports(pods: &[&Value]) -> Vec<(String, i64)> {
    let containers = pods.iter().flat_map(|pod| {
        let sidecars = pod.items("spec.initContainers").iter();
        pod.items("spec.containers").iter().chain(sidecars)
    });
    let mut ports: Vec<(String, i64)> = containers
        .flat_map(|container| container.items("ports"))
        .map(|port| (port.str("name").to_owned(), port.int("containerPort")))
        .collect();
    ports.sort();
    ports.dedup();
    ports
}

fn named_port_is_missing(facts: &Facts, service: &Value) -> Vec<Finding> {
    let pods = selected(facts, service);
    if pods.is_empty() {
        return Vec::new();
    }
    let declared = container_ports(&pods);
    let names: Vec<&str> = declared
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    let ports = service.items("spec.ports").iter();
    ports
        .filter_map(|port| {
            let target = port.at("targetPort").as_str()?;
            (!names.contains(&target)).then(|| {
                let has = match names.is_empty() {
                    true => "no named ports".to_owned(),
                    false => format!("named ports: {}", names.join(", ")),
                };
                Finding::broken(
                    "named-port-missing",
                    format!(
                        "Port {} has targetPort \"{target}\", but its pods have no port with this name.",
                        port.int("port")
                    ),
                )
                .detail(format!("The containers have {has}."))
                .next("Correct targetPort, or add a port with this name to the containers.")
            })
        })
        .collect()
}

/// Ports need not be declared, so this is a hint only.
fn port_is_not_declared(facts: &Facts, service: &Value) -> Vec<Finding> {
    let pods = selected(facts, service);
    let declared: Vec<i64> = container_ports(&pods).into_iter().map(|(_, port)| port).collect();
    if declared.is_empty() || service.str("spec.clusterIP") == "None" {
        return Vec::new();
    }
    let ports = service.items("spec.ports").iter();
    let undeclared = ports.filter_map(|port| {
        let target = port.at("targetPort").as_i64()?;
        (!declared.contains(&target)).then_some((port.int("port"), target))
    });
    let declared: Vec<String> = declared.iter().map(i64::to_string).collect();
    undeclared
        .map(|(port, target)| {
            Finding::waiting(
                "port-not-declared",
                format!(
                    "Port {port} has targetPort {target}, but the containers declare {}.",
                    declared.join(", ")
                ),
            )
            .next(format!("If no container listens on port {target}, correct targetPort."))
        })
        .collect()
}

fn has_no_selector(facts: &Facts, service: &Value) -> Vec<Finding> {
    let has_selector = !service.pairs("spec.selector").is_empty();
    if has_selector || is_external(service) || ready_endpoints(facts, service) > 0 || !facts.knows(&ENDPOINT_SLICE) {
        return Vec::new();
    }
    vec![
        Finding::broken("no-selector", "It has no selector, and no EndpointSlice exists for it.").next(format!(
            "Set spec.selector, or create an EndpointSlice with the label kubernetes.io/service-name={}.",
            service.name()
        )),
    ]
}

fn policy_shuts_it(facts: &Facts, service: &Value) -> Vec<Finding> {
    let pods = selected(facts, service);
    let Some(pod) = pods.first() else {
        return Vec::new();
    };
    let policies = facts.list_in(&NETWORK_POLICY, service.namespace());
    let isolating: Vec<&Value> = policies
        .filter(|policy| {
            policy.texts("spec.policyTypes").contains(&"Ingress") && selects(&selector(policy, "spec.podSelector"), pod)
        })
        .collect();
    if isolating.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = isolating.iter().map(|policy| policy.name()).collect();
    let ports = service.items("spec.ports").iter();
    ports
        .filter_map(|port| {
            let target = network_policy::resolve_port(port.at("targetPort"), pod)?;
            let allows = |rule: &&Value| network_policy::rule_allows_port(rule, target, port.str("protocol"), pod);
            let rules: Vec<&Value> = isolating
                .iter()
                .flat_map(|policy| policy.items("spec.ingress"))
                .filter(allows)
                .collect();
            if rules.is_empty() {
                return Some(
                    Finding::broken(
                        "policy-drops",
                        format!(
                            "NetworkPolicies block all traffic to port {target} of its pods: {}.",
                            names.join(", ")
                        ),
                    )
                    .next(format!("Allow the port in spec.ingress of NetworkPolicy {}.", names[0])),
                );
            }
            let is_open = rules.iter().any(|rule| rule.items("from").is_empty());
            (!is_open).then(|| {
                Finding::note(
                    "policy-limits",
                    format!(
                        "NetworkPolicies restrict traffic to port {target} of its pods: {}.",
                        names.join(", ")
                    ),
                )
                .details(
                    rules
                        .iter()
                        .map(|rule| format!("Allowed: {}.", network_policy::rule_text(rule, "Ingress"))),
                )
            })
        })
        .collect()
}

fn wants_address(service: &Value) -> bool {
    service.str("spec.type") == "LoadBalancer" && service.items("status.loadBalancer.ingress").is_empty()
}

fn load_balancer_is_pending(facts: &Facts, service: &Value) -> Vec<Finding> {
    if !wants_address(service) {
        return Vec::new();
    }
    let class = service.str("spec.loadBalancerClass");
    let who = match class {
        "" => "No controller".to_owned(),
        class => format!("No controller of loadBalancerClass \"{class}\""),
    };
    let finding = Finding::broken(
        "load-balancer-pending",
        format!("Its type is LoadBalancer. {who} has assigned an address."),
    );
    let told = facts
        .events(&SERVICE, service)
        .find(|event| event.str("type") == "Warning");
    let finding = match told {
        Some(event) => finding.detail(event.str("message")),
        None => finding.detail("There are no events from a load balancer controller, so probably none is installed."),
    };
    let ports = service
        .items("spec.ports")
        .iter()
        .map(|port| port.int("nodePort"))
        .filter(|port| *port != 0);
    let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
    let finding = match ports.is_empty() {
        true => finding,
        false => finding.next(format!(
            "Until then, it is reachable on port {} of every node.",
            ports.join(", ")
        )),
    };
    vec![finding.next("Install a load balancer controller, such as MetalLB, or use type NodePort.")]
}
