//! Lists: what is asked for, pages that pin one revision, and the snapshot that whole collections are read from.

use std::sync::Arc;

use api::selector::{Requirement, Selector};
use api::{Error, Reason, Value};
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Entry, Revision, Snapshot, StoreError};

use crate::errors::store_error;
use crate::filter::{Filter, equal_to};
use crate::registry::Registry;
use crate::served::Served;

/// What a list or the start of a watch asks for.
pub struct ListRequest {
    pub filter: Filter,
    pub limit: usize,
    pub resource_version: Option<Revision>,
    /// `resourceVersionMatch=Exact`.
    pub exact: bool,
    continuation: Option<Continuation>,
}

/// What a client asks of a list, whichever resource it is of.
#[derive(Default)]
pub struct ListOptions {
    pub labels: Selector,
    /// Checked by [`check_fields`].
    pub fields: Selector,
    pub limit: usize,
    pub resource_version: Option<Revision>,
    /// `resourceVersionMatch=Exact`.
    pub exact: bool,
    pub continuation: Option<Continuation>,
}

/// Where the next page begins. Opaque to clients.
#[derive(Serialize, Deserialize)]
pub struct Continuation {
    /// The version of the token, [`TOKEN_VERSION`].
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: Revision,
    #[serde(default)]
    start: String,
}

/// The version of tokens that this server makes and understands, which is upstream's.
const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// One page of a list.
pub struct Page {
    pub revision: Revision,
    pub entries: Vec<Arc<Entry>>,
    pub continuation: Option<String>,
    pub remaining: Option<usize>,
}

impl ListRequest {
    /// A list of a namespace's objects, of those of all namespaces, or of one object.
    pub fn new(
        registry: &Registry,
        served: &Arc<Served>,
        namespace: &str,
        name: &str,
        options: ListOptions,
    ) -> Result<ListRequest, Error> {
        let mut fields = options.fields;
        let (key, exact_key) = key_range(registry, served, namespace, name, &fields)?;
        if exact_key {
            fields
                .requirements
                .retain(|requirement| !is_in_key(requirement, served, &key));
        }
        let filter = Filter {
            served: served.clone(),
            key,
            exact: exact_key,
            labels: options.labels,
            fields,
        };
        Ok(ListRequest {
            filter,
            limit: options.limit,
            resource_version: options.resource_version,
            exact: options.exact,
            continuation: options.continuation,
        })
    }

    /// Whether the whole collection is wanted as it is now, which can be streamed.
    pub fn is_whole(&self) -> bool {
        self.limit == 0 && self.continuation.is_none()
    }
}

impl Registry {
    /// The snapshot that a list is answered from.
    pub async fn list_snapshot(&self, request: &ListRequest) -> Result<Arc<dyn Snapshot>, Error> {
        let operation = &request.filter.served.figures().list;
        let snapshot = operation.time(self.wanted_snapshot(request)).await;
        snapshot.map_err(|error| match (&request.continuation, error) {
            (Some(continuation), StoreError::Compacted { .. }) => expired_page(self, continuation),
            (_, error) => store_error(error),
        })
    }

    async fn wanted_snapshot(&self, request: &ListRequest) -> Result<Arc<dyn Snapshot>, StoreError> {
        if let Some(continuation) = &request.continuation {
            return self.store.snapshot_at(continuation.rv).await;
        }
        match request.resource_version {
            Some(revision) if request.exact && revision > 0 => self.store.snapshot_at(revision).await,
            Some(revision) => self.snapshot_not_older(revision).await,
            None => self.store.latest().await,
        }
    }

    /// A state that is at least as new as a revision. Any state will do for revision 0, and one that is known to be new
    /// enough for others.
    pub(crate) async fn snapshot_not_older(&self, revision: Revision) -> Result<Arc<dyn Snapshot>, StoreError> {
        let known = self.store.snapshot();
        if known.revision() >= revision {
            return Ok(known);
        }
        let snapshot = self.store.latest().await?;
        match snapshot.revision() {
            current if current < revision => Err(StoreError::Future {
                requested: revision,
                current,
            }),
            _ => Ok(snapshot),
        }
    }

    /// One page, or everything when there is no limit.
    pub async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        let snapshot = self.list_snapshot(request).await?;
        let filter = &request.filter;
        let start = match &request.continuation {
            Some(continuation) => format!("{}{}", filter.key, continuation.start),
            None => filter.key.clone(),
        };
        // A token that was renewed after compaction continues at the newest revision.
        let mut page = Page {
            revision: snapshot.revision(),
            entries: Vec::new(),
            continuation: None,
            remaining: None,
        };
        let mut rest = snapshot.range(&filter.key, &start);
        let mut fetched = 0;
        for entry in rest.by_ref() {
            fetched += 1;
            if !filter.covers_key(&entry.key) || !(filter.is_trivial() || filter.matches(&entry.value)) {
                continue;
            }
            if request.limit > 0 && page.entries.len() == request.limit {
                let start = entry.key[filter.key.len()..].to_owned();
                page.continuation = Some(Continuation::new(snapshot.revision(), start).encode());
                page.remaining = filter.is_trivial().then(|| rest.count() + 1);
                break;
            }
            page.entries.push(entry.clone());
        }
        filter.served.figures().listed(fetched, page.entries.len());
        Ok(page)
    }
}

/// The `metadata` of a list.
pub fn list_metadata(page: &Page) -> Value {
    let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
    if let Some(continuation) = &page.continuation {
        metadata["continue"] = continuation.as_str().into();
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    metadata
}

impl Continuation {
    fn new(rv: Revision, start: String) -> Continuation {
        let v = TOKEN_VERSION.to_owned();
        Continuation { v, rv, start }
    }

    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// What upstream says of a token that is none.
    fn problem(token: &str) -> String {
        let lenient = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));
        let Ok(bytes) = lenient.decode(token.trim_end_matches('=')) else {
            return "continue key is not valid: illegal base64 data".to_owned();
        };
        let why = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(byte) if *byte != b'{' => {
                let character = char::from(*byte);
                format!("invalid character {character:?} looking for beginning of value")
            }
            _ => "unexpected end of JSON input".to_owned(),
        };
        format!("continue key is not valid: {why}")
    }

    pub fn decode(token: &str) -> Result<Continuation, Error> {
        let invalid = |why: String| Error::bad_request(format!("invalid continue token: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok();
        let mut found: Continuation = bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or_else(|| invalid(Continuation::problem(token)))?;
        found
            .check()
            .map_err(|why| invalid(format!("continue key is not valid: {why}")))?;
        // Upstream's tokens begin with a slash.
        if let Some(start) = found.start.strip_prefix('/') {
            found.start = start.to_owned();
        }
        Ok(found)
    }

    /// Whether the token is one of ours. A place outside of the collection is refused here, before it becomes part of a
    /// key.
    fn check(&self) -> Result<(), String> {
        match self {
            _ if self.v != TOKEN_VERSION => Err(format!("server does not recognize this encoded version {}", self.v)),
            _ if self.rv == 0 => Err(format!(
                "incorrect encoded start resourceVersion (version {TOKEN_VERSION})"
            )),
            _ if self.start.is_empty() => Err(format!("encoded start key empty (version {TOKEN_VERSION})")),
            _ if !is_clean(&self.start) => Err(self.start.clone()),
            _ => Ok(()),
        }
    }
}

/// Whether a place in a collection has no parts that climb or count for nothing.
fn is_clean(place: &str) -> bool {
    let mut parts = place.strip_prefix('/').unwrap_or(place).split('/');
    parts.all(|part| !matches!(part, "" | "." | ".."))
}

/// The page's revision is gone: the client may go on with a fresh token, at the price of consistency.
fn expired_page(registry: &Registry, continuation: &Continuation) -> Error {
    let fresh = Continuation::new(registry.store.snapshot().revision(), continuation.start.clone());
    let mut error = Error::new(
        Reason::Expired,
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.details().continuation = fresh.encode();
    error
}

/// Whether objects of a resource can be selected by these fields.
pub fn check_fields(served: &Served, fields: &Selector) -> Result<(), Error> {
    for path in fields.requirements.iter().map(Requirement::key) {
        if served.field(&Value::Null, path).is_none() {
            let message = match served.resource.converts_field_labels {
                true => format!("field label not supported: {path}"),
                false => {
                    format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                }
            };
            return Err(Error::bad_request(message));
        }
    }
    Ok(())
}

/// The keys a request covers: one object when it is named, else its namespace or all of them.
fn key_range(
    registry: &Registry,
    served: &Served,
    namespace: &str,
    name: &str,
    fields: &Selector,
) -> Result<(String, bool), Error> {
    let named = if name.is_empty() {
        equal_to(fields, "metadata.name").unwrap_or_default()
    } else {
        name
    };
    let within = match namespace.is_empty() {
        true => equal_to(fields, "metadata.namespace").unwrap_or_default(),
        false => namespace,
    };
    match (served.resource.namespaced, within, named) {
        (true, "", _) | (false, "", "") => Ok((served.prefix.clone(), false)),
        (true, namespace, "") => Ok((format!("{}{namespace}/", served.prefix), false)),
        (_, namespace, name) => Ok((registry.key(served, namespace, name)?.to_string(), true)),
    }
}

/// Whether every object of this one key meets the requirement, so that nobody need look inside.
fn is_in_key(requirement: &Requirement, served: &Served, key: &str) -> bool {
    let mut parts = key[served.prefix.len()..].rsplit('/');
    let (name, namespace) = (parts.next(), parts.next());
    match requirement {
        Requirement::Equals(path, value) if path == "metadata.name" => name == Some(value),
        Requirement::Equals(path, value) if path == "metadata.namespace" => namespace == Some(value),
        _ => false,
    }
}
