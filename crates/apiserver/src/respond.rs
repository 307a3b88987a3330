//! Answers: stored bytes and values in the encoding and shape that the client asked for.

use std::sync::Arc;

use api::{Error, Reason, Resource, Value};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{HeaderMap, Response, StatusCode};
use registry::Served;
use registry::watch::{Change, FrameForm, Transition};
use serde_json::json;
use store::Revision;

use crate::body::{self, Body};
use crate::negotiate::{self, Encoding, Shape, Wanted};
use crate::request::{BadPath, Query};
use crate::table::{self, IncludeObject};

/// Presents objects of one resource as one client wants them.
#[derive(Clone)]
pub struct Presenter {
    pub served: Arc<Served>,
    pub wanted: Wanted,
    pub include_object: IncludeObject,
    /// Whether tables say what their columns are.
    pub definitions: bool,
}

/// Presents objects as frames of a watch.
#[derive(Clone)]
pub struct FrameEncoder(pub Presenter);

/// An answer that is not an object of the API: discovery documents, OpenAPI, health.
pub fn json(code: StatusCode, value: &Value) -> Response<Body> {
    bytes(code, "application/json", value.to_string())
}

/// The same for people to read, whoever asks.
pub fn pretty_json(code: StatusCode, value: &Value) -> Response<Body> {
    let indented = schema::indent_json(value.to_string().as_bytes());
    bytes(code, "application/json", indented)
}

/// A document of discovery in the encoding that the client asked for.
pub fn document(headers: &HeaderMap, query: &Query, value: &Value) -> Result<Response<Body>, Error> {
    let encoding = negotiate::wanted(headers, query, false)?.encoding;
    let kind = value["kind"].as_str().unwrap_or_default();
    let ty = schema::builtin().named(&format!("meta/v1.{kind}"));
    let encoded = match encoding {
        Encoding::Json => value.to_string().into(),
        Encoding::PrettyJson => schema::indent_json(value.to_string().as_bytes()).into(),
        Encoding::Protobuf | Encoding::Yaml => encode(value, ty, encoding)?,
    };
    Ok(bytes(StatusCode::OK, encoding.media_type(), encoded))
}

pub fn bytes(code: StatusCode, media_type: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(body::full(bytes));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Plain text, for people and for probes.
pub fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    bytes(code, "text/plain; charset=utf-8", text.into())
}

/// The answer of a web server to a path that is not part of the API.
pub fn page_not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
}

/// The answer to a path that cannot be read, before anybody is asked who they are.
pub fn bad_path(bad: &BadPath) -> Response<Body> {
    match bad {
        BadPath::Escape => text(StatusCode::BAD_REQUEST, "400 Bad Request"),
        BadPath::NoResource(path) => {
            let message = format!("Internal Server Error: {path:?}: failed to create RequestInfo: {bad}\n");
            text(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}

/// A failure as a Status object.
pub fn error(error: &Error, encoding: Encoding) -> Response<Body> {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = status(code, &error.to_status(), encoding);
    if let Some(seconds) = error
        .details
        .as_ref()
        .map(|details| details.retry_after_seconds)
        .filter(|s| *s > 0)
    {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// A Status object, whether it tells of success or failure.
pub fn status(code: StatusCode, status: &Value, encoding: Encoding) -> Response<Body> {
    let ty = schema::builtin().named("meta/v1.Status");
    match encode(status, ty, encoding) {
        Ok(encoded) => bytes(code, encoding.media_type(), encoded),
        Err(_) => json(code, status),
    }
}

/// The package of upstream's code in which a kind is.
pub fn internal_package(resource: &Resource) -> &'static str {
    match resource.group {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or_default(),
    }
}

/// Adds `Warning` headers.
pub fn with_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let text: String = warning.chars().filter(|c| !c.is_control()).collect();
        let quoted = format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = HeaderValue::from_str(&quoted) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

/// Encodes any typed value; without a type only JSON and YAML are possible.
pub fn encode(value: &Value, ty: Option<schema::TypeRef<'static>>, encoding: Encoding) -> Result<Bytes, Error> {
    match encoding {
        Encoding::Json => Ok(schema::encode_json(value).into()),
        Encoding::PrettyJson => Ok(schema::indent_json(&schema::encode_json(value)).into()),
        Encoding::Yaml => serde_saphyr::to_string(value).map(Bytes::from).map_err(Error::internal),
        Encoding::Protobuf => {
            let ty = ty.ok_or_else(|| Error::internal("this kind has no protobuf form"))?;
            let raw = schema::encode_protobuf(ty, value).map_err(Error::internal)?;
            let text = |field: &str| value[field].as_str().unwrap_or_default();
            Ok(schema::envelope::encode(text("apiVersion"), text("kind"), &raw).into())
        }
    }
}

impl Presenter {
    pub fn resource(&self) -> &'static Resource {
        self.served.resource
    }

    /// Whether stored bytes can be sent as they are, with the revision spliced in.
    pub fn is_verbatim(&self) -> bool {
        self.wanted
            == Wanted {
                encoding: Encoding::Json,
                shape: Shape::Object,
                is_beta: false,
            }
            && !self.served.converts()
    }

    /// A number for everything that decides how an object is shown, by which frames of watches are shared.
    fn rendering(&self) -> u32 {
        let Wanted {
            encoding,
            shape,
            is_beta,
        } = self.wanted;
        let definitions = u32::from(self.definitions) << 25;
        definitions
            | u32::from(is_beta) << 24
            | (encoding as u32) << 16
            | (shape as u32) << 8
            | self.include_object as u32
    }

    /// One stored object.
    pub fn stored(&self, code: StatusCode, stored: &Bytes, revision: Revision) -> Result<Response<Body>, Error> {
        // A dry run has no revision to show.
        if self.is_verbatim() && revision == 0 {
            return Ok(bytes(code, "application/json", stored.clone()));
        }
        if self.is_verbatim() {
            return Ok(bytes(
                code,
                "application/json",
                schema::splice_resource_version(stored, revision),
            ));
        }
        self.value(code, self.served.decode_stored(stored, revision)?)
    }

    /// One object that already carries its revision.
    pub fn value(&self, code: StatusCode, value: Value) -> Result<Response<Body>, Error> {
        if self.wanted.shape == Shape::PartialMetadataList {
            return Err(self.not_a("PartialObjectMetadataList", "is not a list", ""));
        }
        Ok(bytes(code, self.wanted.encoding.media_type(), self.encode(value)?))
    }

    /// A list of objects that already carry their revisions.
    pub fn list(&self, metadata: Value, mut items: Vec<Value>) -> Result<Response<Body>, Error> {
        let (value, ty) = match self.wanted.shape {
            Shape::Object => {
                if self.served.custom.is_none() {
                    // The list's own kind says what its items are.
                    items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| {
                        item.remove("apiVersion");
                        item.remove("kind");
                    });
                }
                let kind = match &self.served.custom {
                    Some(custom) => custom.definition.list_kind.clone(),
                    None => format!("{}List", self.resource().kind),
                };
                let list = json!({
                    "kind": kind, "apiVersion": self.resource().api_version(), "metadata": metadata, "items": items,
                });
                (list, self.served.list_type())
            }
            Shape::Table => {
                let mut value = table::build_table(&self.served, items.iter(), self.include_object, true);
                value["metadata"] = metadata;
                (value, schema::builtin().named("meta/v1.Table"))
            }
            Shape::PartialMetadata => return Err(self.not_a("PartialObjectMetadata", "is a list", "List")),
            Shape::PartialMetadataList => {
                let partial = |item: &Value| table::partial_metadata(self.resource(), item);
                let list = json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                    "items": items.iter().map(partial).collect::<Vec<_>>(),
                });
                (list, schema::builtin().named("meta/v1.PartialObjectMetadataList"))
            }
        };
        let encoding = self.wanted.encoding;
        let mut value = self.in_meta_version(value);
        let is_beta_metadata = self.wanted.is_beta && self.wanted.shape == Shape::PartialMetadataList;
        if is_beta_metadata && items.is_empty() {
            // Upstream makes the older version of an empty list without a list.
            value["items"] = Value::Null;
        }
        let encoded = encode(&value, ty, encoding)?;
        Ok(bytes(StatusCode::OK, encoding.media_type(), encoded))
    }

    /// What was asked for is the metadata of something else. Upstream names the type of its code.
    fn not_a(&self, wanted: &str, found: &str, suffix: &str) -> Error {
        let resource = self.resource();
        let package = internal_package(resource);
        let ty = match &self.served.custom {
            Some(_) => format!("*unstructured.Unstructured{suffix}"),
            None => format!("*{package}.{}{suffix}", resource.kind),
        };
        let message = format!("you requested {wanted}, but the requested object {found} ({ty})");
        Error::new(Reason::NotAcceptable, message)
    }

    fn encode(&self, value: Value) -> Result<Bytes, Error> {
        let (value, ty) = self.shape(value);
        encode(&value, ty, self.wanted.encoding)
    }

    /// Tables and metadata in the version that was asked for; their two versions differ in nothing else.
    fn in_meta_version(&self, mut value: Value) -> Value {
        if self.wanted.is_beta {
            table::set_meta_version(&mut value, "meta.k8s.io/v1beta1");
        }
        value
    }

    fn shape(&self, value: Value) -> (Value, Option<schema::TypeRef<'static>>) {
        let (shaped, ty) = self.shaped(value);
        (self.in_meta_version(shaped), ty)
    }

    fn shaped(&self, value: Value) -> (Value, Option<schema::TypeRef<'static>>) {
        match self.wanted.shape {
            Shape::Object => (value, self.served.object_type()),
            Shape::Table => {
                let mut shaped = table::build_table(
                    &self.served,
                    std::iter::once(&value),
                    self.include_object,
                    self.definitions,
                );
                shaped["metadata"]["resourceVersion"] = value["metadata"]["resourceVersion"].clone();
                (shaped, schema::builtin().named("meta/v1.Table"))
            }
            Shape::PartialMetadata | Shape::PartialMetadataList => (
                table::partial_metadata(self.resource(), &value),
                schema::builtin().named("meta/v1.PartialObjectMetadata"),
            ),
        }
    }
}

impl FrameEncoder {
    /// The content type of the whole stream.
    pub fn media_type(&self) -> &'static str {
        match self.0.wanted.encoding {
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Encoding::Json | Encoding::PrettyJson | Encoding::Yaml => "application/json",
        }
    }

    pub fn is_text(&self) -> bool {
        self.encoding() != Encoding::Protobuf
    }

    /// Leaves out what the columns of tables are: the first event has said it.
    pub fn omit_definitions(&mut self) {
        self.0.definitions = false;
    }

    pub fn change(&self, transition: Transition, change: &Change) -> Bytes {
        if self.0.is_verbatim() {
            let make = || json_frame(transition, change.bytes(transition), change.event.revision);
            return change.verbatim_frame(transition, make).clone();
        }
        let form = FrameForm {
            resource: self.0.resource(),
            transition,
            rendering: self.0.rendering(),
        };
        change.frame(form, || {
            self.object(transition, change.bytes(transition), change.event.revision)
        })
    }

    pub fn object(&self, transition: Transition, stored: &Bytes, revision: Revision) -> Bytes {
        if self.0.is_verbatim() {
            return json_frame(transition, stored, revision);
        }
        match self.0.served.decode_stored(stored, revision) {
            Ok(value) => self.frame(transition.name(), value),
            Err(error) => self.error(&error),
        }
    }

    pub fn bookmark(&self, revision: Revision, ends_initial: bool) -> Bytes {
        let resource = self.0.resource();
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if ends_initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let mut value = json!({ "kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata });
        if let Some(ty) = self.0.served.object_type() {
            let _ = schema::normalize(ty, &mut value);
        }
        self.frame("BOOKMARK", value)
    }

    pub fn error(&self, error: &Error) -> Bytes {
        let status = error.to_status();
        self.encoded_frame(
            "ERROR",
            encode(&status, schema::builtin().named("meta/v1.Status"), self.encoding()),
        )
    }

    fn frame(&self, event: &str, value: Value) -> Bytes {
        let (value, ty) = self.0.shape(value);
        self.encoded_frame(event, encode(&value, ty, self.encoding()))
    }

    /// Watches are streams of JSON or protobuf; YAML has no framing, and an event is one line.
    fn encoding(&self) -> Encoding {
        match self.0.wanted.encoding {
            Encoding::Protobuf => Encoding::Protobuf,
            Encoding::Json | Encoding::PrettyJson | Encoding::Yaml => Encoding::Json,
        }
    }

    fn encoded_frame(&self, event: &str, object: Result<Bytes, Error>) -> Bytes {
        let Ok(object) = object else {
            return Bytes::new();
        };
        match self.encoding() {
            Encoding::Protobuf => length_prefixed(&schema::watch_event(event, &object)),
            _ => {
                let mut frame = format!("{{\"type\":\"{event}\",\"object\":").into_bytes();
                frame.extend_from_slice(&object);
                frame.extend_from_slice(b"}\n");
                frame.into()
            }
        }
    }
}

/// A frame of a watch that shows the object as it is stored.
fn json_frame(transition: Transition, stored: &[u8], revision: Revision) -> Bytes {
    let mut frame = Vec::with_capacity(stored.len() + 64);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(transition.name().as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    schema::write_with_resource_version(&mut frame, stored, revision);
    frame.extend_from_slice(b"}\n");
    frame.into()
}

/// How many bytes stand before each frame of a protobuf stream: its length.
pub const LENGTH_BYTES: usize = 4;

fn length_prefixed(message: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(message.len() + LENGTH_BYTES);
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(message);
    frame.into()
}
