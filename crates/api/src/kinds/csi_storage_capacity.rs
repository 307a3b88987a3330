//! CSIStorageCapacity: how much room a storage class has somewhere.

use crate::print::{self, NAME};
use crate::{Column, Fields, Resource, Rules, Value};

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
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, capacity: &Value, _now: i64) -> Vec<Value> {
        let room = capacity["capacity"].as_str().unwrap_or("<unset>");
        vec![
            print::name(capacity),
            capacity.text("storageClassName").into(),
            room.into(),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("StorageClassName", "The class that the room is for."),
    print::text("Capacity", "The room there is."),
];
