//! PodTemplate: a template on its own.

use crate::pod_spec::{default_template, drop_disabled_in, validate_template};
use crate::print::{self, NAME};
use crate::warnings;
use crate::{Column, FieldError, Generation, Path, Problems, Resource, Rules, Value};

pub static POD_TEMPLATE: Resource = Resource::namespaced("", "v1", "PodTemplate", "podtemplates", "podtemplate")
    .returning_deleted()
    .with_rules(&PodTemplateRules);

struct PodTemplateRules;

impl Rules for PodTemplateRules {
    fn default(&self, template: &mut Value) {
        default_template(template);
    }

    fn prepare_create(&self, template: &mut Value) {
        drop_disabled_in(template, &Value::Null, &["template"]);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled_in(new, old, &["template"]);
    }

    fn validate(&self, template: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        validate_template(&template["template"], &Path::new("template"), &mut problems);
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, template: &Value, _now: i64) -> Vec<Value> {
        let [containers, images] = print::containers(&template["template"]["spec"]);
        let labels = print::labels(&template["template"]["metadata"]["labels"]);
        vec![print::name(template), containers, images, labels]
    }

    fn warnings(&self, template: &Value) -> Vec<String> {
        warnings::of_template(template, &["template"])
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Containers", "Names of the template's containers."),
    print::text("Images", "Images of the template's containers."),
    print::text("Pod Labels", "The labels that its pods get."),
];
