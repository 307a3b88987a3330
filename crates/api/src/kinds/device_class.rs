//! DeviceClass: a kind of devices.

use crate::devices::validate_class;
use crate::names::{dns1123_subdomain, in_bytes};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Generation, Path, Problems, Resource, Rules, Value};

pub static DEVICE_CLASS: Resource =
    Resource::cluster("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", "deviceclass")
        .returning_deleted()
        .with_rules(&DeviceClassRules);

struct DeviceClassRules;

impl Rules for DeviceClassRules {
    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        validate_class(&class["spec"], &Path::new("spec"), &mut problems);
        problems.into_vec()
    }

    /// Only the finished name is looked at, not the beginning that it was made from.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        match prefix {
            true => Vec::new(),
            false => dns1123_subdomain(name, false)
                .iter()
                .map(|problem| in_bytes(problem))
                .collect(),
        }
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        &[NAME, AGE]
    }

    fn cells(&self, class: &Value, now: i64) -> Vec<Value> {
        vec![print::name(class), print::age(class, now)]
    }
}
