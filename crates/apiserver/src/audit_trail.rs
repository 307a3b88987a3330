//! What the audit log is told of one request on its way through the pipeline.
//!
//! Without a policy there is no [`Trail`] and nothing here runs. With one, a trail goes beside the request, as its remarks
//! do, and whoever learns something that belongs in the log adds it to the trail.

mod body;

use std::net::IpAddr;
use std::sync::Arc;

use admission::Remarks;
use api::{Error, Value};
use audit::{Auditor, Event, Level, ObjectReference, ResponseStatus, Stage, Treatment, UserInfo};
use auth::{Attributes, Decision, User};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use parking_lot::Mutex;

use crate::body::{Body, RequestBody};
use crate::negotiate::Encoding;
use crate::request::RequestInfo;

pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Ids that clients choose are cut to this.
const MAX_ID_CHARS: usize = 64;
/// Addresses that a client says it came through, and that are noted.
const MAX_SOURCES: usize = 16;
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

tokio::task_local! {
    static TRAIL: Arc<Trail>;
}

/// One request as the audit log will see it.
pub struct Trail {
    auditor: Arc<Auditor>,
    remarks: Arc<Remarks>,
    long_running: bool,
    received: String,
    state: Mutex<State>,
}

struct State {
    treatment: Treatment,
    event: Event,
    is_done: bool,
}

/// Runs a request with its trail beside it.
pub async fn follow<T>(trail: Option<Arc<Trail>>, request: impl Future<Output = T>) -> T {
    match trail {
        Some(trail) => TRAIL.scope(trail, request).await,
        None => request.await,
    }
}

/// The trail of the current request, if it has one.
pub fn current() -> Option<Arc<Trail>> {
    TRAIL.try_with(Arc::clone).ok()
}

impl Trail {
    pub fn new(
        auditor: &Arc<Auditor>,
        request: &Request<RequestBody>,
        address: Option<IpAddr>,
        (info, long_running): (&RequestInfo, bool),
        remarks: &Arc<Remarks>,
    ) -> Arc<Trail> {
        let headers = request.headers();
        let received = schema::time::format_micro(schema::time::now());
        let object_ref = info.is_resource.then(|| ObjectReference {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            api_group: info.group.clone(),
            api_version: info.version.clone(),
            subresource: info.subresource.clone(),
            ..ObjectReference::default()
        });
        let event = Event {
            kind: (),
            api_version: (),
            level: Level::None,
            audit_id: audit_id(headers),
            stage: Stage::RequestReceived,
            request_uri: request
                .uri()
                .path_and_query()
                .map(ToString::to_string)
                .unwrap_or_default(),
            verb: info.verb.to_owned(),
            user: UserInfo::default(),
            impersonated_user: None,
            source_ips: source_ips(headers, address),
            user_agent: header_text(headers, &USER_AGENT),
            object_ref,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: received.clone(),
            stage_timestamp: String::new(),
            annotations: std::collections::BTreeMap::new(),
        };
        Arc::new(Trail {
            auditor: auditor.clone(),
            remarks: remarks.clone(),
            long_running,
            received,
            state: Mutex::new(State {
                treatment: Treatment::default(),
                event,
                is_done: false,
            }),
        })
    }

    /// Somebody made the request, or nobody whom the server knows. Now the policy can be asked.
    pub fn authenticated(&self, user: Option<&User>, info: &RequestInfo) {
        let nobody = User::default();
        let attributes = Attributes {
            user: user.unwrap_or(&nobody),
            verb: info.verb,
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path: &info.path,
            is_resource: info.is_resource,
            field_selector: None,
            label_selector: None,
        };
        let treatment = self.auditor.policy.treatment(&attributes);
        self.auditor.decided(treatment.level);
        {
            let mut state = self.state.lock();
            state.event.level = treatment.level;
            state.treatment = treatment;
            state.event.user = user.map(UserInfo::from).unwrap_or_default();
        }
        self.record(Stage::RequestReceived);
    }

    /// The user acts as somebody else.
    pub fn impersonated(&self, user: &User) {
        self.state.lock().event.impersonated_user = Some(user.into());
    }

    pub fn authorized(&self, decision: &Decision) {
        let (decision, reason) = match decision {
            Decision::Allow(reason) => ("allow", reason),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => ("forbid", reason),
        };
        self.remarks.annotate("authorization.k8s.io/decision", decision);
        self.remarks.annotate("authorization.k8s.io/reason", reason);
    }

    /// The body of a write. JSON is noted as it came; others when they have been decoded.
    pub fn body_read(&self, headers: &HeaderMap, body: &Bytes) {
        let media_type = header_text(headers, &CONTENT_TYPE);
        if self.level() < Level::Request || body.is_empty() || media_type.contains("protobuf") {
            return;
        }
        let object = match media_type.contains("yaml") {
            true => schema::parse_yaml(body).ok(),
            false => serde_json::from_slice(body).ok(),
        };
        self.state.lock().event.request_object = object;
    }

    /// The object of a write, decoded.
    pub fn object_decoded(&self, object: &Value) {
        let level = self.level();
        if level == Level::None {
            return;
        }
        let mut state = self.state.lock();
        if let Some(reference) = &mut state.event.object_ref {
            for (field, target) in [
                ("name", &mut reference.name),
                ("namespace", &mut reference.namespace),
                ("uid", &mut reference.uid),
                ("resourceVersion", &mut reference.resource_version),
            ] {
                if target.is_empty() {
                    *target = object["metadata"][field].as_str().unwrap_or_default().to_owned();
                }
            }
        }
        if level >= Level::Request && state.event.request_object.is_none() {
            state.event.request_object = Some(object.clone());
        }
    }

    /// Why the request failed.
    pub fn failed(&self, error: &Error) {
        let status = error.to_status();
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        let mut state = self.state.lock();
        state.event.response_status = Some(ResponseStatus {
            status: text("status"),
            message: text("message"),
            reason: text("reason"),
            code: error.code(),
            ..ResponseStatus::default()
        });
    }

    pub fn panicked(&self) {
        let error = Error::internal("the request could not be handled");
        self.failed(&error);
        self.record(Stage::Panic);
        self.state.lock().is_done = true;
    }

    /// The answer on its way out: it is noted when it has been sent.
    pub fn answered(self: &Arc<Self>, mut response: Response<Body>) -> Response<Body> {
        let level = {
            let mut state = self.state.lock();
            let code = response.status().as_u16();
            state.event.response_status.get_or_insert_default().code = code;
            if let Ok(id) = HeaderValue::from_str(&state.event.audit_id) {
                response.headers_mut().insert(AUDIT_ID, id);
            }
            match state.is_done {
                true => Level::None,
                false => state.event.level,
            }
        };
        if level == Level::None {
            return response;
        }
        if self.long_running {
            self.record(Stage::ResponseStarted);
        }
        body::watched(
            response,
            self.clone(),
            level == Level::RequestResponse && !self.long_running,
        )
    }

    /// The answer has been sent, or the client has gone. `sent` is what it came to, if that is wanted.
    fn completed(&self, sent: Option<(Option<Encoding>, &[u8])>) {
        let object = sent.and_then(|(encoding, bytes)| decoded_answer(encoding?, bytes));
        self.state.lock().event.response_object = object;
        self.record(Stage::ResponseComplete);
        self.state.lock().is_done = true;
    }

    fn level(&self) -> Level {
        self.state.lock().event.level
    }

    fn record(&self, stage: Stage) {
        let state = self.state.lock();
        if state.event.level == Level::None || state.treatment.omit_stages.contains(&stage) {
            return;
        }
        let mut event = state.event.clone();
        event.stage = stage;
        event.stage_timestamp = match stage {
            Stage::RequestReceived => self.received.clone(),
            _ => schema::time::format_micro(schema::time::now()),
        };
        event.annotations = self.remarks.annotations();
        self.auditor.record(&state.treatment, event);
    }
}

fn decoded_answer(encoding: Encoding, bytes: &[u8]) -> Option<Value> {
    match encoding {
        Encoding::Json | Encoding::PrettyJson => serde_json::from_slice(bytes).ok(),
        Encoding::Yaml => schema::parse_yaml(bytes).ok(),
        Encoding::Protobuf => schema::decode_object(schema::builtin(), bytes).ok(),
    }
}

/// The id that the client chose, if it is one, or a new one.
fn audit_id(headers: &HeaderMap) -> String {
    let given = header_text(headers, &AUDIT_ID);
    match given.is_empty() {
        true => clock::uid(),
        false => given.chars().take(MAX_ID_CHARS).collect(),
    }
}

/// Where the request came from, as far as proxies on the way said so; the last one is who connected.
fn source_ips(headers: &HeaderMap, connected: Option<IpAddr>) -> Vec<String> {
    let mut found = Vec::new();
    let (forwarded, real) = (header_text(headers, &FORWARDED_FOR), header_text(headers, &REAL_IP));
    let given = forwarded.split(',').chain([real.as_str()]);
    let given = given.filter_map(|ip| ip.trim().parse::<IpAddr>().ok());
    for ip in given.take(MAX_SOURCES).chain(connected) {
        let text = ip.to_canonical().to_string();
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

fn header_text(headers: &HeaderMap, name: &HeaderName) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

/// In what an answer is written, if it is an object of the API.
fn encoding_of(response: &Response<Body>) -> Option<Encoding> {
    let media_type = header_text(response.headers(), &CONTENT_TYPE);
    [Encoding::Json, Encoding::Yaml, Encoding::Protobuf]
        .into_iter()
        .find(|encoding| media_type.starts_with(encoding.media_type()))
        .filter(|_| !response.headers().contains_key(http::header::CONTENT_ENCODING))
}
