//! Request bodies: from bytes in any encoding to a value of a known type in normal form.

use api::custom::Version;
use api::{Error, Reason, Value};
use bytes::Bytes;
use http::HeaderMap;
use schema::{Decoded, TypeRef};

use crate::negotiate::{self, Encoding};
use crate::registry::FieldValidation;

/// What a body must be.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub form: Form<'a>,
}

/// What the fields of a body are judged by.
#[derive(Clone, Copy)]
pub enum Form<'a> {
    BuiltIn(TypeRef<'static>),
    Custom(&'a Version),
}

impl Form<'_> {
    pub fn built_in(self) -> Option<TypeRef<'static>> {
        match self {
            Form::BuiltIn(ty) => Some(ty),
            Form::Custom(_) => None,
        }
    }

    fn decode_json(self, data: &[u8]) -> Result<Decoded, Error> {
        match self {
            Form::BuiltIn(ty) => schema::decode_json(ty, data).map_err(|error| Error::bad_request(error.to_string())),
            Form::Custom(_) => {
                let decoded = schema::decode_untyped(data).map_err(|error| Error::bad_request(error.to_string()))?;
                self.judged(decoded)
            }
        }
    }

    fn decode_yaml(self, data: &[u8]) -> Result<Decoded, Error> {
        match self {
            Form::BuiltIn(ty) => schema::decode_yaml(ty, data).map_err(|error| Error::bad_request(error.to_string())),
            Form::Custom(_) => {
                let decoded =
                    schema::decode_untyped_yaml(data).map_err(|error| Error::bad_request(error.to_string()))?;
                self.judged(decoded)
            }
        }
    }

    fn judged(self, mut decoded: Decoded) -> Result<Decoded, Error> {
        let unknown = self.normalize(&mut decoded.value)?;
        decoded.problems.extend(unknown);
        Ok(decoded)
    }

    /// Brings a value into form; returns a text for each unknown field.
    pub fn normalize(self, value: &mut Value) -> Result<Vec<String>, Error> {
        match self {
            Form::BuiltIn(ty) => schema::normalize(ty, value).map_err(|error| Error::bad_request(error.to_string())),
            Form::Custom(version) => version.normalize(value),
        }
    }
}

impl<'a> Expected<'a> {
    /// A kind that is not a resource of its own: Scale, Eviction, DeleteOptions, …
    pub fn named(api_version: &'a str, kind: &'a str, type_name: &str) -> Result<Expected<'a>, Error> {
        let ty = schema::builtin().named(type_name);
        let ty = ty.ok_or_else(|| Error::internal(format!("{type_name} is missing from the schema")))?;
        Ok(Expected {
            api_version,
            kind,
            form: Form::BuiltIn(ty),
        })
    }
}

/// Decodes a body. Problems with its fields are refused, returned as warnings, or ignored, as the client asked.
pub fn object(
    expected: Expected<'_>,
    headers: &HeaderMap,
    body: &Bytes,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Error> {
    let decoded = match negotiate::content(headers)? {
        Encoding::Json => expected.form.decode_json(body),
        Encoding::Yaml => expected.form.decode_yaml(body),
        Encoding::Protobuf => return protobuf(expected, body).map(|value| (value, Vec::new())),
    };
    let Decoded { mut value, problems } =
        decoded.map_err(|error| cannot_handle(expected, &value_kind(body), error.message))?;
    identify(expected, &mut value)?;
    judge(expected, problems, validation).map(|warnings| (value, warnings))
}

/// Turns problems with fields into a refusal or into warnings.
pub fn judge(expected: Expected<'_>, problems: Vec<String>, validation: FieldValidation) -> Result<Vec<String>, Error> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(problems.iter().map(|problem| as_warning(problem)).collect()),
        FieldValidation::Strict if problems.is_empty() => Ok(Vec::new()),
        FieldValidation::Strict => Err(cannot_handle(
            expected,
            expected.kind,
            format!("strict decoding error: {}", problems.join(", ")),
        )),
    }
}

/// A problem as a header can carry it: of YAML's errors only the last line says something.
pub fn as_warning(problem: &str) -> String {
    let text = problem.strip_prefix("yaml: unmarshal errors:\n").unwrap_or(problem);
    text.trim().to_owned()
}

fn protobuf(expected: Expected<'_>, body: &[u8]) -> Result<Value, Error> {
    let Form::BuiltIn(ty) = expected.form else {
        return Err(Error::new(
            Reason::UnsupportedMediaType,
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml",
        ));
    };
    let envelope = schema::envelope::decode(body)
        .map_err(|error| Error::bad_request(format!("the body is not a protobuf object: {error}")))?;
    let mut value =
        schema::decode_protobuf(ty, envelope.raw).map_err(|error| cannot_handle(expected, envelope.kind, error))?;
    if !envelope.kind.is_empty() {
        value["kind"] = envelope.kind.into();
        value["apiVersion"] = envelope.api_version.into();
    }
    identify(expected, &mut value)?;
    Ok(value)
}

/// A body may leave out what it is, but it must not be something else.
fn identify(expected: Expected<'_>, value: &mut Value) -> Result<(), Error> {
    let Some(object) = value.as_object_mut() else {
        return Err(Error::bad_request("the body must be an object"));
    };
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if !kind.is_empty() && kind != expected.kind {
        return Err(another_kind(expected, kind, api_version));
    }
    if !api_version.is_empty() && api_version != expected.api_version && !expected.is_options() {
        if find_kind(api_version, expected.kind).is_none() {
            return Err(another_kind(expected, expected.kind, api_version));
        }
        return Err(Error::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            expected.api_version
        )));
    }
    object.insert("kind".to_owned(), expected.kind.into());
    object.insert("apiVersion".to_owned(), expected.api_version.into());
    Ok(())
}

/// A kind that there is cannot become the expected one; others are not known at all. Upstream names a place in its code.
fn another_kind(expected: Expected<'_>, kind: &str, api_version: &str) -> Error {
    let whole = if api_version.is_empty() {
        expected.api_version
    } else {
        api_version
    };
    let version = whole.rsplit('/').next().unwrap_or_default();
    let why = match find_kind(whole, kind) {
        Some(_) => {
            let group = expected.api_version.split_once('/').map_or("core", |(group, _)| group);
            let package = group.split('.').next().unwrap_or_default();
            format!(
                "converting ({version}.{kind}) to ({package}.{}): unknown conversion",
                expected.kind
            )
        }
        None => format!("no kind {kind:?} is registered for version {whole:?} in scheme \"pkg/runtime/scheme.go:111\""),
    };
    let expected = expected.kind;
    Error::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {expected}: {why}"
    ))
}

fn find_kind(api_version: &str, kind: &str) -> Option<&'static api::Resource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    api::kinds::find_kind(group, version, kind)
}

impl Expected<'_> {
    /// Options are accepted in the version of any group.
    fn is_options(&self) -> bool {
        self.kind.ends_with("Options")
    }
}

fn cannot_handle(expected: Expected<'_>, kind: &str, why: impl std::fmt::Display) -> Error {
    let version = expected.api_version.rsplit('/').next().unwrap_or_default();
    let kind = if kind.is_empty() { expected.kind } else { kind };
    Error::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: {why}",
        expected.kind
    ))
}

/// The kind a broken body claims to be.
fn value_kind(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Kind {
        #[serde(default)]
        kind: String,
    }
    serde_json::from_slice::<Kind>(body)
        .map(|found| found.kind)
        .unwrap_or_default()
}
