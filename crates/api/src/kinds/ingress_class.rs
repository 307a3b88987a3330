//! IngressClass: which controller serves an ingress.

use super::storage_class::name_with_default;
use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Value};

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
