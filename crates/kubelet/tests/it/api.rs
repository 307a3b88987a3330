//! An API server for one kubelet, in memory: just enough of it, and nothing of anybody else's.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use client::{Body, Client, Transport, TransportError, body_from_bytes};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// Watches that fall this far behind are ended.
const EVENTS: usize = 4096;

#[derive(Clone)]
pub struct FakeApi(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    events: broadcast::Sender<Event>,
}

#[derive(Default)]
struct State {
    revision: u64,
    objects: BTreeMap<String, Value>,
}

impl State {
    fn list(&self, collection: &str) -> Vec<Value> {
        let objects = self.objects.iter().filter(|(path, _)| in_collection(path, collection));
        objects.map(|(_, object)| object.clone()).collect()
    }
}

#[derive(Clone)]
struct Event {
    kind: &'static str,
    collection: String,
    object: Value,
}

impl FakeApi {
    pub fn new() -> FakeApi {
        FakeApi(Arc::new(Inner {
            state: Mutex::default(),
            events: broadcast::Sender::new(EVENTS),
        }))
    }

    pub fn client(&self) -> Client {
        Client::new(Arc::new(self.clone()))
    }

    /// Creates an object, as a scheduler, a controller or a user would.
    pub fn create(&self, collection: &str, mut object: Value) -> Value {
        let name = object["metadata"]["name"]
            .as_str()
            .expect("objects have names")
            .to_owned();
        let mut state = self.0.state.lock();
        state.revision += 1;
        let revision = state.revision;
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(format!("{name}-uid-{revision}"));
        metadata["generation"] = json!(1);
        metadata["creationTimestamp"] = json!("2024-01-01T00:00:00Z");
        if let Some((_, rest)) = collection.split_once("/namespaces/") {
            metadata["namespace"] = json!(rest.split('/').next());
        }
        self.put(&mut state, collection, &name, object.clone(), "ADDED");
        object
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.0.state.lock().objects.get(path).cloned()
    }

    pub fn list(&self, collection: &str) -> Vec<Value> {
        self.0.state.lock().list(collection)
    }

    /// Changes an object, as a user would.
    pub fn patch(&self, path: &str, patch: Value) {
        let mut state = self.0.state.lock();
        let mut object = state.objects.get(path).cloned().expect("the object exists");
        merge(&mut object, &patch);
        let (collection, name) = path.rsplit_once('/').expect("a path");
        self.put(&mut state, collection, name, object, "MODIFIED");
    }

    /// Deletes as the API server does: pods on a node go when the kubelet says so.
    pub fn delete(&self, path: &str, grace_seconds: i64) -> Option<Value> {
        let mut state = self.0.state.lock();
        let mut object = state.objects.get(path).cloned()?;
        let (collection, name) = path.rsplit_once('/')?;
        if collection.ends_with("/pods") && grace_seconds > 0 {
            object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:30Z");
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace_seconds);
            self.put(&mut state, collection, name, object.clone(), "MODIFIED");
        } else {
            state.objects.remove(path);
            state.revision += 1;
            object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
            self.emit("DELETED", collection, object.clone());
        }
        Some(object)
    }

    /// Reasons and messages of the events about an object, in the order in which they were written.
    pub fn events_about(&self, name: &str) -> Vec<String> {
        let mut events = self.list("/api/v1/events");
        events.retain(|event| event["involvedObject"]["name"] == name);
        events.sort_by_key(revision_of);
        let line = |event: &Value| format!("{} {}", event["reason"], event["message"]).replace('"', "");
        events.iter().map(line).collect()
    }

    fn put(&self, state: &mut State, collection: &str, name: &str, mut object: Value, kind: &'static str) {
        state.revision += 1;
        object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        state.objects.insert(format!("{collection}/{name}"), object.clone());
        self.emit(kind, collection, object);
    }

    fn emit(&self, kind: &'static str, collection: &str, object: Value) {
        let event = Event {
            kind,
            collection: collection.to_owned(),
            object,
        };
        // Nobody may be watching.
        let _ = self.0.events.send(event);
    }

    fn answer(&self, request: &Request<Bytes>) -> (StatusCode, Value) {
        let path = request.uri().path().trim_end_matches("/status").to_owned();
        let body: Value = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
        match *request.method() {
            Method::GET => match self.get(&path) {
                Some(object) => (StatusCode::OK, object),
                None if is_collection(&path) => (StatusCode::OK, self.list_answer(&path, request)),
                None => not_found(&path),
            },
            Method::POST if path.ends_with("/token") => (StatusCode::CREATED, token(&body)),
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                if self.get(&format!("{path}/{name}")).is_some() {
                    return failure(StatusCode::CONFLICT, "AlreadyExists", &path);
                }
                self.create(&path, body);
                (StatusCode::CREATED, self.list(&path).pop().unwrap_or_default())
            }
            Method::PATCH if self.get(&path).is_none() => not_found(&path),
            Method::PATCH => {
                let object = self.get(&path).unwrap_or_default();
                let uid = body["metadata"]["uid"].as_str();
                if uid.is_some_and(|uid| object["metadata"]["uid"] != uid) {
                    return failure(StatusCode::CONFLICT, "Conflict", &path);
                }
                self.patch(&path, body);
                (StatusCode::OK, self.get(&path).unwrap_or_default())
            }
            Method::DELETE => {
                let grace = body["gracePeriodSeconds"].as_i64().unwrap_or(30);
                match self.delete(&path, grace) {
                    Some(object) => (StatusCode::OK, object),
                    None => not_found(&path),
                }
            }
            _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", &path),
        }
    }

    fn list_answer(&self, path: &str, request: &Request<Bytes>) -> Value {
        let selector = field_selector(request);
        // Under one lock: an object created between the items and the revision would be in neither list nor watch.
        let (mut items, revision) = {
            let state = self.0.state.lock();
            (state.list(path), state.revision.to_string())
        };
        items.retain(|object| selected(object, &selector));
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": revision}, "items": items})
    }

    fn watch(&self, request: &Request<Bytes>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let selector = field_selector(request);
        let query = request.uri().query().unwrap_or_default();
        let from = parameter(query, "resourceVersion")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let mut events = self.0.events.subscribe();
        let missed: Vec<Value> = self
            .list(&path)
            .into_iter()
            .filter(|object| revision_of(object) > from)
            .collect();
        let (mut sender, body) = Channel::<Bytes, TransportError>::new(16);
        tokio::spawn(async move {
            let mut sent = from;
            for object in missed.into_iter().filter(|object| selected(object, &selector)) {
                sent = sent.max(revision_of(&object));
                if sender.send_data(line("MODIFIED", &object)).await.is_err() {
                    return;
                }
            }
            while let Ok(event) = events.recv().await {
                let wanted = collection_matches(&event.collection, &path) && selected(&event.object, &selector);
                if wanted
                    && revision_of(&event.object) > sent
                    && sender.send_data(line(event.kind, &event.object)).await.is_err()
                {
                    return;
                }
            }
        });
        Response::new(body.boxed_unsync())
    }
}

#[async_trait]
impl Transport for FakeApi {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let query = request.uri().query().unwrap_or_default();
        if parameter(query, "watch").is_some() {
            return Ok(self.watch(&request));
        }
        let (code, value) = self.answer(&request);
        let mut response = Response::new(body_from_bytes(Bytes::from(value.to_string())));
        *response.status_mut() = code;
        Ok(response)
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

fn revision_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// `/api/v1/pods` holds the pods of all namespaces.
fn collection_matches(own: &str, asked: &str) -> bool {
    let split = own
        .split_once("/namespaces/")
        .and_then(|(prefix, rest)| Some((prefix, rest.split_once('/')?.1)));
    own == asked || split.is_some_and(|(prefix, resource)| format!("{prefix}/{resource}") == asked)
}

fn in_collection(path: &str, collection: &str) -> bool {
    path.rsplit_once('/')
        .is_some_and(|(own, _)| collection_matches(own, collection))
}

fn is_collection(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    matches!(
        last,
        "pods" | "services" | "configmaps" | "secrets" | "nodes" | "events" | "leases" | "persistentvolumes"
    )
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.into_iter().find(|(key, _)| *key == name)?.1;
    Some(value.replace("%3D", "=").replace("%2C", ","))
}

fn field_selector(request: &Request<Bytes>) -> Option<(String, String)> {
    let selector = parameter(request.uri().query()?, "fieldSelector")?;
    let (path, value) = selector.split_once('=')?;
    Some((path.replace('.', "/"), value.to_owned()))
}

fn selected(object: &Value, selector: &Option<(String, String)>) -> bool {
    let Some((path, value)) = selector else { return true };
    object.pointer(&format!("/{path}")).and_then(Value::as_str) == Some(value)
}

fn failure(code: StatusCode, reason: &str, path: &str) -> (StatusCode, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{path}: {reason}"), "reason": reason, "code": code.as_u16()});
    (code, status)
}

fn not_found(path: &str) -> (StatusCode, Value) {
    failure(StatusCode::NOT_FOUND, "NotFound", path)
}

fn token(body: &Value) -> Value {
    let pod = &body["spec"]["boundObjectRef"]["name"];
    json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "status": {"token": format!("token-for-{}", pod.as_str().unwrap_or_default()), "expirationTimestamp": "2099-01-01T00:00:00Z"}})
}

/// A strategic merge, as far as pods' and nodes' statuses need one.
fn merge(target: &mut Value, patch: &Value) {
    let (Value::Object(fields), Value::Object(changes)) = (&mut *target, patch) else {
        *target = patch.clone();
        return;
    };
    for (key, change) in changes {
        match (key.as_str(), change) {
            (_, Value::Null) => _ = fields.remove(key),
            ("conditions", Value::Array(changes)) => merge_conditions(fields.entry(key).or_insert(json!([])), changes),
            (_, Value::Array(items)) => {
                let items = items
                    .iter()
                    .filter(|item| item.get("$patch").is_none())
                    .cloned()
                    .collect();
                fields.insert(key.clone(), Value::Array(items));
            }
            (_, Value::Object(_)) => merge(fields.entry(key).or_insert(json!({})), change),
            _ => _ = fields.insert(key.clone(), change.clone()),
        }
    }
}

fn merge_conditions(target: &mut Value, changes: &[Value]) {
    let Some(conditions) = target.as_array_mut() else {
        return;
    };
    for change in changes {
        match conditions.iter_mut().find(|known| known["type"] == change["type"]) {
            Some(known) => merge(known, change),
            None => {
                let mut fresh = json!({});
                merge(&mut fresh, change);
                conditions.push(fresh);
            }
        }
    }
}
