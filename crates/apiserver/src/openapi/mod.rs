//! OpenAPI documents: version 3 for each group and version, version 2 for everything at once, in JSON and in protobuf.
//!
//! `types` makes schemas of built-in types from the fact table, `custom` those of custom resources from their
//! definitions; `paths` says which requests there are for resources, `discovery` which name none. Documents are made
//! when they are first asked for and kept compressed; those of custom resources live and die with the table they were
//! made from.

mod custom;
mod descriptions;
mod discovery;
mod enums;
mod paths;
mod protobuf;
mod types;
mod v2;
mod words;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::{Arc, LazyLock, OnceLock};

use api::{Error, Reason, Value};
use arc_swap::ArcSwap;
use bytes::Bytes;
use flate2::Compression;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Response, StatusCode};
use registry::{CustomResources, Registry};
use serde_json::{Map, json};

use crate::aggregation::Aggregation;
use crate::body::Body;
use crate::request::Query;
use crate::respond;

/// The media types of protobuf: as it can be parsed, which is what answers carry, and with an `@`, which cannot.
const V3_PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
];
const V2_PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// A document, compressed, with the hash that names its content.
pub struct Document {
    gzip: Bytes,
    hash: String,
}

/// A document of version 3 in both forms. That in protobuf is made from the other when it is first asked for, which few
/// clients do.
pub struct Forms {
    json: Document,
    protobuf: OnceLock<Result<Document, String>>,
}

/// The documents of the present table of custom resources.
#[derive(Default)]
pub struct Documents(ArcSwap<Published>);

/// Documents made from one table of custom resources.
#[derive(Default)]
struct Published {
    custom_resources: Arc<CustomResources>,
    v3: OnceLock<BTreeMap<String, Forms>>,
    v2: OnceLock<Result<[Document; 2], String>>,
}

impl Documents {
    /// What was made from this table, or an empty place for it.
    fn published_with(&self, custom_resources: Arc<CustomResources>) -> Arc<Published> {
        let known = self.0.load();
        if Arc::ptr_eq(&known.custom_resources, &custom_resources) {
            return known.clone();
        }
        let fresh = Arc::new(Published {
            custom_resources,
            ..Published::default()
        });
        self.0.store(fresh.clone());
        fresh
    }
}

/// Every version-3 document of built-in groups by its path below `/openapi/v3/`.
static BUILT_IN: LazyLock<BTreeMap<String, Forms>> = LazyLock::new(|| {
    let _texts = descriptions::hold();
    let versions = api::kinds::GROUP_VERSIONS.iter();
    versions
        .map(|(group, version)| (path_of(group, version), types::document(group, version)))
        .chain(discovery::documents())
        .map(|(path, document)| (path, Forms::new(&document)))
        .collect()
});

pub async fn index(documents: &Documents, registry: &Registry, aggregation: &Aggregation) -> Response<Body> {
    let published = documents.published_with(registry.custom_resources());
    make(&published, make_v3).await;
    let mut paths: Map<String, Value> = BUILT_IN
        .iter()
        .chain(published.v3())
        .map(|(path, forms)| {
            let url = format!("/openapi/v3/{path}?hash={}", forms.json.hash);
            (path.clone(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    for remote in &aggregation.table().remotes {
        if let Some(url) = &remote.seen().openapi {
            let path = path_of(&remote.group, &remote.version);
            paths.insert(path, json!({ "serverRelativeURL": url }));
        }
    }
    respond::json(StatusCode::OK, &json!({ "paths": paths }))
}

/// One version-3 document. A URL with the hash of its content can be kept for ever.
pub async fn document(
    documents: &Documents,
    registry: &Registry,
    path: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Option<Result<Response<Body>, Error>> {
    let published = documents.published_with(registry.custom_resources());
    let in_protobuf = accepted(headers, &V3_PROTOBUF);
    let wanted = path.to_owned();
    let made = move |published: &Published| {
        let found = published.find(&wanted).filter(|_| in_protobuf == Some(true));
        let _ = found.map(Forms::protobuf);
    };
    make(&published, made).await;
    let found = published.find(path)?;
    let answered = match in_protobuf {
        Some(false) => found.json.answer(headers, "application/json"),
        Some(true) => found
            .protobuf()
            .and_then(|document| document.answer(headers, V3_PROTOBUF[0])),
        None => Err(not_acceptable(&V3_PROTOBUF)),
    };
    let mut response = match answered {
        Ok(response) => response,
        Err(error) => return Some(Err(error)),
    };
    if let Some(hash) = query.text("hash") {
        if hash != found.json.hash {
            let location = format!("/openapi/v3/{path}?hash={}", found.json.hash);
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            if let Ok(location) = HeaderValue::from_str(&location) {
                response.headers_mut().insert(http::header::LOCATION, location);
            }
        } else {
            let forever = HeaderValue::from_static("public, immutable");
            response.headers_mut().insert(http::header::CACHE_CONTROL, forever);
        }
    }
    Some(Ok(response))
}

/// Everything at once, as version 2 has it.
pub async fn v2(documents: &Documents, registry: &Registry, headers: &HeaderMap) -> Result<Response<Body>, Error> {
    let published = documents.published_with(registry.custom_resources());
    let made = |published: &Published| {
        let _ = published.v2();
    };
    make(&published, made).await;
    let [json, protobuf] = published.v2().map_err(Error::internal)?;
    match accepted(headers, &V2_PROTOBUF) {
        Some(true) => protobuf.answer(headers, V2_PROTOBUF[0]),
        Some(false) => json.answer(headers, "application/json"),
        None => Err(not_acceptable(&V2_PROTOBUF)),
    }
}

fn make_v3(published: &Published) {
    LazyLock::force(&BUILT_IN);
    published.v3();
}

/// Makes documents where it holds up no other request: the first time takes a moment.
async fn make(published: &Arc<Published>, work: impl FnOnce(&Published) + Send + 'static) {
    let published = published.clone();
    // A failure would show again, and be told, when the documents are read.
    let _ = tokio::task::spawn_blocking(move || work(&published)).await;
}

/// Whether the client takes protobuf first, or JSON; `None` when it takes neither.
fn accepted(headers: &HeaderMap, protobuf: &[&str]) -> Option<bool> {
    let accept = headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if accept.is_empty() {
        return Some(false);
    }
    accept
        .split(',')
        .find_map(|clause| match clause.split(';').next().unwrap_or_default().trim() {
            name if protobuf.contains(&name) => Some(true),
            "application/json" | "*/*" | "application/*" => Some(false),
            _ => None,
        })
}

fn not_acceptable(protobuf: &[&str]) -> Error {
    Error::new(
        Reason::NotAcceptable,
        format!(
            "only the following media types are accepted: application/json, {}",
            protobuf.join(", ")
        ),
    )
}

impl Published {
    fn find(&self, path: &str) -> Option<&Forms> {
        BUILT_IN.get(path).or_else(|| self.v3().get(path))
    }

    /// The version-3 documents of custom groups.
    fn v3(&self) -> &BTreeMap<String, Forms> {
        self.v3.get_or_init(|| {
            let _texts = descriptions::hold();
            let versions = self.custom_resources.group_versions();
            versions
                .map(|(group, version)| {
                    let document = custom::document(&self.custom_resources, group, version);
                    (path_of(group, version), Forms::new(&document))
                })
                .collect()
        })
    }

    fn v2(&self) -> Result<&[Document; 2], &String> {
        self.v2.get_or_init(|| v2::documents(&self.custom_resources)).as_ref()
    }
}

impl Forms {
    fn new(document: &Value) -> Forms {
        let content = document.to_string();
        Forms {
            json: Document::new(&[compressed(content.as_bytes())], &hash(content.as_bytes())),
            protobuf: OnceLock::new(),
        }
    }

    fn protobuf(&self) -> Result<&Document, Error> {
        let made = self.protobuf.get_or_init(|| {
            let content = self.json.content().map_err(|error| error.to_string())?;
            let document = serde_json::from_slice(&content).map_err(|error| error.to_string())?;
            let message = protobuf::encode(&protobuf::V3, &document).map_err(|error| error.to_string())?;
            Ok(Document::new(&[compressed(&message)], &self.json.hash))
        });
        made.as_ref().map_err(Error::internal)
    }
}

impl Document {
    /// A document of compressed pieces.
    fn new(pieces: &[Bytes], hash: &str) -> Document {
        Document {
            gzip: pieces.concat().into(),
            hash: hash.to_owned(),
        }
    }

    fn content(&self) -> std::io::Result<Vec<u8>> {
        let mut content = Vec::new();
        flate2::read::MultiGzDecoder::new(&self.gzip[..]).read_to_end(&mut content)?;
        Ok(content)
    }

    fn answer(&self, headers: &HeaderMap, media_type: &'static str) -> Result<Response<Body>, Error> {
        let tag = format!("\"{}\"", self.hash);
        let text = |name| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let mut response = if text(IF_NONE_MATCH).split(',').any(|known| known.trim() == tag) {
            respond::bytes(StatusCode::NOT_MODIFIED, media_type, Bytes::new())
        } else if text(ACCEPT_ENCODING).contains("gzip") {
            let mut response = respond::bytes(StatusCode::OK, media_type, self.gzip.clone());
            response
                .headers_mut()
                .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        } else {
            let content = self.content().map_err(Error::internal)?;
            respond::bytes(StatusCode::OK, media_type, content)
        };
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            response.headers_mut().insert(ETAG, tag);
        }
        response
            .headers_mut()
            .insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        Ok(response)
    }
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn compressed(content: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::new(6));
    // Writing to memory does not fail.
    let gzip = encoder.write_all(content).and_then(|()| encoder.finish());
    gzip.unwrap_or_default().into()
}

/// Two rounds of FNV with different seeds, in the length of the hashes that clients know.
fn hash(content: &[u8]) -> String {
    let round = |seed: u64| {
        content.iter().fold(seed, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    format!(
        "{:016X}{:016X}",
        round(0xcbf2_9ce4_8422_2325),
        round(0x9ae1_6a3b_2f90_404f)
    )
}
