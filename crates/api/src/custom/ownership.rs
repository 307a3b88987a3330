//! How the fields of a custom resource are owned, as its schema says.

use schema::ListType;
use schema::ownership::{Scalar, Tree};

use super::Structural;
use super::structural::{Additional, Basic};

/// The ownership of a whole object.
pub fn of_object(schema: &Structural) -> Tree {
    with_type_fields(tree(schema, false))
}

/// An object that has metadata of the usual form.
fn with_type_fields(mut tree: Tree) -> Tree {
    if let Tree::Object { fields, .. } = &mut tree {
        for name in ["apiVersion", "kind"] {
            fields.insert(name.to_owned(), Tree::Scalar(Scalar::String));
        }
        if let Some(metadata) = schema::builtin().named("meta/v1.ObjectMeta") {
            fields.insert("metadata".to_owned(), Tree::Table(metadata));
        }
    }
    tree
}

/// `open` says that a schema around this one preserves what it does not know.
fn tree(schema: &Structural, open: bool) -> Tree {
    let open = open || schema.preserve_unknown;
    let tree = match schema.basic {
        _ if schema.int_or_string => Tree::Scalar(Scalar::Untyped),
        Some(Basic::Boolean) => Tree::Scalar(Scalar::Boolean),
        Some(Basic::Integer | Basic::Number) => Tree::Scalar(Scalar::Numeric),
        Some(Basic::String) => Tree::Scalar(Scalar::String),
        Some(Basic::Array) => list(schema, open),
        Some(Basic::Object) => object(schema, open),
        None if schema.properties.is_empty() => Tree::Deduced,
        None => object(schema, open),
    };
    match schema.embedded_resource {
        true => with_type_fields(tree),
        false => tree,
    }
}

fn object(schema: &Structural, open: bool) -> Tree {
    let fields = schema.properties.iter();
    let rest = match &schema.additional {
        Additional::Schema(schema) => Some(tree(schema, open)),
        Additional::Allowed(true) => Some(Tree::Deduced),
        Additional::Unsaid if open || schema.properties.is_empty() => Some(Tree::Deduced),
        Additional::Unsaid | Additional::Allowed(false) => None,
    };
    Tree::Object {
        fields: fields
            .map(|(name, schema)| (name.clone(), tree(schema, open)))
            .collect(),
        rest: rest.map(Box::new),
        atomic: schema.map_type == "atomic",
    }
}

fn list(schema: &Structural, open: bool) -> Tree {
    let items = schema.items.as_deref();
    let default = |key: &String| items?.properties.get(key)?.default.clone();
    let mut keys: Vec<_> = schema.list_keys.iter().map(|key| (key.clone(), default(key))).collect();
    keys.sort_by(|a, b| a.0.cmp(&b.0));
    Tree::List {
        item: Box::new(items.map_or(Tree::Deduced, |items| tree(items, open))),
        kind: match schema.list_type.as_str() {
            "map" => ListType::Map,
            "set" => ListType::Set,
            _ => ListType::Atomic,
        },
        keys,
    }
}

#[cfg(test)]
mod tests {
    use schema::ownership::{Node, fields_of};
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_maps_and_unknown_fields_are_owned_as_the_schema_says() {
        let tree = of_object(&Structural::parse(&json!({ "type": "object", "properties": {
            "spec": { "type": "object", "properties": {
                "ports": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                    "items": { "type": "object", "properties": {
                        "port": { "type": "integer" }, "protocol": { "type": "string", "default": "TCP" } } } },
                "names": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
                "args": { "type": "array", "items": { "type": "string" } },
                "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                "whole": { "type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": { "type": "string" } },
            } },
        } })));
        let object = json!({ "spec": {
            "ports": [{ "port": 80 }], "names": ["a"], "args": ["x"], "any": { "k": [1] }, "whole": { "a": "b" },
        } });
        let expected = json!({ "f:spec": {
            "f:any": { "f:k": {} },
            "f:args": {},
            "f:names": { "v:\"a\"": {} },
            "f:ports": { "k:{\"port\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:port": {} } },
            "f:whole": {},
        } });
        assert_eq!(fields_of(Node::custom(&tree), &object).write(), expected);
    }
}
