//! APIServices.

use api::Value;
use api::kinds::api_service::API_SERVICE;

use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::{Finding, Severity};
use crate::why::look::Look;
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &API_SERVICE,
    reads: &[],
    state,
    checks: &[is_not_available],
};

fn state(_: &Facts, service: &Value) -> State {
    match service.condition_is("Available", "True") {
        Some(_) => State::Healthy("it is available.".to_owned()),
        None => State::Unhealthy("it is not available.".to_owned()),
    }
}

fn is_not_available(_: &Facts, service: &Value) -> Vec<Finding> {
    let Some(condition) = service.condition_is("Available", "False") else {
        return Vec::new();
    };
    let (namespace, name) = (service.str("spec.service.namespace"), service.str("spec.service.name"));
    let finding = Finding::new(
        Severity::Cluster,
        "api-not-available",
        format!(
            "The API {}/{} is unavailable ({}). This breaks API discovery, kubectl and the deletion of namespaces.",
            service.str("spec.group"),
            service.str("spec.version"),
            condition.str("reason")
        ),
    )
    .detail(condition.str("message"));
    let finding = match name {
        "" => finding,
        name => finding.next(format!("Check its Service: karve why service/{name} -n {namespace}")),
    };
    vec![finding.next(format!(
        "If it is no longer needed: kubectl delete apiservice {}",
        service.name()
    ))]
}
