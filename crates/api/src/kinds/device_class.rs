//! DeviceClass: a kind of devices.

use crate::print::{self, AGE, NAME};
use crate::{Column, Resource, Rules, Value};

pub static DEVICE_CLASS: Resource =
    Resource::cluster("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", "deviceclass")
        .with_rules(&DeviceClassRules);

struct DeviceClassRules;

impl Rules for DeviceClassRules {
    fn generation(&self) -> crate::Generation {
        crate::Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        &[NAME, AGE]
    }

    fn cells(&self, class: &Value, now: i64) -> Vec<Value> {
        vec![print::name(class), print::age(class, now)]
    }
}
