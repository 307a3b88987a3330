//! Request bodies: from bytes in any encoding to a value of a known type in normal form.

use api::custom::Version;
use api::{Error, Reason, Value};
use bytes::Bytes;
use http::HeaderMap;
use registry::FieldValidation;
use schema::{DecodeError, Decoded, TypeRef};

use crate::negotiate::{self, Encoding};

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

/// Why a body is no object of the expected kind.
enum Broken {
    /// It cannot even be told of which kind it is.
    Unrecognized(String),
    Content(String),
}

impl From<DecodeError> for Broken {
    fn from(error: DecodeError) -> Broken {
        match error {
            DecodeError::Syntax(why) => Broken::Unrecognized(format!("{NO_KIND}{why}")),
            DecodeError::Yaml(why) => Broken::Unrecognized(
                why.strip_prefix("error converting YAML to JSON: ")
                    .map_or(why.clone(), str::to_owned),
            ),
            DecodeError::Type(why) => Broken::Content(why),
        }
    }
}

const NO_KIND: &str = "couldn't get version/kind; json parse error: ";
/// The type of upstream's code that it reads the kind of any object with.
const KIND_TYPE: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
/// How much of a body that is not recognized is shown.
const SHOWN_BYTES: usize = 30;

impl Form<'_> {
    pub fn built_in(self) -> Option<TypeRef<'static>> {
        match self {
            Form::BuiltIn(ty) => Some(ty),
            Form::Custom(_) => None,
        }
    }

    fn decode_json(self, data: &[u8]) -> Result<Decoded, Broken> {
        match self {
            Form::BuiltIn(ty) => Ok(schema::decode_json(ty, data)?),
            Form::Custom(_) => self.judged(schema::decode_untyped(data)?),
        }
    }

    fn decode_yaml(self, data: &[u8]) -> Result<Decoded, Broken> {
        match self {
            Form::BuiltIn(ty) => Ok(schema::decode_yaml(ty, data)?),
            Form::Custom(_) => self.judged(schema::decode_untyped_yaml(data)?),
        }
    }

    fn judged(self, mut decoded: Decoded) -> Result<Decoded, Broken> {
        let unknown = self.normalize(&mut decoded.value);
        decoded
            .problems
            .extend(unknown.map_err(|error| Broken::Content(error.message))?);
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
    let (value, warnings) = any_object(expected, headers, body, validation)?;
    if let Some(trail) = crate::audit_trail::current() {
        trail.object_decoded(&value);
    }
    Ok((value, warnings))
}

fn any_object(
    expected: Expected<'_>,
    headers: &HeaderMap,
    body: &Bytes,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Error> {
    let decoded = match negotiate::content(headers)? {
        Encoding::Json | Encoding::PrettyJson => expected.form.decode_json(body),
        Encoding::Yaml => expected.form.decode_yaml(body),
        Encoding::Protobuf => return protobuf(expected, body).map(|value| (value, Vec::new())),
    };
    let Decoded { mut value, problems } = decoded.map_err(|broken| match broken {
        Broken::Unrecognized(why) => unrecognized(expected, body, &why),
        Broken::Content(why) => match no_object(body) {
            Some(found) => {
                let why = format!("{NO_KIND}json: cannot unmarshal {found} into Go value of type {KIND_TYPE}");
                unrecognized(expected, body, &why)
            }
            None => cannot_handle(expected, &value_kind(body), why),
        },
    })?;
    identify(expected, &mut value)?;
    judge(expected, problems, validation).map(|warnings| (value, warnings))
}

/// Whether a body has an empty list of managers, which asks to forget them all. The form of decoded values has no empty
/// lists, so the few bodies that name the list and lost it are read once more as they are.
pub fn forgets_managers(headers: &HeaderMap, body: &Bytes, decoded: &Value) -> bool {
    let lost = decoded["metadata"].get("managedFields").is_none();
    if !lost || memchr::memmem::find(body, b"managedFields").is_none() {
        return false;
    }
    let plain = match negotiate::content(headers) {
        Ok(Encoding::Json | Encoding::PrettyJson) => schema::decode_untyped(body),
        Ok(Encoding::Yaml) => schema::decode_untyped_yaml(body),
        // An empty list is not there at all.
        Ok(Encoding::Protobuf) | Err(_) => return false,
    };
    plain.is_ok_and(|plain| plain.value["metadata"]["managedFields"] == Value::Array(Vec::new()))
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
    if !schema::envelope::is_envelope(body) {
        let why = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        return Err(unrecognized(expected, body, why));
    }
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
        Some(_) if !expected.is_options() => {
            let group = expected.api_version.split_once('/').map_or("core", |(group, _)| group);
            let package = group.split('.').next().unwrap_or_default();
            format!(
                "converting ({version}.{kind}) to ({package}.{}): unknown conversion",
                expected.kind
            )
        }
        _ => format!("no kind {kind:?} is registered for version {whole:?} in scheme \"pkg/runtime/scheme.go:111\""),
    };
    if expected.is_options() {
        return Error::bad_request(why);
    }
    let expected = expected.kind;
    Error::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {expected}: {why}"
    ))
}

/// What a body is of which nobody can tell what it is meant to be.
fn unrecognized(expected: Expected<'_>, body: &[u8], why: &str) -> Error {
    // Options are read before anything is said about objects.
    if expected.is_options() {
        return Error::bad_request(why);
    }
    let shown = &body[..body.len().min(SHOWN_BYTES)];
    let mut summary = match shown.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > SHOWN_BYTES {
        summary += " ...";
    }
    let kind = expected.kind;
    Error::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({summary})"
    ))
}

/// What stands where an object is expected.
fn no_object(body: &[u8]) -> Option<&'static str> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace())? {
        b'[' => Some("array"),
        b'"' => Some("string"),
        b't' | b'f' => Some("bool"),
        b'-' | b'0'..=b'9' => Some("number"),
        _ => None,
    }
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
