//! Requests that are passed on: logs, exec, attach and port-forward to a kubelet, `proxy` to pods, services and nodes.
//!
//! A connection that switches protocols is joined byte by byte, so that whatever client and node agreed on works.

mod log_socket;
mod proxy_name;
pub(crate) mod rewrite;
mod target;

use std::sync::Arc;

use admission::Operation;
use api::{Error, Path, Problems, Reason, Resource, Value};
use auth::{Decision, User};
use bytes::Bytes;
use http::header::{CONNECTION, HOST, LOCATION, UPGRADE};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use registry::{Part, WriteOptions};
use serde_json::json;
use tracing::debug;

use target::Target;
pub use target::{percent_encode, resolve_endpoint};

use crate::body::{self, Body, BoxError, RequestBody};
use crate::dial::Connection;
use crate::errors::method_not_allowed;
use crate::options;
use crate::request::{Query, RequestInfo};
use crate::resolve::ResourceRequest;
use crate::{ApiServer, gate, websocket};

/// Headers that belong to one connection or to our own gate and are never passed on.
const NOT_FORWARDED: &[&str] = &[
    "authorization",
    "host",
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "te",
];

/// How much of a kubelet's explanation is read.
const MAX_EXPLANATION: usize = 64 * 1024;

pub fn is_connect(request: &ResourceRequest<'_>) -> bool {
    let subresource = request.info().subresource.as_str();
    let resource = request.served().resource;
    match (resource.group, resource.plural) {
        ("", "pods") => matches!(subresource, "log" | "exec" | "attach" | "portforward" | "proxy"),
        ("", "nodes" | "services") => subresource == "proxy",
        _ => false,
    }
}

pub async fn run(
    server: &Arc<ApiServer>,
    resource: &ResourceRequest<'_>,
    user: &Arc<User>,
    query: &Query,
    mut request: Request<RequestBody>,
) -> Result<Response<Body>, Error> {
    let (served, info) = (resource.served(), resource.info());
    check_method(resource, request.method())?;
    // Reading logs is an ordinary read, which admission is not asked about.
    if info.subresource != "log" {
        if !query.all("dryRun").is_empty() {
            return Err(Error::bad_request("dryRun is not supported"));
        }
        admit(server, resource, user, query).await?;
    }
    let switches = request.headers().contains_key(UPGRADE);
    require_create(server, resource, user, switches).await?;
    if info.subresource == "log" {
        check_log_options(&info.name, query)?;
    }
    let found = Target::find(server, served, info, query, request.uri().query().unwrap_or_default()).await?;
    let Some(target) = found else {
        let mut nothing = Response::new(body::empty());
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    };
    if let Some(redirect) = to_directory(info, &request) {
        return Ok(redirect);
    }
    let connection = target.dial(server).await?;
    let asks_upgrade = request.headers().contains_key(UPGRADE);
    let client_side = asks_upgrade.then(|| hyper::upgrade::on(&mut request));
    // Nodes know no WebSockets for logs: those are ours.
    let log_socket = info.subresource == "log" && websocket::is_wanted(request.headers());
    let wants_upgrade = asks_upgrade && !log_socket;
    let (client_side, log_client) = if log_socket {
        (None, client_side)
    } else {
        (client_side, None)
    };

    let (parts, body) = request.into_parts();
    let mut outgoing = Request::new(Full::new(body::read(body).await?));
    *outgoing.method_mut() = parts.method;
    *outgoing.uri_mut() = target.uri.clone();
    copy_headers(&parts.headers, outgoing.headers_mut(), wants_upgrade);
    if let Ok(host) = target.host.parse() {
        outgoing.headers_mut().insert(HOST, host);
    }
    let mut response = send(connection, outgoing)
        .await
        .map_err(|error| unreachable_target(&target, error))?;
    if let Some(switched) = switched(&mut response, client_side)? {
        return Ok(switched);
    }
    if info.subresource == "log" && !response.status().is_success() {
        return Err(kubelet_error(response).await);
    }
    if let Some(client_side) = log_client {
        return log_socket::answer(&parts.headers, client_side, response.into_body());
    }
    response.headers_mut().remove(CONNECTION);
    response.headers_mut().remove("transfer-encoding");
    if info.subresource == "proxy" {
        let answered = rewrite::answer(response, &info.path_before_rest()).await;
        return answered.map_err(|error| Error::internal(error.to_string()));
    }
    let (parts, body) = response.into_parts();
    Ok(Response::from_parts(parts, body.map_err(BoxError::from).boxed_unsync()))
}

/// What a kubelet answers to a request of this server's own, up to a length. Its certificate is checked as for any other.
pub async fn ask_kubelet(server: &ApiServer, node: &str, path: &str, max_bytes: usize) -> Result<Bytes, Error> {
    let target = Target::of_kubelet(server, node, uri(path, "")?).await?;
    let connection = target.dial(server).await?;
    let mut request = Request::new(Full::default());
    *request.uri_mut() = target.uri.clone();
    if let Ok(host) = target.host.parse() {
        request.headers_mut().insert(HOST, host);
    }
    let response = send(connection, request)
        .await
        .map_err(|error| unreachable_target(&target, error))?;
    if response.status() != StatusCode::OK {
        return Err(kubelet_error(response).await);
    }
    let body = http_body_util::Limited::new(response.into_body(), max_bytes)
        .collect()
        .await;
    body.map(http_body_util::Collected::to_bytes).map_err(Error::internal)
}

/// Whatever else a connection is made by, nothing answers.
fn check_method(resource: &ResourceRequest<'_>, method: &Method) -> Result<(), Error> {
    let info = resource.info();
    let subresource = resource.served().resource.subresource(&info.subresource);
    let verbs = subresource.map_or(&[][..], |subresource| subresource.verbs);
    let is_known = verbs.iter().any(|verb| verb.as_str() == info.verb);
    let is_question = info.subresource == "proxy" && *method == Method::OPTIONS;
    match is_known || is_question {
        true => Ok(()),
        false => Err(method_not_allowed()),
    }
}

/// WebSockets begin with GET, which would let everyone run commands who may read. Whoever connects to a pod needs the
/// right to create, by whichever method; and whoever switches protocols with a kubelet, for that is how a kubelet runs
/// commands.
async fn require_create(
    server: &ApiServer,
    resource: &ResourceRequest<'_>,
    user: &User,
    switches: bool,
) -> Result<(), Error> {
    let info = resource.info();
    let runs = match info.subresource.as_str() {
        "exec" | "attach" | "portforward" => true,
        _ => resource.served().resource.plural == "nodes" && switches,
    };
    if !runs || info.verb == "create" {
        return Ok(());
    }
    match gate::decide_verb(&server.gate, &server.registry, user, resource, "create").await {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => {
            Err(Error::forbidden(resource.served().resource, &info.name, reason))
        }
    }
}

/// Asks admission whether a user may connect to an object.
async fn admit(
    server: &ApiServer,
    request: &ResourceRequest<'_>,
    user: &Arc<User>,
    query: &Query,
) -> Result<(), Error> {
    let (served, info) = (request.served(), request.info());
    let options = WriteOptions::internal(user.clone());
    let part = Part {
        operation: Operation::Connect,
        name: &info.name,
        subresource: &info.subresource,
        object: connect_options(served.resource, &info.subresource, query),
        old_object: Value::Null,
    };
    let admitted = server.registry.admit_part(served, request.namespace(), part, &options);
    admitted.await.map(drop)
}

/// What a connection is asked for, as the object that admission sees: `PodExecOptions` and the like.
fn connect_options(resource: &Resource, subresource: &str, query: &Query) -> Value {
    let body = resource.subresource(subresource).and_then(|found| found.body);
    let Some((group, version, kind)) = body else {
        return Value::Null;
    };
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut object = json!({"kind": kind, "apiVersion": api_version});
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if query.first(flag).is_some() && query.flag(flag) {
            object[flag] = true.into();
        }
    }
    for text in ["container", "path"] {
        if let Some(value) = query.text(text) {
            object[text] = value.into();
        }
    }
    if !query.all("command").is_empty() {
        object["command"] = json!(query.all("command"));
    }
    let ports: Vec<i64> = query.all("ports").iter().filter_map(|port| port.parse().ok()).collect();
    if !ports.is_empty() {
        object["ports"] = json!(ports);
    }
    object
}

static LOG_OPTIONS: Resource = Resource::namespaced("", "v1", "PodLogOptions", "", "");

/// What is asked of a log makes sense, whether or not there is one.
fn check_log_options(pod: &str, query: &Query) -> Result<(), Error> {
    let mut problems = Problems::default();
    let (root, too_low) = (Path::default(), "must be greater than 0");
    let number = |field: &str| query.text(field).map(options::parse_int).transpose();
    let (tail, limit, since) = (number("tailLines")?, number("limitBytes")?, number("sinceSeconds")?);
    if let Some(lines) = tail.filter(|lines| *lines < 0) {
        problems.invalid(&root, "tailLines", lines, "must be greater than or equal to 0");
    }
    if let Some(bytes) = limit.filter(|bytes| *bytes < 1) {
        problems.invalid(&root, "limitBytes", bytes, too_low);
    }
    match (since, query.text("sinceTime")) {
        (Some(_), Some(_)) => {
            let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            problems.forbidden(&root, "", detail);
        }
        (Some(seconds @ ..1), None) => problems.invalid(&root, "sinceSeconds", seconds, too_low),
        _ => {}
    }
    if query.text("stream").is_some() {
        problems.forbidden(&root, "stream", "may not be specified");
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::invalid(&LOG_OPTIONS, pod, problems.into_vec())),
    }
}

/// A proxied root without its slash would make every relative link of the page wrong.
fn to_directory(info: &RequestInfo, request: &Request<RequestBody>) -> Option<Response<Body>> {
    let is_root = info.subresource == "proxy" && info.rest.is_empty() && !info.path.ends_with('/');
    let is_visit = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_root || !is_visit || request.headers().contains_key(UPGRADE) {
        return None;
    }
    let query = request
        .uri()
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let location = format!("{}/{query}", info.path_before_rest()).parse().ok()?;
    response.headers_mut().insert(LOCATION, location);
    Some(response)
}

/// Joins both sides when the other one agreed to switch protocols. Any other answer ends the client's wish: bytes that it
/// sends afterwards are requests to this server again, and never reach the connection that this server is known on.
pub fn switched(
    response: &mut Response<hyper::body::Incoming>,
    client_side: Option<OnUpgrade>,
) -> Result<Option<Response<Body>>, Error> {
    match (response.status(), client_side) {
        (StatusCode::SWITCHING_PROTOCOLS, Some(client_side)) => {
            tokio::spawn(join(client_side, hyper::upgrade::on(&mut *response)));
            let mut switched = Response::new(body::empty());
            *switched.status_mut() = response.status();
            *switched.headers_mut() = std::mem::take(response.headers_mut());
            Ok(Some(switched))
        }
        (StatusCode::SWITCHING_PROTOCOLS, None) => Err(Error::new(
            Reason::ServiceUnavailable,
            "error trying to reach service: it switched protocols without being asked to",
        )),
        _ => Ok(None),
    }
}

pub async fn send(
    connection: Connection,
    request: Request<Full<Bytes>>,
) -> hyper::Result<Response<hyper::body::Incoming>> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            debug!(%error, "A proxied connection ended with an error");
        }
    });
    sender.send_request(request).await
}

/// Copies bytes both ways until either side is done.
async fn join(client: OnUpgrade, node: OnUpgrade) {
    let (client, node) = match tokio::try_join!(client, node) {
        Ok(both) => both,
        Err(error) => {
            debug!(%error, "Failed to upgrade a proxied connection");
            return;
        }
    };
    let copied = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(node)).await;
    if let Err(error) = copied {
        debug!(%error, "An upgraded connection ended with an error");
    }
}

pub fn copy_headers(from: &HeaderMap, to: &mut HeaderMap, upgrade: bool) {
    let hop = |name: &HeaderName| {
        NOT_FORWARDED.contains(&name.as_str())
            || name.as_str().starts_with("impersonate-")
            || (!upgrade && (name == CONNECTION || name == UPGRADE))
    };
    for (name, value) in from.iter().filter(|(name, _)| !hop(name)) {
        to.append(name.clone(), value.clone());
    }
}

/// Kubelets explain themselves in plain text, clients expect a Status.
async fn kubelet_error(response: Response<hyper::body::Incoming>) -> Error {
    let status = response.status();
    let body = http_body_util::Limited::new(response.into_body(), MAX_EXPLANATION)
        .collect()
        .await;
    let text = body
        .map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned())
        .unwrap_or_default();
    match status {
        StatusCode::BAD_REQUEST => Error::bad_request(text),
        StatusCode::NOT_FOUND => Error::new(Reason::NotFound, text),
        _ => Error::internal(text),
    }
}

fn unreachable_target(target: &Target, error: hyper::Error) -> Error {
    Error::new(
        Reason::ServiceUnavailable,
        format!("error trying to reach {}: {error}", target.host),
    )
}

/// A path and query that is known to be well formed because it was taken from a request.
pub fn uri(path: &str, query: &str) -> Result<Uri, Error> {
    let text = if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    };
    text.parse()
        .map_err(|_| Error::bad_request(format!("invalid path {path:?}")))
}
