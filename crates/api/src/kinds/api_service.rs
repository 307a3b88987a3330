//! APIService: a group and version that another server serves.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Subresource, Value};

pub static API_SERVICE: Resource = Resource::cluster(
    "apiregistration.k8s.io",
    "v1",
    "APIService",
    "apiservices",
    "apiservice",
)
.in_categories(&["api-extensions"])
.stored_at("apiregistration.k8s.io/apiservices")
.with_subresources(&[Subresource::STATUS])
.with_rules(&ApiServiceRules);

struct ApiServiceRules;

impl Rules for ApiServiceRules {
    fn default(&self, service: &mut Value) {
        if let Some(reference) = service.ensure("spec").child_mut("service") {
            reference.fill("port", 443);
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, service: &Value, now: i64) -> Vec<Value> {
        let reference = &service["spec"]["service"];
        let server = match reference.is_object() {
            true => format!("{}/{}", reference.text("namespace"), reference.text("name")),
            false => "Local".to_owned(),
        };
        let conditions = service["status"].list("conditions");
        let available = conditions
            .iter()
            .find(|condition| condition.text("type") == "Available");
        let state = match available.map(|condition| (condition.text("status"), condition.text("reason"))) {
            Some((status, "")) | Some((status @ "True", _)) => status.to_owned(),
            Some((status, reason)) => format!("{status} ({reason})"),
            None => "Unknown".to_owned(),
        };
        vec![
            print::name(service),
            server.into(),
            state.into(),
            print::age(service, now),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Service", "The service in front of the other server."),
    print::text("Available", "Whether that server answers."),
    AGE,
];
