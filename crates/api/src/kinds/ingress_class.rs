//! IngressClass: which controller serves an ingress.

use super::storage_class::name_with_default;
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
            parameters.fill("scope", "Cluster");
        }
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&class["spec"], Path::new("spec"));
        let controller = spec.text("controller");
        if controller.is_empty() {
            problems.required(&path, "controller", "");
        } else if !controller
            .split_once('/')
            .is_some_and(|(domain, rest)| !domain.is_empty() && !rest.is_empty())
        {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            problems.invalid(&path, "controller", controller, detail);
        }
        if spec.has("parameters") {
            let (parameters, path) = (&spec["parameters"], path.child("parameters"));
            problems.needs(parameters, &path, "kind");
            problems.needs(parameters, &path, "name");
            problems.one_of(parameters, &path, "scope", &["Cluster", "Namespace"]);
            match (parameters.text("scope"), parameters.text("namespace")) {
                ("Namespace", "") => {
                    problems.required(&path, "namespace", "`parameters.scope` is set to 'Namespace'");
                }
                ("Cluster", namespace) if !namespace.is_empty() => {
                    problems.forbidden(&path, "namespace", "`parameters.scope` is set to 'Cluster'");
                }
                _ => {}
            }
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(&new["spec"], &old["spec"], &Path::new("spec"), "controller");
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

const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Controller", "Who serves ingresses of this class."),
    print::text("Parameters", "The object with the controller's settings."),
    AGE,
];
