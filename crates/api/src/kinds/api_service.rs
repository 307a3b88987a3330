//! APIService: a group and version that another server serves.

use crate::names::{dns1035_label, dns1123_subdomain, path_segment};
use crate::print::{self, AGE, NAME};
use crate::webhook_client::validate_port;
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
.requiring_revision()
.with_unqualified_finalizers()
.resetting_on_status_update(&[&["spec"], &["metadata"]])
.with_rules(&ApiServiceRules);

struct ApiServiceRules;

impl Rules for ApiServiceRules {
    fn default(&self, service: &mut Value) {
        if let Some(reference) = service.ensure("spec").child_mut("service") {
            reference.fill_absent("port", 443);
        }
    }

    fn validate(&self, service: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&service["spec"], Path::new("spec"));
        let expected = format!("{}.{}", spec.text("version"), spec.text("group"));
        validate_expected_name(service, &expected, &mut problems);
        match (spec.text("group"), spec.text("version")) {
            ("", "v1") => {}
            ("", _) => {
                let detail = "only v1 may have an empty group and it better be legacy kube";
                problems.required(&path, "group", detail);
            }
            (group, _) => problems.form(&path, "group", group, dns1123_subdomain(group, false)),
        }
        let version = spec.text("version");
        problems.form(&path, "version", version, dns1035_label(version, false));
        for (field, most) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
            let number = spec.number(field);
            if !(1..=most).contains(&number) {
                let detail = format!("must be positive and less than {most}");
                problems.invalid(&path, field, number, detail);
            }
        }
        validate_server(spec, &path, &mut problems);
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("status").child("conditions");
        for (index, condition) in new["status"].list("conditions").iter().enumerate() {
            let states = ["True", "False", "Unknown"];
            problems.optional_one_of(condition, &path.index(index), "status", &states);
        }
        problems.into_vec()
    }

    /// The rest follows from the spec.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        path_segment(name, prefix)
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

/// The name says which group and version it is about; one that is no name at all has been told so already.
fn validate_expected_name(service: &Value, expected: &str, problems: &mut Problems) {
    let metadata = &service["metadata"];
    for field in ["generateName", "name"] {
        let name = metadata.text(field);
        if name != expected && !name.is_empty() && path_segment(name, false).is_empty() {
            let detail = format!("must be `spec.version+\".\"+spec.group`: {expected:?}");
            problems.invalid(&Path::new("metadata"), field, name, detail);
        }
    }
}

/// The server behind a service is trusted in one of two ways, this server itself in none.
fn validate_server(spec: &Value, path: &Path, problems: &mut Problems) {
    let (bundle, insecure) = (spec.text("caBundle"), spec.flag("insecureSkipTLSVerify"));
    if spec.has("service") {
        for field in ["namespace", "name"] {
            problems.needs(&spec["service"], &path.child("service"), field);
        }
        validate_port(&spec["service"], &path.child("service"), problems);
        if insecure && !bundle.is_empty() {
            let detail = "may not be true if caBundle is present";
            problems.invalid(path, "insecureSkipTLSVerify", true, detail);
        }
        return;
    }
    if !bundle.is_empty() {
        let shown = format!("{} bytes", base64_bytes(bundle));
        problems.invalid(path, "caBundle", shown, "local APIServices may not have a caBundle");
    }
    if insecure {
        let detail = "local APIServices may not have insecureSkipTLSVerify";
        problems.invalid(path, "insecureSkipTLSVerify", true, detail);
    }
}

fn base64_bytes(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Service", "The service in front of the other server."),
    print::text("Available", "Whether that server answers."),
    AGE,
];

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(name: &str, spec: Value, expect: Expect) {
        let mut service = json!({"metadata": {"name": name}, "spec": spec});
        service["spec"]["groupPriorityMinimum"] = 1.into();
        service["spec"]["versionPriority"] = 1.into();
        let found = ApiServiceRules.validate(&service);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        expect.assert_eq(&found.join("\n"));
    }

    #[test]
    fn the_name_is_the_version_and_the_group() {
        check("v1.", json!({"version": "v1", "group": ""}), expect![""]);
        check("v2.a.b", json!({"version": "v2", "group": "a.b"}), expect![""]);
        check(
            "v2.",
            json!({"version": "v2", "group": ""}),
            expect!["spec.group: Required value: only v1 may have an empty group and it better be legacy kube"],
        );
        check(
            "other",
            json!({"version": "v1", "group": "a.b"}),
            expect![[r#"metadata.name: Invalid value: "other": must be `spec.version+"."+spec.group`: "v1.a.b""#]],
        );
    }

    #[test]
    fn the_server_itself_needs_no_trust() {
        check(
            "v1.a.b",
            json!({"version": "v1", "group": "a.b", "caBundle": "YWJj", "insecureSkipTLSVerify": true}),
            expect![[r#"
                spec.caBundle: Invalid value: "3 bytes": local APIServices may not have a caBundle
                spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify"#]],
        );
    }
}
