//! CSIStorageCapacity: how much room a storage class has somewhere.

use schema::quantity::Quantity;

use crate::names::dns1123_subdomain;
use crate::{FieldError, Fields, Path, Problems, Resource, Rules, Value, validate_label_selector};

pub static CSI_STORAGE_CAPACITY: Resource = Resource::namespaced(
    "storage.k8s.io",
    "v1",
    "CSIStorageCapacity",
    "csistoragecapacities",
    "csistoragecapacity",
)
.requiring_revision()
.with_rules(&CsiStorageCapacityRules);

struct CsiStorageCapacityRules;

impl Rules for CsiStorageCapacityRules {
    fn validate(&self, capacity: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::default();
        let class = capacity.text("storageClassName");
        problems.form(&path, "storageClassName", class, dns1123_subdomain(class, false));
        let topology = &capacity["nodeTopology"];
        problems.extend(validate_label_selector(topology, &path.child("nodeTopology")));
        for field in ["capacity", "maximumVolumeSize"] {
            let amount = capacity.text(field).parse::<Quantity>();
            if let Some(amount) = amount.ok().filter(Quantity::is_negative) {
                let detail = "must be greater than or equal to 0";
                problems.invalid(&path, field, amount.to_string(), detail);
            }
        }
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
