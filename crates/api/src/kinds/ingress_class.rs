//! IngressClass: which controller serves an ingress.

use super::storage_class::name_with_default;
use crate::names::{dns1123_label, dns1123_subdomain, domain_prefixed_path, path_segment};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Value};

pub static INGRESS_CLASS: Resource = Resource::cluster(
    "networking.k8s.io",
    "v1",
    "IngressClass",
    "ingressclasses",
    "ingressclass",
)
.with_rules(&IngressClassRules);

struct IngressClassRules;

impl Rules for IngressClassRules {
    fn default(&self, class: &mut Value) {
        if let Some(parameters) = class.child_mut("spec").and_then(|spec| spec.child_mut("parameters")) {
            parameters.fill_absent("scope", "Cluster");
        }
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&class["spec"], Path::new("spec"));
        validate_controller(spec.text("controller"), &path, &mut problems);
        if spec.has("parameters") {
            validate_parameters(&spec["parameters"], &path.child("parameters"), &mut problems);
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if new["spec"].text("controller") != old["spec"].text("controller") {
            let controller = new["spec"].text("controller");
            problems.invalid(&Path::new("spec"), "controller", controller, "field is immutable");
        }
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, class: &Value, now: i64) -> Vec<Value> {
        let spec = &class["spec"];
        let parameters = &spec["parameters"];
        let shown = match (parameters.is_object(), parameters.text("apiGroup")) {
            (false, _) => "<none>".to_owned(),
            (true, "") => format!("{}/{}", parameters.text("kind"), parameters.text("name")),
            (true, group) => format!("{}.{group}/{}", parameters.text("kind"), parameters.text("name")),
        };
        let is_default = class["metadata"]["annotations"].text(DEFAULT_ANNOTATION) == "true";
        vec![
            name_with_default(class, is_default),
            spec.text("controller").into(),
            shown.into(),
            print::age(class, now),
        ]
    }
}

/// A controller is named by a path below a domain; upstream shows the part that is wrong.
fn validate_controller(controller: &str, path: &Path, problems: &mut Problems) {
    if controller.is_empty() {
        return problems.required(path, "controller", "");
    }
    let (domain, rest) = match controller.split_once('/') {
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => (domain, rest),
        _ => (controller, controller),
    };
    for problem in domain_prefixed_path(controller) {
        let part = if problem.starts_with("Invalid path") {
            rest
        } else {
            domain
        };
        problems.invalid(path, "controller", part, problem);
    }
}

fn validate_parameters(parameters: &Value, path: &Path, problems: &mut Problems) {
    if let Some(group) = parameters["apiGroup"].as_str() {
        problems.form(path, "apiGroup", group, dns1123_subdomain(group, false));
    }
    for field in ["kind", "name"] {
        if problems.needs(parameters, path, field) {
            let text = parameters.text(field);
            problems.form(path, field, text, path_segment(text, false));
        }
    }
    if !parameters.has("scope") {
        return problems.required(path, "scope", "");
    }
    problems.optional_one_of(parameters, path, "scope", &["Cluster", "Namespace"]);
    let namespace = parameters["namespace"].as_str();
    match (parameters.text("scope"), namespace) {
        ("Namespace", None) => problems.required(path, "namespace", "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", Some(namespace)) => {
            problems.form(path, "namespace", namespace, dns1123_label(namespace, false));
        }
        ("Cluster", Some(_)) => problems.forbidden(path, "namespace", "`parameters.scope` is set to 'Cluster'"),
        _ => {}
    }
}

const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Controller", "Who serves ingresses of this class."),
    print::text("Parameters", "The object with the controller's settings."),
    AGE,
];

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_where_their_scope_says() {
        let found = |parameters: Value| {
            let class = json!({"spec": {"controller": "example.com/x", "parameters": parameters}});
            let found = IngressClassRules.validate(&class);
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(found(json!({"kind": "K", "name": "n", "scope": "Cluster"})), "");
        expect!["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"]
            .assert_eq(&found(json!({"kind": "K", "name": "n", "scope": "Namespace"})));
        expect!["spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"].assert_eq(&found(
            json!({"kind": "K", "name": "n", "scope": "Cluster", "namespace": "x"}),
        ));
    }
}
