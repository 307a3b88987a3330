//! Configurations of admission webhooks.

use api::Value;
use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::mutating_webhook_configuration::MUTATING_WEBHOOK_CONFIGURATION;
use api::kinds::service::SERVICE;
use api::kinds::validating_webhook_configuration::VALIDATING_WEBHOOK_CONFIGURATION;

use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::{Finding, Reference, Severity};
use crate::why::look::Look;
use crate::why::table::Kind;

pub static MUTATING: Kind = Kind {
    resource: &MUTATING_WEBHOOK_CONFIGURATION,
    reads: &[&SERVICE, &ENDPOINT_SLICE],
    state,
    checks: &[server_is_not_there],
};

pub static VALIDATING: Kind = Kind {
    resource: &VALIDATING_WEBHOOK_CONFIGURATION,
    reads: &[&SERVICE, &ENDPOINT_SLICE],
    state,
    checks: &[server_is_not_there],
};

fn state(facts: &Facts, configuration: &Value) -> State {
    match server_is_not_there(facts, configuration).is_empty() {
        true => State::Healthy("all Services of its webhooks have endpoints.".to_owned()),
        false => State::Unhealthy("one of its webhooks cannot be called.".to_owned()),
    }
}

fn server_is_not_there(facts: &Facts, configuration: &Value) -> Vec<Finding> {
    let webhooks = configuration.items("webhooks").iter();
    webhooks.filter_map(|webhook| silent(facts, webhook)).collect()
}

fn silent(facts: &Facts, webhook: &Value) -> Option<Finding> {
    let service = webhook.at("clientConfig.service");
    // Services of other namespaces were not read unless all were.
    if service.is_null() || !facts.knows_all(&SERVICE) || !facts.knows_all(&ENDPOINT_SLICE) {
        return None;
    }
    let (namespace, name) = (service.str("namespace"), service.str("name"));
    let found = facts.find(&SERVICE, namespace, name);
    let problem = match found {
        None => format!("Service {namespace}/{name} does not exist"),
        Some(_) if !has_endpoint(facts, namespace, name) => {
            format!("Service {namespace}/{name} has no ready endpoints")
        }
        Some(_) => return None,
    };
    let is_fatal = webhook.str("failurePolicy") != "Ignore";
    let severity = if is_fatal { Severity::Cluster } else { Severity::Waiting };
    let finding = Finding::new(
        severity,
        "webhook-unreachable",
        format!("Webhook \"{}\" cannot be called: {problem}.", webhook.str("name")),
    );
    let finding = match is_fatal {
        true => finding.detail(format!("failurePolicy is Fail, so {} is rejected.", rules(webhook))),
        false => finding.detail(format!(
            "failurePolicy is Ignore, so {} is not checked.",
            rules(webhook)
        )),
    };
    let finding = match found {
        Some(service) => finding.because_of(Reference::of(&SERVICE, service)),
        None => finding,
    };
    Some(finding.next("Fix the server, set failurePolicy: Ignore, or delete the configuration."))
}

fn has_endpoint(facts: &Facts, namespace: &str, name: &str) -> bool {
    let mut slices = facts.list_in(&ENDPOINT_SLICE, namespace).filter(|slice| {
        let service = slice.at("metadata.labels").get("kubernetes.io/service-name");
        service.and_then(Value::as_str) == Some(name)
    });
    let is_ready = |endpoint: &Value| endpoint.at("conditions.ready").as_bool().unwrap_or(true);
    slices.any(|slice| slice.items("endpoints").iter().any(is_ready))
}

/// What a webhook is asked about.
fn rules(webhook: &Value) -> String {
    let rules = webhook.items("rules").iter().map(|rule| {
        let operations = rule.texts("operations").join("/");
        format!("{operations} of {}", rule.texts("resources").join(", "))
    });
    let rules: Vec<String> = rules.collect();
    match rules.is_empty() {
        true => "nothing".to_owned(),
        false => rules.join(" and "),
    }
}
