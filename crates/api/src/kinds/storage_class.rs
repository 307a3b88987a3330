//! StorageClass: how volumes of a kind are made.

use crate::names::label_key;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static STORAGE_CLASS: Resource =
    Resource::cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses", "storageclass")
        .short(&["sc"])
        .with_rules(&StorageClassRules);

struct StorageClassRules;

impl Rules for StorageClassRules {
    fn default(&self, class: &mut Value) {
        class.fill("reclaimPolicy", "Delete");
        class.fill("volumeBindingMode", "Immediate");
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::default();
        if problems.needs(class, &path, "provisioner") {
            let provisioner = class.text("provisioner");
            problems.form(
                &path,
                "provisioner",
                provisioner,
                label_key(&provisioner.to_lowercase()),
            );
        }
        problems.optional_one_of(class, &path, "reclaimPolicy", &["Delete", "Retain"]);
        problems.one_of(
            class,
            &path,
            "volumeBindingMode",
            &["Immediate", "WaitForFirstConsumer"],
        );
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            problems.immutable(new, old, &Path::default(), field);
        }
        problems.into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, class: &Value, now: i64) -> Vec<Value> {
        let annotations = &class["metadata"]["annotations"];
        let is_default = DEFAULT_ANNOTATIONS
            .iter()
            .any(|annotation| annotations.text(annotation) == "true");
        vec![
            name_with_default(class, is_default),
            class.text("provisioner").into(),
            class.text("reclaimPolicy").into(),
            class.text("volumeBindingMode").into(),
            class.flag("allowVolumeExpansion").into(),
            print::age(class, now),
        ]
    }
}

const DEFAULT_ANNOTATIONS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

pub(super) fn name_with_default(class: &Value, is_default: bool) -> Value {
    let name = class["metadata"].text("name");
    if is_default {
        format!("{name} (default)").into()
    } else {
        name.into()
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Provisioner", "Who makes the volumes."),
    print::text("ReclaimPolicy", "What happens to a volume when its claim goes."),
    print::text("VolumeBindingMode", "Whether volumes wait for their pods."),
    print::text("AllowVolumeExpansion", "Whether volumes can grow."),
    AGE,
];
