//! VolumeAttributesClass: attributes of volumes that can change while they are used.

use super::storage_class::{validate_driver, validate_parameters};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static VOLUME_ATTRIBUTES_CLASS: Resource = Resource::cluster(
    "storage.k8s.io",
    "v1",
    "VolumeAttributesClass",
    "volumeattributesclasses",
    "volumeattributesclass",
)
.short(&["vac"])
.returning_deleted()
.with_rules(&VolumeAttributesClassRules);

struct VolumeAttributesClassRules;

impl Rules for VolumeAttributesClassRules {
    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        validate_driver(class, "driverName", &mut problems);
        validate_parameters(class, &mut problems);
        if class.entries("parameters").next().is_none() {
            let detail = "must contain at least one key/value pair";
            problems.required(&Path::default(), "parameters", detail);
        }
        problems.into_vec()
    }

    /// Volumes may have been made with what a class says.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for field in ["driverName", "parameters"] {
            if new[field] != old[field] {
                let detail = format!("updates to {field} are forbidden.");
                problems.forbidden(&Path::default(), field, detail);
            }
        }
        problems.into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, class: &Value, now: i64) -> Vec<Value> {
        vec![
            print::name(class),
            class.text("driverName").into(),
            print::age(class, now),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("DriverName", "The driver that knows the attributes."),
    AGE,
];
