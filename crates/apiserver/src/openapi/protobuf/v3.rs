//! The messages of version 3. Those that may stand behind a reference are wrapped in a choice of the two.

use api::Value;

use super::{Kind, Message, REQUIREMENTS, TEXTS};

pub static DOCUMENT: Message = Message {
    name: "Document",
    members: &[
        ("openapi", 1, Kind::Text),
        ("info", 2, Kind::Message(&INFO)),
        ("paths", 4, Kind::Message(&PATHS)),
        ("components", 5, Kind::Message(&COMPONENTS)),
        ("security", 6, REQUIREMENTS),
    ],
    extensions: 9,
};

static INFO: Message = Message {
    name: "Info",
    members: &[
        ("title", 1, Kind::Text),
        ("description", 2, Kind::Text),
        ("version", 6, Kind::Text),
    ],
    extensions: 7,
};

/// Its members are paths, whatever they are called.
static PATHS: Message = Message {
    name: "Paths",
    members: &[("", 1, Kind::Entries(&Kind::Message(&PATH_ITEM)))],
    extensions: 2,
};

static PATH_ITEM: Message = Message {
    name: "PathItem",
    members: &[
        ("get", 4, Kind::Message(&OPERATION)),
        ("put", 5, Kind::Message(&OPERATION)),
        ("post", 6, Kind::Message(&OPERATION)),
        ("delete", 7, Kind::Message(&OPERATION)),
        ("options", 8, Kind::Message(&OPERATION)),
        ("head", 9, Kind::Message(&OPERATION)),
        ("patch", 10, Kind::Message(&OPERATION)),
        ("parameters", 13, Kind::Each(&PARAMETER_OR_REFERENCE)),
    ],
    extensions: 14,
};

static OPERATION: Message = Message {
    name: "Operation",
    members: &[
        ("tags", 1, TEXTS),
        ("summary", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("parameters", 6, Kind::Each(&PARAMETER_OR_REFERENCE)),
        ("requestBody", 7, BODY_OR_REFERENCE),
        ("responses", 8, Kind::Message(&RESPONSES)),
        ("deprecated", 10, Kind::Bool),
    ],
    extensions: 13,
};

static PARAMETER: Message = Message {
    name: "Parameter",
    members: &[
        ("name", 1, Kind::Text),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("required", 4, Kind::Bool),
        ("schema", 10, SCHEMA_OR_REFERENCE),
    ],
    extensions: 14,
};

static REQUEST_BODY: Message = Message {
    name: "RequestBody",
    members: &[
        ("description", 1, Kind::Text),
        ("content", 2, CONTENT),
        ("required", 3, Kind::Bool),
    ],
    extensions: 4,
};

/// By code; what is for every other code has a place of its own.
static RESPONSES: Message = Message {
    name: "Responses",
    members: &[
        ("default", 1, RESPONSE_OR_REFERENCE),
        ("", 2, Kind::Entries(&RESPONSE_OR_REFERENCE)),
    ],
    extensions: 3,
};

static RESPONSE: Message = Message {
    name: "Response",
    members: &[("description", 1, Kind::Text), ("content", 3, CONTENT)],
    extensions: 5,
};

static MEDIA_TYPE: Message = Message {
    name: "MediaType",
    members: &[("schema", 1, SCHEMA_OR_REFERENCE)],
    extensions: 5,
};

static COMPONENTS: Message = Message {
    name: "Components",
    members: &[
        ("schemas", 1, Kind::Named(&SCHEMA_OR_REFERENCE)),
        ("securitySchemes", 7, Kind::Named(&SCHEME_OR_REFERENCE)),
    ],
    extensions: 10,
};

static SECURITY_SCHEME: Message = Message {
    name: "SecurityScheme",
    members: &[
        ("type", 1, Kind::Text),
        ("description", 2, Kind::Text),
        ("name", 3, Kind::Text),
        ("in", 4, Kind::Text),
    ],
    extensions: 9,
};

/// It has no place for extensions, and nothing that is described here has any beside a reference.
static REFERENCE: Message = Message {
    name: "Reference",
    members: &[
        ("$ref", 1, Kind::Text),
        ("summary", 2, Kind::Text),
        ("description", 3, Kind::Text),
    ],
    extensions: 0,
};

static EXTERNAL_DOCS: Message = Message {
    name: "ExternalDocs",
    members: &[("description", 1, Kind::Text), ("url", 2, Kind::Text)],
    extensions: 3,
};

static SCHEMA: Message = Message {
    name: "Schema",
    members: &[
        ("nullable", 1, Kind::Bool),
        ("externalDocs", 6, Kind::Message(&EXTERNAL_DOCS)),
        ("example", 7, Kind::Any),
        ("title", 9, Kind::Text),
        ("multipleOf", 10, Kind::Double),
        ("maximum", 11, Kind::Double),
        ("exclusiveMaximum", 12, Kind::Bool),
        ("minimum", 13, Kind::Double),
        ("exclusiveMinimum", 14, Kind::Bool),
        ("maxLength", 15, Kind::Integer),
        ("minLength", 16, Kind::Integer),
        ("pattern", 17, Kind::Text),
        ("maxItems", 18, Kind::Integer),
        ("minItems", 19, Kind::Integer),
        ("uniqueItems", 20, Kind::Bool),
        ("maxProperties", 21, Kind::Integer),
        ("minProperties", 22, Kind::Integer),
        ("required", 23, TEXTS),
        ("enum", 24, Kind::Each(&Kind::Any)),
        ("type", 25, Kind::Text),
        ("allOf", 26, Kind::Each(&SCHEMA_OR_REFERENCE)),
        ("oneOf", 27, Kind::Each(&SCHEMA_OR_REFERENCE)),
        ("anyOf", 28, Kind::Each(&SCHEMA_OR_REFERENCE)),
        ("not", 29, Kind::Message(&SCHEMA)),
        ("items", 30, Kind::OneOf(|_| Some((1, SCHEMA_OR_REFERENCE)))),
        ("properties", 31, Kind::Named(&SCHEMA_OR_REFERENCE)),
        ("additionalProperties", 32, SCHEMA_OR_BOOL),
        ("default", 33, DEFAULT),
        ("description", 34, Kind::Text),
        ("format", 35, Kind::Text),
    ],
    extensions: 36,
};

const CONTENT: Kind = Kind::Named(&Kind::Message(&MEDIA_TYPE));
const SCHEMA_OR_REFERENCE: Kind = Kind::OneOf(|value| or_reference(value, Kind::Message(&SCHEMA)));
const PARAMETER_OR_REFERENCE: Kind = Kind::OneOf(|value| or_reference(value, Kind::Message(&PARAMETER)));
const BODY_OR_REFERENCE: Kind = Kind::OneOf(|value| or_reference(value, Kind::Message(&REQUEST_BODY)));
const RESPONSE_OR_REFERENCE: Kind = Kind::OneOf(|value| or_reference(value, Kind::Message(&RESPONSE)));
const SCHEME_OR_REFERENCE: Kind = Kind::OneOf(|value| or_reference(value, Kind::Message(&SECURITY_SCHEME)));
const SCHEMA_OR_BOOL: Kind = Kind::OneOf(|value| {
    let schema = (1, SCHEMA_OR_REFERENCE);
    Some(if value.is_boolean() { (2, Kind::Bool) } else { schema })
});
/// A message cannot say what a list or a map is by default, only that there is a default.
const DEFAULT: Kind = Kind::OneOf(|value| match value {
    Value::Number(_) => Some((1, Kind::Double)),
    Value::Bool(_) => Some((2, Kind::Bool)),
    Value::String(_) => Some((3, Kind::Text)),
    _ => None,
});

fn or_reference(value: &Value, kind: Kind) -> Option<(u32, Kind)> {
    match value.get("$ref") {
        Some(_) => Some((2, Kind::Message(&REFERENCE))),
        None => Some((1, kind)),
    }
}
