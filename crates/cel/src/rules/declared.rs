//! What a schema says about its values: their type, and how many characters, bytes or items they have at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::parser::RESERVED;
use crate::types::ObjectType;
use crate::{Sizes, Step, Type};

/// The largest request that is accepted, which bounds what a schema does not.
const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// A place of a schema. Places that expressions cannot look at have none.
#[derive(Debug)]
pub struct Declared {
    pub ty: Type,
    /// How many characters, bytes or items a value has at most; objects and numbers count as nothing.
    max_elements: u64,
    /// The fewest bytes that a value takes in a request.
    min_bytes: u64,
    /// What a list holds, or a map has as values.
    element: Option<Box<Declared>>,
    fields: BTreeMap<String, Declared>,
}

impl Declared {
    /// The root of an object has a name and a kind whatever the schema says.
    pub fn read(schema: &Json, root: bool) -> Option<Declared> {
        if schema["x-kubernetes-int-or-string"] == true {
            let max = max_length(schema).map_or(MAX_REQUEST_BYTES - 2, |length| length.saturating_mul(4));
            return Some(Declared::simple(Type::Dyn, max, 1));
        }
        match schema["type"].as_str().unwrap_or_default() {
            _ if root => Some(Declared::object(schema, root)),
            "boolean" => Some(Declared::simple(Type::Bool, 0, 4)),
            "integer" => Some(Declared::simple(Type::Int, 0, 1)),
            "number" => Some(Declared::simple(Type::Double, 0, 1)),
            "string" => Some(Declared::string(schema)),
            "array" => {
                let element = Declared::read(&schema["items"], is_embedded(&schema["items"]))?;
                let most = (MAX_REQUEST_BYTES - 2) / (element.min_bytes + 1);
                let max = limit(schema, "maxItems").unwrap_or(most);
                Some(Declared::container(Type::list(element.ty.clone()), max, element))
            }
            "object" if schema["additionalProperties"].is_object() => {
                let values = &schema["additionalProperties"];
                let element = Declared::read(values, is_embedded(values))?;
                let most = (MAX_REQUEST_BYTES - 2) / (element.min_bytes + 6);
                let max = limit(schema, "maxProperties").unwrap_or(most);
                Some(Declared::container(
                    Type::map(Type::String, element.ty.clone()),
                    max,
                    element,
                ))
            }
            "object" => Some(Declared::object(schema, root)),
            _ => None,
        }
    }

    fn simple(ty: Type, max_elements: u64, min_bytes: u64) -> Declared {
        Declared {
            ty,
            max_elements,
            min_bytes,
            element: None,
            fields: BTreeMap::new(),
        }
    }

    fn container(ty: Type, max_elements: u64, element: Declared) -> Declared {
        Declared {
            element: Some(Box::new(element)),
            ..Declared::simple(ty, max_elements, 2)
        }
    }

    fn string(schema: &Json) -> Declared {
        let length = max_length(schema);
        match schema["format"].as_str().unwrap_or_default() {
            "byte" => Declared::simple(Type::Bytes, length.unwrap_or(MAX_REQUEST_BYTES - 2), 2),
            "duration" => Declared::simple(Type::Duration, 32, 3),
            "date" => Declared::simple(Type::Timestamp, 12, 12),
            "date-time" => Declared::simple(Type::Timestamp, 32, 21),
            _ => {
                let values = schema["enum"].as_array().into_iter().flatten();
                let longest = values
                    .map(|value| value.as_str().map_or(0, |text| text.len() as u64))
                    .max();
                // A character may take four bytes.
                let max = length.map(|length| length.saturating_mul(4)).or(longest);
                Declared::simple(Type::String, max.unwrap_or(MAX_REQUEST_BYTES - 2), 2)
            }
        }
    }

    fn object(schema: &Json, root: bool) -> Declared {
        let properties = schema["properties"].as_object().into_iter().flatten();
        let required: Vec<&str> = strings(&schema["required"]);
        let mut min_bytes = 2;
        let mut fields = BTreeMap::new();
        for (name, property) in properties {
            let Some(declared) = Declared::read(property, is_embedded(property)) else {
                continue;
            };
            // Defaults are filled in later, whatever the request says.
            if required.contains(&name.as_str()) && property["default"].is_null() {
                min_bytes += name.len() as u64 + declared.min_bytes + 4;
            }
            if let Some(name) = escape(name) {
                fields.insert(name, declared);
            }
        }
        if root && !names_itself(schema) {
            let text = || Declared::simple(Type::String, MAX_REQUEST_BYTES - 2, 2);
            let names = ["generateName", "name"].map(|name| (name.to_owned(), text()));
            fields.insert("metadata".to_owned(), Declared::structure("metadata", names.into(), 2));
            fields.insert("apiVersion".to_owned(), text());
            fields.insert("kind".to_owned(), text());
        }
        Declared::structure("object", fields, min_bytes)
    }

    fn structure(name: &str, fields: BTreeMap<String, Declared>, min_bytes: u64) -> Declared {
        let types = fields.iter().map(|(name, field)| (name.clone(), field.ty.clone()));
        let ty = Type::Object(Arc::new(ObjectType {
            name: name.to_owned(),
            fields: types.collect(),
        }));
        Declared {
            fields,
            ..Declared::simple(ty, 0, min_bytes)
        }
    }

    /// How often a value of this place fits into a request.
    pub fn max_occurrences(&self) -> u64 {
        MAX_REQUEST_BYTES / (self.min_bytes + 1)
    }
}

impl Sizes for Declared {
    fn max_elements(&self, path: &[Step]) -> Option<u64> {
        let mut place = self;
        for step in path.iter().skip(1) {
            place = match step {
                Step::Items | Step::Values => place.element.as_deref()?,
                // Names are texts of which nothing is known.
                Step::Keys if matches!(place.ty, Type::Map(..)) => return Some(0),
                Step::Keys | Step::Indices => return None,
                Step::Field(name) => place.fields.get(name)?,
            };
        }
        Some(place.max_elements)
    }
}

/// Whether a schema says all of what is known of every object's metadata.
fn names_itself(schema: &Json) -> bool {
    let properties = &schema["properties"];
    let is_text = |place: &Json, field: &str| place[field]["type"] == "string";
    let named = &properties["metadata"]["properties"];
    ["kind", "apiVersion"].iter().all(|field| is_text(properties, field))
        && ["name", "generateName"].iter().all(|field| is_text(named, field))
}

fn is_embedded(schema: &Json) -> bool {
    schema["x-kubernetes-embedded-resource"] == true
}

fn limit(schema: &Json, field: &str) -> Option<u64> {
    schema[field].as_i64().map(|limit| u64::try_from(limit).unwrap_or(0))
}

fn max_length(schema: &Json) -> Option<u64> {
    limit(schema, "maxLength")
}

fn strings(value: &Json) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect()
}

/// The type of objects that fit a schema.
pub fn type_of_object(schema: &Json) -> Option<Type> {
    Declared::read(schema, true).map(|declared| declared.ty)
}

/// The name of a property as expressions write it, if they can.
pub fn escape(name: &str) -> Option<String> {
    if matches!(name, "true" | "false" | "null" | "in") || RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_known) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__");
    Some(
        escaped
            .replace('.', "__dot__")
            .replace('-', "__dash__")
            .replace('/', "__slash__"),
    )
}
