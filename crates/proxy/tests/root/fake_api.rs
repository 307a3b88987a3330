//! An API server in a few lines: lists and watches of whatever was put into it; writes are noted, and a second create
//! of the same object is refused. Other crates' tests include this file.

#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use client::{Body, Client, Transport, TransportError, body_from_bytes};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use serde_json::{Value, json};
use std::sync::Mutex;

#[derive(Clone, Default)]
pub struct FakeApi(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    revision: u64,
    /// By resource, then by key.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    watches: Vec<(String, Sender<Bytes, TransportError>)>,
    requests: Vec<String>,
    /// Resources that nobody may read.
    forbidden: BTreeSet<String>,
}

impl FakeApi {
    pub fn client(&self) -> Client {
        Client::new(Arc::new(self.clone()))
    }

    /// Adds or replaces an object of a resource, such as `services`.
    pub fn put(&self, resource: &str, mut object: Value) {
        let mut state = self.0.lock().unwrap();
        state.revision += 1;
        object["metadata"]["resourceVersion"] = state.revision.to_string().into();
        let key = format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
        let objects = state.objects.entry(resource.to_owned()).or_default();
        let known = objects.insert(key, object.clone());
        state.tell(resource, if known.is_some() { "MODIFIED" } else { "ADDED" }, &object);
    }

    /// Lets nobody list or watch a resource, or everybody again.
    pub fn forbid(&self, resource: &str, forbidden: bool) {
        let mut state = self.0.lock().unwrap();
        match forbidden {
            true => state.forbidden.insert(resource.to_owned()),
            false => state.forbidden.remove(resource),
        };
    }

    /// All writes, as method, path and body.
    pub fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().requests.clone()
    }

    pub fn delete(&self, resource: &str, name: &str) {
        let mut state = self.0.lock().unwrap();
        state.revision += 1;
        let objects = state.objects.entry(resource.to_owned()).or_default();
        let key = objects
            .iter()
            .find(|(_, object)| object["metadata"]["name"] == name)
            .map(|(key, _)| key.clone());
        if let Some(object) = key.and_then(|key| objects.remove(&key)) {
            state.tell(resource, "DELETED", &object);
        }
    }
}

impl State {
    fn write(&mut self, request: &http::Request<Bytes>) -> http::Response<Body> {
        let body = String::from_utf8_lossy(request.body());
        let line = |method: &str| format!("{method} {} {body}", request.uri().path());
        let name = |line: &str| {
            line.find("\"name\"")
                .map(|at| line[at..].chars().take(30).collect::<String>())
        };
        let known = self
            .requests
            .iter()
            .any(|past| past.starts_with("POST") && past.contains(request.uri().path()) && name(past) == name(&body));
        let line = line(request.method().as_str());
        self.requests.push(line);
        let mut answer = http::Response::new(body_from_bytes(Bytes::from_static(b"{}")));
        if known && request.method() == http::Method::POST {
            let status = json!({"kind": "Status", "status": "Failure", "reason": "AlreadyExists", "code": 409});
            answer = http::Response::new(body_from_bytes(Bytes::from(status.to_string())));
            *answer.status_mut() = http::StatusCode::CONFLICT;
        }
        answer
    }

    fn tell(&mut self, resource: &str, kind: &str, object: &Value) {
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": object})));
        for (_, watch) in self.watches.iter_mut().filter(|(watched, _)| watched == resource) {
            let _ = watch.try_send(http_body::Frame::data(line.clone()));
        }
    }
}

#[async_trait]
impl Transport for FakeApi {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Body>, TransportError> {
        let mut state = self.0.lock().unwrap();
        if request.method() != http::Method::GET {
            return Ok(state.write(&request));
        }
        let resource = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        if state.forbidden.contains(&resource) {
            let message =
                format!("{resource} is forbidden: User \"system:node:here\" cannot list resource \"{resource}\"");
            let status =
                json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message});
            let mut answer = http::Response::new(body_from_bytes(Bytes::from(status.to_string())));
            *answer.status_mut() = http::StatusCode::FORBIDDEN;
            return Ok(answer);
        }
        if request.uri().query().unwrap_or_default().contains("watch=true") {
            let (sender, body) = Channel::new(64);
            state.watches.push((resource, sender));
            return Ok(http::Response::new(body.boxed_unsync()));
        }
        let items: Vec<Value> = state
            .objects
            .get(&resource)
            .into_iter()
            .flat_map(|all| all.values().cloned())
            .collect();
        let list = json!({"metadata": {"resourceVersion": state.revision.to_string()}, "items": items});
        Ok(http::Response::new(body_from_bytes(Bytes::from(list.to_string()))))
    }
}
