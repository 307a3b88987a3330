//! APIService: a group and version that another server serves.

use crate::names::dns1123_subdomain;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value};

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

    fn validate(&self, service: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&service["spec"], Path::new("spec"));
        let expected = format!("{}.{}", spec.text("version"), spec.text("group"));
        let name = service["metadata"].text("name");
        if name != expected {
            let detail = format!("must be `spec.version+\".\"+spec.group`: {expected:?}");
            problems.invalid(&Path::new("metadata"), "name", name, detail);
        }
        for (field, most) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
            let number = spec.number(field);
            if !(1..=most).contains(&number) {
                let detail = format!("must be positive and less than {most}");
                problems.invalid(&path, field, number, detail);
            }
        }
        if spec.has("service") {
            for field in ["namespace", "name"] {
                problems.needs(&spec["service"], &path.child("service"), field);
            }
        }
        problems.into_vec()
    }

    /// The version of the core group has no domain behind its dot.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        dns1123_subdomain(name.strip_suffix('.').unwrap_or(name), prefix)
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
