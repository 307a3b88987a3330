//! A claim can only grow, and only where its storage class allows it.

use api::kinds::persistent_volume_claim::{PERSISTENT_VOLUME_CLAIM, storage_class};
use api::kinds::storage_class::STORAGE_CLASS;
use api::{Error, Fields, Value};
use async_trait::async_trait;
use schema::quantity::Quantity;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct PersistentVolumeClaimResize;

#[async_trait]
impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Update && attributes.is(&PERSISTENT_VOLUME_CLAIM, "")
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let (old, new) = (&attributes.old_object, &attributes.object);
        if size(new) <= size(old) {
            return Ok(());
        }
        if old["status"].text("phase") != "Bound" {
            return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let class = storage_class(new);
        let can_grow = !class.is_empty()
            && class == storage_class(old)
            && lookup
                .get(&STORAGE_CLASS, "", &class)
                .is_some_and(|class| class.flag("allowVolumeExpansion"));
        if can_grow {
            return Ok(());
        }
        Err(attributes.forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
             resize",
        ))
    }
}

fn size(claim: &Value) -> Quantity {
    claim["spec"]["resources"]["requests"]
        .text("storage")
        .parse()
        .unwrap_or(Quantity::ZERO)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, run, update};

    #[test]
    fn only_a_class_that_allows_it_lets_claims_grow() {
        let claim = |size: &str, class: &str| {
            json!({
                "metadata": {"name": "data", "namespace": "default"},
                "spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}},
                "status": {"phase": "Bound"},
            })
        };
        let class = json!({"metadata": {"name": "elastic"}, "allowVolumeExpansion": true});
        let cluster = Cluster(vec![(&STORAGE_CLASS, class)]);
        let grow = |class: &str| {
            let attributes = update(&PERSISTENT_VOLUME_CLAIM, claim("1Gi", class), claim("2Gi", class));
            run(&PersistentVolumeClaimResize, attributes, &cluster)
        };
        assert!(grow("elastic").is_ok());
        expect![[r#"persistentvolumeclaims "data" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"#]]
            .assert_eq(&grow("stiff").unwrap_err());
    }
}
