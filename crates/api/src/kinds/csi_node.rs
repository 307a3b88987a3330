//! CSINode: the storage drivers of a node.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Value};

pub static CSI_NODE: Resource =
    Resource::cluster("storage.k8s.io", "v1", "CSINode", "csinodes", "csinode").with_rules(&CsiNodeRules);

struct CsiNodeRules;

impl Rules for CsiNodeRules {
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
