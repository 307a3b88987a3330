//! Objects as tables, the form in which `kubectl get` prints them.

use api::{Resource, Value};
use serde_json::json;

use registry::Served;

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

pub fn build_table<'a>(
    served: &Served,
    objects: impl Iterator<Item = &'a Value>,
    include: IncludeObject,
    definitions: bool,
) -> Value {
    let now = clock::unix_seconds();
    let columns = match &served.custom {
        Some(custom) => custom.version().printed.definitions(),
        None => built_in_columns(served),
    };
    let mut objects: Vec<&Value> = objects.collect();
    objects.sort_by_key(|object| served.resource.rules.table_order(object));
    let rows: Vec<Value> = objects
        .into_iter()
        .map(|object| row(served, object, include, now))
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": if definitions { Value::from(columns) } else { Value::Null },
        "rows": rows,
    })
}

/// Gives a table, or the metadata of one object or of many, another version.
pub fn set_meta_version(value: &mut Value, version: &str) {
    let is_of_meta = |value: &Value| {
        value["apiVersion"]
            .as_str()
            .is_some_and(|own| own.starts_with("meta.k8s.io/"))
    };
    if !is_of_meta(value) {
        return;
    }
    value["apiVersion"] = version.into();
    let rows = value
        .get_mut("rows")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for object in rows
        .filter_map(|row| row.get_mut("object"))
        .filter(|object| is_of_meta(object))
    {
        object["apiVersion"] = version.into();
    }
    let items = value
        .get_mut("items")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    items.for_each(|item| item["apiVersion"] = version.into());
}

/// An object without anything but its metadata.
pub fn partial_metadata(resource: &Resource, object: &Value) -> Value {
    let mut partial = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    });
    resource.rules.adjust_partial_metadata(&mut partial["metadata"]);
    partial
}

fn built_in_columns(served: &Served) -> Vec<Value> {
    let columns = served.resource.rules.columns().iter();
    columns
        .map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        })
        .collect()
}

fn row(served: &Served, object: &Value, include: IncludeObject, now: i64) -> Value {
    let cells = match &served.custom {
        Some(custom) => custom.version().printed.cells(object, now),
        None => served.resource.rules.cells(object, now),
    };
    let mut row = json!({ "cells": cells });
    match include {
        IncludeObject::None => {}
        IncludeObject::Object => row["object"] = object.clone(),
        IncludeObject::Metadata => {
            row["object"] = partial_metadata(served.resource, object);
        }
    }
    row
}
