//! Objects as tables, the form in which `kubectl get` prints them.

use std::time::{SystemTime, UNIX_EPOCH};

use api::{Resource, Value};
use serde_json::json;

/// How much of each object a row carries beside its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    pub fn parse(text: Option<&str>) -> Result<IncludeObject, api::Error> {
        match text {
            None | Some("" | "Metadata") => Ok(IncludeObject::Metadata),
            Some("None") => Ok(IncludeObject::None),
            Some("Object") => Ok(IncludeObject::Object),
            Some(other) => Err(api::Error::bad_request(format!(
                "unrecognized includeObject value: {other:?}"
            ))),
        }
    }
}

pub fn of<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    include: IncludeObject,
    definitions: bool,
) -> Value {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as i64);
    let columns: Vec<Value> = resource
        .rules
        .columns()
        .iter()
        .map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        })
        .collect();
    let rows: Vec<Value> = objects.map(|object| row(resource, object, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": if definitions { Value::from(columns) } else { Value::Null },
        "rows": rows,
    })
}

fn row(resource: &Resource, object: &Value, include: IncludeObject, now: i64) -> Value {
    let mut row = json!({ "cells": resource.rules.cells(object, now) });
    match include {
        IncludeObject::None => {}
        IncludeObject::Object => row["object"] = object.clone(),
        IncludeObject::Metadata => {
            row["object"] = json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            });
        }
    }
    row
}
