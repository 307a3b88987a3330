//! A claim that names no storage class gets the default one, if there is one.

use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::storage_class::STORAGE_CLASS;
use api::{Error, Fields, Value};
use async_trait::async_trait;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct DefaultStorageClass;

const IS_DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

#[async_trait]
impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.is(&PERSISTENT_VOLUME_CLAIM, "")
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let claim = &attributes.object;
        // An empty class is a choice too: it asks for a volume without one.
        if claim["spec"].has("storageClassName") || claim["metadata"]["annotations"].has(CLASS_ANNOTATION) {
            return Ok(());
        }
        let classes = lookup.list(&STORAGE_CLASS, "");
        if let Some(name) = newest_default(classes, &IS_DEFAULT) {
            attributes.object.ensure("spec").set("storageClassName", name);
        }
        Ok(())
    }
}

/// Of several defaults the newest counts, so that a new one takes over at once.
pub(super) fn newest_default(classes: Vec<Value>, annotations: &[&str]) -> Option<String> {
    let is_default = |class: &&Value| {
        let held = &class["metadata"]["annotations"];
        annotations.iter().any(|annotation| held.text(annotation) == "true")
    };
    let age = |class: &&Value| {
        let metadata = &class["metadata"];
        (
            std::cmp::Reverse(metadata.text("creationTimestamp").to_owned()),
            metadata.text("name").to_owned(),
        )
    };
    let newest = classes.iter().filter(is_default).min_by_key(age)?;
    Some(newest["metadata"].text("name").to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, run};

    #[test]
    fn the_newest_default_class_fills_in() {
        let class = |name: &str, created: &str| {
            let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
            let metadata = json!({"name": name, "creationTimestamp": created, "annotations": annotations});
            (&STORAGE_CLASS, json!({"metadata": metadata}))
        };
        let cluster = Cluster(vec![
            class("old", "2026-01-01T00:00:00Z"),
            class("new", "2026-02-01T00:00:00Z"),
        ]);
        let claim = |spec| {
            create(
                &PERSISTENT_VOLUME_CLAIM,
                json!({"metadata": {"name": "data"}, "spec": spec}),
            )
        };
        let admitted = run(&DefaultStorageClass, claim(json!({})), &cluster).unwrap();
        assert_eq!(admitted["spec"]["storageClassName"], "new");
        let admitted = run(&DefaultStorageClass, claim(json!({"storageClassName": ""})), &cluster).unwrap();
        assert_eq!(admitted["spec"]["storageClassName"], "");
    }
}
