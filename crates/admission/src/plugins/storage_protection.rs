//! Keeps volumes and claims until nobody uses them: a finalizer that their controllers take away.

use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::volume_attributes_class::VOLUME_ATTRIBUTES_CLASS;
use api::{Error, Fields, Resource};
use async_trait::async_trait;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct StorageObjectInUseProtection;

static FINALIZERS: [(&Resource, &str); 3] = [
    (&PERSISTENT_VOLUME, "kubernetes.io/pv-protection"),
    (&PERSISTENT_VOLUME_CLAIM, "kubernetes.io/pvc-protection"),
    (&VOLUME_ATTRIBUTES_CLASS, "kubernetes.io/vac-protection"),
];

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && FINALIZERS.iter().any(|(resource, _)| attributes.is(resource, ""))
    }

    async fn mutate(&self, attributes: &mut Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        let Some((_, finalizer)) = FINALIZERS.iter().find(|(resource, _)| attributes.concerns(resource)) else {
            return Ok(());
        };
        let metadata = attributes.object.ensure("metadata");
        let mut finalizers = metadata.list("finalizers").to_vec();
        if !finalizers.iter().any(|held| held == finalizer) {
            finalizers.push((*finalizer).into());
            metadata.set("finalizers", finalizers);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, run};

    #[test]
    fn a_claim_is_protected_once() {
        let claim = json!({"metadata": {"name": "data", "namespace": "default", "finalizers": ["example.com/mine"]}});
        let plugin = StorageObjectInUseProtection;
        let admitted = run(&plugin, create(&PERSISTENT_VOLUME_CLAIM, claim), &Cluster::default()).unwrap();
        assert_eq!(
            admitted["metadata"]["finalizers"],
            json!(["example.com/mine", "kubernetes.io/pvc-protection"])
        );
        let again = run(
            &plugin,
            create(&PERSISTENT_VOLUME_CLAIM, admitted.clone()),
            &Cluster::default(),
        )
        .unwrap();
        assert_eq!(again, admitted);
    }
}
