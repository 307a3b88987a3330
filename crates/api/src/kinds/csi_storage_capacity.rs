//! CSIStorageCapacity: how much room a storage class has somewhere.

use crate::{FieldError, Path, Problems, Resource, Rules, Value};

pub static CSI_STORAGE_CAPACITY: Resource = Resource::namespaced(
    "storage.k8s.io",
    "v1",
    "CSIStorageCapacity",
    "csistoragecapacities",
    "csistoragecapacity",
)
.with_rules(&CsiStorageCapacityRules);

struct CsiStorageCapacityRules;

impl Rules for CsiStorageCapacityRules {
    fn validate(&self, capacity: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.needs(capacity, &Path::default(), "storageClassName");
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for field in ["nodeTopology", "storageClassName"] {
            problems.immutable(new, old, &Path::default(), field);
        }
        problems.into_vec()
    }
}
