//! Ingresses.

use api::Value;
use api::kinds::ingress::INGRESS;
use api::kinds::ingress_class::INGRESS_CLASS;
use api::kinds::service::SERVICE;

use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::Look;
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &INGRESS,
    reads: &[&INGRESS_CLASS, &SERVICE],
    state,
    checks: &[class_is_missing, has_no_class, backend_is_missing, nobody_serves_it],
};

fn state(_: &Facts, ingress: &Value) -> State {
    match ingress.items("status.loadBalancer.ingress").is_empty() {
        true => State::Unhealthy("its load balancer has no address.".to_owned()),
        false => State::Healthy("its load balancer has an address.".to_owned()),
    }
}

fn class_is_missing(facts: &Facts, ingress: &Value) -> Vec<Finding> {
    let class = ingress.str("spec.ingressClassName");
    if class.is_empty() || !facts.lacks(&INGRESS_CLASS, "", class) {
        return Vec::new();
    }
    let known: Vec<&str> = facts.list(&INGRESS_CLASS).iter().map(Look::name).collect();
    let known = match known.is_empty() {
        true => "The cluster has no IngressClass, so probably no ingress controller is installed.".to_owned(),
        false => format!("There are: {}.", known.join(", ")),
    };
    vec![
        Finding::broken(
            "ingress-class-missing",
            format!("Its IngressClass \"{class}\" does not exist."),
        )
        .detail(known)
        .next("Install the ingress controller, or correct spec.ingressClassName."),
    ]
}

fn has_no_class(facts: &Facts, ingress: &Value) -> Vec<Finding> {
    let old_way = ingress
        .at("metadata.annotations")
        .get("kubernetes.io/ingress.class")
        .is_some();
    let is_default = |class: &&Value| {
        let value = class
            .at("metadata.annotations")
            .get("ingressclass.kubernetes.io/is-default-class");
        value.and_then(Value::as_str) == Some("true")
    };
    let classes = facts.list(&INGRESS_CLASS);
    let has_class = !ingress.str("spec.ingressClassName").is_empty() || old_way;
    if has_class || !facts.knows(&INGRESS_CLASS) || classes.iter().any(|class| is_default(&class)) {
        return Vec::new();
    }
    vec![
        Finding::broken(
            "ingress-no-class",
            "spec.ingressClassName is not set, and there is no default IngressClass.",
        )
        .next("Set spec.ingressClassName, or install an ingress controller."),
    ]
}

fn backends(ingress: &Value) -> Vec<&Value> {
    let rules = ingress.items("spec.rules").iter();
    let paths = rules.flat_map(|rule| rule.items("http.paths"));
    let mut found: Vec<&Value> = paths.map(|path| path.at("backend.service")).collect();
    found.push(ingress.at("spec.defaultBackend.service"));
    found.retain(|backend| !backend.is_null());
    found
}

fn backend_is_missing(facts: &Facts, ingress: &Value) -> Vec<Finding> {
    if !facts.knows(&SERVICE) {
        return Vec::new();
    }
    let backends = backends(ingress).into_iter();
    backends
        .filter_map(|backend| {
            let name = backend.str("name");
            let Some(service) = facts.find(&SERVICE, ingress.namespace(), name) else {
                return Some(
                    Finding::broken("backend-missing", format!("Backend Service \"{name}\" does not exist."))
                        .next("Create the Service, or correct the backend."),
                );
            };
            let (number, port_name) = (backend.int("port.number"), backend.str("port.name"));
            let ports = service.items("spec.ports");
            let fits = |port: &Value| match port_name {
                "" => port.int("port") == number,
                name => port.str("name") == name,
            };
            let wanted = if port_name.is_empty() {
                number.to_string()
            } else {
                port_name.to_owned()
            };
            let has: Vec<String> = ports.iter().map(|port| port.int("port").to_string()).collect();
            (!ports.iter().any(fits)).then(|| {
                Finding::broken(
                    "backend-port-missing",
                    format!("Backend Service \"{name}\" has no port {wanted}."),
                )
                .detail(format!("Ports of the Service: {}.", has.join(", ")))
                .next("Correct the port of the backend.")
            })
        })
        .collect()
}

fn nobody_serves_it(facts: &Facts, ingress: &Value) -> Vec<Finding> {
    let class = ingress.str("spec.ingressClassName");
    let Some(class) = facts.find(&INGRESS_CLASS, "", class) else {
        return Vec::new();
    };
    if !ingress.items("status.loadBalancer.ingress").is_empty() {
        return Vec::new();
    }
    vec![
        Finding::waiting(
            "ingress-not-served",
            format!(
                "Controller \"{}\" of IngressClass \"{}\" has not assigned an address.",
                class.str("spec.controller"),
                class.name()
            ),
        )
        .next("Check the pods of the ingress controller and their logs."),
    ]
}
