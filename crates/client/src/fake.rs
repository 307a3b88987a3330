//! An API server in a few lines, for the tests of this crate: one resource with lists and watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{ObjectMeta, Reason, Resource, Value};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast;

use crate::{Body, Client, Transport, TransportError, WithMetadata, body_from_bytes};

pub static THINGS: Resource = Resource::namespaced("test.karve", "v1", "Thing", "things", "thing");

#[derive(Clone, Debug, Deserialize)]
pub struct Thing {
    pub metadata: ObjectMeta,
    pub color: String,
}

impl WithMetadata for Thing {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

#[derive(Clone)]
pub struct Fake {
    state: Arc<Mutex<State>>,
}

struct State {
    revision: u64,
    compacted: u64,
    objects: BTreeMap<String, Value>,
    events: Vec<(u64, String)>,
    live: broadcast::Sender<String>,
    lists: usize,
}

impl Default for Fake {
    fn default() -> Fake {
        Fake {
            state: Arc::new(Mutex::new(State {
                revision: 0,
                compacted: 0,
                objects: BTreeMap::new(),
                events: Vec::new(),
                live: broadcast::channel(64).0,
                lists: 0,
            })),
        }
    }
}

impl Fake {
    pub fn client(&self) -> Client {
        Client::new(Arc::new(self.clone()))
    }

    pub fn put(&self, namespace: &str, name: &str, color: &str) {
        let mut state = self.state.lock();
        state.revision += 1;
        let object = json!({"color": color, "metadata": {
            "namespace": namespace, "name": name, "resourceVersion": state.revision.to_string(),
        }});
        let known = state.objects.insert(format!("{namespace}/{name}"), object.clone());
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        state.tell(kind, &object);
    }

    pub fn delete(&self, namespace: &str, name: &str) {
        let mut state = self.state.lock();
        let Some(mut object) = state.objects.remove(&format!("{namespace}/{name}")) else {
            return;
        };
        state.revision += 1;
        object["metadata"]["resourceVersion"] = state.revision.to_string().into();
        state.tell("DELETED", &object);
    }

    /// Forgets all events, so that watches from any earlier revision fail.
    pub fn compact(&self) {
        let mut state = self.state.lock();
        state.compacted = state.revision;
        state.events.clear();
    }

    /// Ends all watches that are open.
    pub fn break_watches(&self) {
        self.state.lock().live = broadcast::channel(64).0;
    }

    pub fn lists(&self) -> usize {
        self.state.lock().lists
    }

    /// Waits for a condition that another task brings about.
    pub async fn until(&self, condition: impl Fn() -> bool) {
        for _ in 0..1000 {
            if condition() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the condition did not come about within five seconds");
    }
}

impl State {
    fn tell(&mut self, kind: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        self.events.push((self.revision, line.clone()));
        // Nobody may be watching.
        let _ = self.live.send(line);
    }

    fn watch(&self, from: u64) -> http::Response<Body> {
        if from < self.compacted {
            let gone = api::Error::new(Reason::Expired, "too old resource version");
            return answer(410, gone.to_status());
        }
        let past: Vec<String> = self
            .events
            .iter()
            .filter(|event| event.0 > from)
            .map(|event| event.1.clone())
            .collect();
        let frame = |line: String| Ok::<_, TransportError>(Frame::data(Bytes::from(line)));
        let live = futures_util::stream::unfold(self.live.subscribe(), |mut live| async move {
            let line = live.recv().await.ok()?;
            Some((line, live))
        });
        let lines = futures_util::StreamExt::chain(futures_util::stream::iter(past), live);
        let body = StreamBody::new(futures_util::StreamExt::map(lines, frame)).boxed_unsync();
        http::Response::new(body)
    }
}

#[async_trait]
impl Transport for Fake {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Body>, TransportError> {
        let mut state = self.state.lock();
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
            return Ok(state.watch(from.and_then(|from| from.parse().ok()).unwrap_or(0)));
        }
        state.lists += 1;
        let items: Vec<&Value> = state.objects.values().collect();
        let list = json!({"metadata": {"resourceVersion": state.revision.to_string()}, "items": items});
        Ok(answer(200, list))
    }
}

fn answer(code: u16, body: Value) -> http::Response<Body> {
    let mut answer = http::Response::new(body_from_bytes(Bytes::from(body.to_string())));
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
    answer
}
