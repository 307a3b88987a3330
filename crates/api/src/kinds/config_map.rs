//! ConfigMap: settings by key.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Value};

pub static CONFIG_MAP: Resource = Resource::namespaced("", "v1", "ConfigMap", "configmaps", "configmap")
    .short(&["cm"])
    .with_rules(&ConfigMapRules);

struct ConfigMapRules;

impl Rules for ConfigMapRules {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, map: &Value, now: i64) -> Vec<Value> {
        let keys = map.entries("data").count() + map.entries("binaryData").count();
        vec![print::name(map), keys.into(), print::age(map, now)]
    }
}

const COLUMNS: &[Column] = &[NAME, print::text("Data", "How many keys it holds."), AGE];
