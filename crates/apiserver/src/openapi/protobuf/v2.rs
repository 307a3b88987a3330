//! The messages of version 2.

use super::{Kind, Message, REQUIREMENTS, TEXTS};

pub static DOCUMENT: Message = Message {
    name: "Document",
    members: &[
        ("swagger", 1, Kind::Text),
        ("info", 2, Kind::Message(&INFO)),
        ("paths", 8, Kind::Message(&PATHS)),
        ("definitions", 9, Kind::Named(&Kind::Message(&SCHEMA))),
        ("security", 12, REQUIREMENTS),
        ("securityDefinitions", 13, Kind::Named(&SECURITY_DEFINITION)),
    ],
    extensions: 16,
};

static INFO: Message = Message {
    name: "Info",
    members: &[("title", 1, Kind::Text), ("version", 2, Kind::Text)],
    extensions: 7,
};

/// Its members are paths, whatever they are called.
static PATHS: Message = Message {
    name: "Paths",
    members: &[("", 2, Kind::Entries(&Kind::Message(&PATH_ITEM)))],
    extensions: 1,
};

static PATH_ITEM: Message = Message {
    name: "PathItem",
    members: &[
        ("get", 2, Kind::Message(&OPERATION)),
        ("put", 3, Kind::Message(&OPERATION)),
        ("post", 4, Kind::Message(&OPERATION)),
        ("delete", 5, Kind::Message(&OPERATION)),
        ("options", 6, Kind::Message(&OPERATION)),
        ("head", 7, Kind::Message(&OPERATION)),
        ("patch", 8, Kind::Message(&OPERATION)),
        ("parameters", 9, PARAMETERS),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    name: "Operation",
    members: &[
        ("tags", 1, TEXTS),
        ("summary", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("produces", 6, TEXTS),
        ("consumes", 7, TEXTS),
        ("parameters", 8, PARAMETERS),
        ("responses", 9, Kind::Named(&RESPONSE_VALUE)),
        ("schemes", 10, TEXTS),
        ("deprecated", 11, Kind::Bool),
    ],
    extensions: 13,
};

static BODY_PARAMETER: Message = Message {
    name: "BodyParameter",
    members: &[
        ("description", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("required", 4, Kind::Bool),
        ("schema", 5, Kind::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY_PARAMETER: Message = Message {
    name: "QueryParameterSubSchema",
    members: &[
        ("required", 1, Kind::Bool),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 6, Kind::Text),
        ("format", 7, Kind::Text),
        ("uniqueItems", 20, Kind::Bool),
    ],
    extensions: 23,
};

static PATH_PARAMETER: Message = Message {
    name: "PathParameterSubSchema",
    members: &[
        ("required", 1, Kind::Bool),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 5, Kind::Text),
        ("format", 6, Kind::Text),
        ("uniqueItems", 19, Kind::Bool),
    ],
    extensions: 22,
};

static RESPONSE: Message = Message {
    name: "Response",
    members: &[("description", 1, Kind::Text), ("schema", 2, WRAPPED_SCHEMA)],
    extensions: 5,
};

static API_KEY: Message = Message {
    name: "ApiKeySecurity",
    members: &[
        ("type", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("description", 4, Kind::Text),
    ],
    extensions: 5,
};

static EXTERNAL_DOCS: Message = Message {
    name: "ExternalDocs",
    members: &[("description", 1, Kind::Text), ("url", 2, Kind::Text)],
    extensions: 3,
};

static SCHEMA: Message = Message {
    name: "Schema",
    members: &[
        ("$ref", 1, Kind::Text),
        ("format", 2, Kind::Text),
        ("title", 3, Kind::Text),
        ("description", 4, Kind::Text),
        ("default", 5, Kind::Any),
        ("multipleOf", 6, Kind::Double),
        ("maximum", 7, Kind::Double),
        ("exclusiveMaximum", 8, Kind::Bool),
        ("minimum", 9, Kind::Double),
        ("exclusiveMinimum", 10, Kind::Bool),
        ("maxLength", 11, Kind::Integer),
        ("minLength", 12, Kind::Integer),
        ("pattern", 13, Kind::Text),
        ("maxItems", 14, Kind::Integer),
        ("minItems", 15, Kind::Integer),
        ("uniqueItems", 16, Kind::Bool),
        ("maxProperties", 17, Kind::Integer),
        ("minProperties", 18, Kind::Integer),
        ("required", 19, TEXTS),
        ("enum", 20, Kind::Each(&Kind::Any)),
        ("additionalProperties", 21, SCHEMA_OR_BOOL),
        ("type", 22, TYPE),
        ("items", 23, WRAPPED_SCHEMA),
        ("allOf", 24, Kind::Each(&Kind::Message(&SCHEMA))),
        ("properties", 25, Kind::Named(&Kind::Message(&SCHEMA))),
        ("externalDocs", 29, Kind::Message(&EXTERNAL_DOCS)),
        ("example", 30, Kind::Any),
    ],
    extensions: 31,
};

const PARAMETERS: Kind = Kind::Each(&Kind::OneOf(|_| Some((1, PARAMETER))));
/// A parameter is the body, or one of several others.
const PARAMETER: Kind = Kind::OneOf(|value| match value["in"].as_str() {
    Some("body") => Some((1, Kind::Message(&BODY_PARAMETER))),
    _ => Some((2, OTHER_PARAMETER)),
});
const OTHER_PARAMETER: Kind = Kind::OneOf(|value| match value["in"].as_str() {
    Some("path") => Some((4, Kind::Message(&PATH_PARAMETER))),
    _ => Some((3, Kind::Message(&QUERY_PARAMETER))),
});
const RESPONSE_VALUE: Kind = Kind::OneOf(|_| Some((1, Kind::Message(&RESPONSE))));
const WRAPPED_SCHEMA: Kind = Kind::OneOf(|_| Some((1, Kind::Message(&SCHEMA))));
const SCHEMA_OR_BOOL: Kind = Kind::OneOf(|value| {
    let schema = (1, Kind::Message(&SCHEMA));
    Some(if value.is_boolean() { (2, Kind::Bool) } else { schema })
});
/// A text or a list of them.
const TYPE: Kind = Kind::OneOf(|value| Some((1, if value.is_array() { TEXTS } else { Kind::Text })));
/// The second of the kinds of definitions is a key.
const SECURITY_DEFINITION: Kind = Kind::OneOf(|_| Some((2, Kind::Message(&API_KEY))));
