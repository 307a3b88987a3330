//! CSINode: the storage drivers of a node.

use crate::names::{dns1123_subdomain, label_key};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static CSI_NODE: Resource =
    Resource::cluster("storage.k8s.io", "v1", "CSINode", "csinodes", "csinode").with_rules(&CsiNodeRules);

struct CsiNodeRules;

impl Rules for CsiNodeRules {
    fn validate(&self, node: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("spec").child("drivers");
        let mut names = Vec::new();
        for (index, driver) in node["spec"].list("drivers").iter().enumerate() {
            let path = path.index(index);
            let name = driver.text("name");
            if problems.needs(driver, &path, "name") {
                problems.form(&path, "name", name, dns1123_subdomain(&name.to_lowercase(), false));
            }
            problems.needs(driver, &path, "nodeID");
            problems.not_negative(&driver["allocatable"], &path.child("allocatable"), "count");
            if names.contains(&name) {
                problems.duplicate(&path, "name", name);
            }
            names.push(name);
            let mut keys = Vec::new();
            for key in driver.list("topologyKeys").iter().filter_map(Value::as_str) {
                if keys.contains(&key) {
                    problems.duplicate(&path, "", key);
                }
                keys.push(key);
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
        let before = old["spec"].list("drivers");
        let changed = new["spec"].list("drivers").iter().any(|driver| {
            let same = before.iter().find(|other| other["name"] == driver["name"]);
            same.is_some_and(|other| {
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
