//! CSINode: the storage drivers of a node.

use std::collections::{HashMap, HashSet};

use crate::names::{dns1123_subdomain, label_key};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value, repeats};

pub static CSI_NODE: Resource = Resource::cluster("storage.k8s.io", "v1", "CSINode", "csinodes", "csinode")
    .requiring_revision()
    .returning_deleted()
    .with_rules(&CsiNodeRules);

struct CsiNodeRules;

impl Rules for CsiNodeRules {
    fn validate(&self, node: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("spec").child("drivers");
        let drivers = node["spec"].list("drivers");
        let repeated = repeats(drivers.iter().map(|driver| driver.text("name")));
        for (index, driver) in drivers.iter().enumerate() {
            let path = path.index(index);
            let name = driver.text("name");
            if problems.needs(driver, &path, "name") {
                problems.form(&path, "name", name, dns1123_subdomain(&name.to_lowercase(), false));
            }
            problems.needs(driver, &path, "nodeID");
            problems.not_negative(&driver["allocatable"], &path.child("allocatable"), "count");
            if repeated[index] {
                problems.duplicate(&path, "name", name);
            }
            let mut keys = HashSet::new();
            for key in driver.list("topologyKeys").iter().filter_map(Value::as_str) {
                if !keys.insert(key) {
                    problems.duplicate(&path, "", key);
                }
                if key.is_empty() {
                    problems.required(&path, "", "");
                }
                problems.form(&path, "", key, label_key(key));
            }
        }
        problems.into_vec()
    }

    /// Drivers come and go, but none changes.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let drivers = old["spec"].list("drivers").iter().rev();
        let before: HashMap<&Value, &Value> = drivers.map(|driver| (&driver["name"], driver)).collect();
        let changed = new["spec"].list("drivers").iter().any(|driver| {
            before.get(&driver["name"]).is_some_and(|other| {
                driver["nodeID"] != other["nodeID"] || driver["topologyKeys"] != other["topologyKeys"]
            })
        });
        if changed {
            let path = Path::new("spec");
            problems.invalid(&path, "drivers", new["spec"]["drivers"].clone(), "field is immutable");
        }
        problems.into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, node: &Value, now: i64) -> Vec<Value> {
        vec![
            print::name(node),
            node["spec"].list("drivers").len().into(),
            print::age(node, now),
        ]
    }
}

const COLUMNS: &[Column] = &[NAME, print::integer("Drivers", "How many drivers the node has."), AGE];
