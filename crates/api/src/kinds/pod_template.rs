//! PodTemplate: a template on its own.

use crate::pod_spec::default_template;
use crate::print::{self, NAME};
use crate::{Column, Generation, Resource, Rules, Value};

pub static POD_TEMPLATE: Resource =
    Resource::namespaced("", "v1", "PodTemplate", "podtemplates", "podtemplate").with_rules(&PodTemplateRules);

struct PodTemplateRules;

impl Rules for PodTemplateRules {
    fn default(&self, template: &mut Value) {
        default_template(template);
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
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Containers", "Names of the template's containers."),
    print::text("Images", "Images of the template's containers."),
    print::text("Pod Labels", "The labels that its pods get."),
];
