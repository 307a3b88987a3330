//! VolumeAttributesClass: attributes of volumes that can change while they are used.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Value};

pub static VOLUME_ATTRIBUTES_CLASS: Resource = Resource::cluster(
    "storage.k8s.io",
    "v1",
    "VolumeAttributesClass",
    "volumeattributesclasses",
    "volumeattributesclass",
)
.short(&["vac"])
.with_rules(&VolumeAttributesClassRules);

struct VolumeAttributesClassRules;

impl Rules for VolumeAttributesClassRules {
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
