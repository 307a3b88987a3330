//! Requests to another API server: passed on for a user, or asked by this server itself.

use std::sync::Arc;
use std::time::Duration;

use api::{Error, Reason, Value};
use auth::User;
use bytes::Bytes;
use client::ServiceResolver;
use http::header::{ACCEPT, CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use tokio::time::timeout;

use super::table::Remote;
use crate::body::{self, Body, BoxError, RequestBody};
use crate::connect::{self, Connection};
use crate::{ApiServer, respond};

/// How long a server may take to say what it serves, and how much it may say.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// Passes a request on in the name of its user.
pub async fn forward(
    server: &Arc<ApiServer>,
    remote: &Remote,
    user: &User,
    mut request: Request<RequestBody>,
) -> Result<Response<Body>, Error> {
    if !remote.seen().available {
        let text = "service unavailable\n".to_owned();
        return Ok(respond::bytes(
            StatusCode::SERVICE_UNAVAILABLE,
            "text/plain; charset=utf-8",
            text,
        ));
    }
    let wants_upgrade = request.headers().contains_key(UPGRADE);
    let client_side = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let mut outgoing = Request::new(Full::new(body::read(body).await?));
    *outgoing.method_mut() = parts.method;
    *outgoing.uri_mut() = connect::uri(parts.uri.path(), parts.uri.query().unwrap_or_default())?;
    let mut headers = parts.headers;
    strip_claims(&mut headers);
    connect::copy_headers(&headers, outgoing.headers_mut(), wants_upgrade);
    prepare(outgoing.headers_mut(), remote, user)?;
    let connection = dial(server, remote).await.map_err(|error| unreachable(remote, error))?;
    let mut response = connect::send(connection, outgoing)
        .await
        .map_err(|error| unreachable(remote, error.to_string()))?;
    if let Ok(switched) = connect::switched(&mut response, client_side) {
        return Ok(switched);
    }
    response.headers_mut().remove(CONNECTION);
    response.headers_mut().remove(TRANSFER_ENCODING);
    let (parts, body) = response.into_parts();
    Ok(Response::from_parts(parts, body.map_err(BoxError::from).boxed_unsync()))
}

/// The version-3 OpenAPI document below `/openapi/v3/` that another server has, if it is another's.
pub async fn document(
    server: &Arc<ApiServer>,
    path: &str,
    headers: &HeaderMap,
) -> Option<Result<Response<Body>, Error>> {
    let remote = server.aggregation.remote_of(path)?;
    let mut request = Request::new(body::empty());
    *request.uri_mut() = connect::uri(&format!("/openapi/v3/{path}"), "").ok()?;
    *request.headers_mut() = headers.clone();
    Some(forward(server, &remote, &own_user(), request).await)
}

/// Reads JSON from another server in this server's own name.
pub async fn ask(server: &ApiServer, remote: &Remote, path: &str) -> Result<Value, String> {
    let exchange = async {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = path.parse().map_err(|_| format!("invalid path {path:?}"))?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        prepare(request.headers_mut(), remote, &own_user()).map_err(|error| error.message)?;
        let connection = dial(server, remote).await?;
        let response = connect::send(connection, request)
            .await
            .map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("bad status: {}", response.status().as_u16()));
        }
        let answer = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let answer = answer.map_err(|error| error.to_string())?.to_bytes();
        serde_json::from_slice(&answer).map_err(|error| format!("the answer is not JSON: {error}"))
    };
    match timeout(ASK_TIMEOUT, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err("context deadline exceeded".to_owned()),
    }
}

fn own_user() -> User {
    User::system("system:kube-aggregator", &["system:masters"])
}

async fn dial(server: &ApiServer, remote: &Remote) -> Result<Connection, String> {
    let tls = remote.tls.clone()?;
    let (address, port) = {
        let lookup = server.registry.lookup();
        admission::Services(&lookup).resolve(&remote.namespace, &remote.service, remote.port)?
    };
    connect::tls_as(tls, &remote.host(), &address, port)
        .await
        .map_err(|error| error.to_string())
}

/// Nobody but this server says who a request comes from.
fn strip_claims(headers: &mut HeaderMap) {
    let claims: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("x-remote-"))
        .cloned()
        .collect();
    for claim in claims {
        headers.remove(claim);
    }
}

fn prepare(headers: &mut HeaderMap, remote: &Remote, user: &User) -> Result<(), Error> {
    let mut add = |name: &str, value: &str| -> Result<(), Error> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(Error::internal)?;
        headers.append(name, HeaderValue::from_str(value).map_err(Error::internal)?);
        Ok(())
    };
    add(HOST.as_str(), &remote.host())?;
    add("x-remote-user", &user.name)?;
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid)?;
    }
    for group in &user.groups {
        add("x-remote-group", group)?;
    }
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", connect::percent_encode(key).to_lowercase());
        for value in values {
            add(&name, value)?;
        }
    }
    Ok(())
}

fn unreachable(remote: &Remote, error: String) -> Error {
    Error::new(
        Reason::ServiceUnavailable,
        format!("error trying to reach service: {}: {error}", remote.host()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_claim_to_be_somebody_else() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "x-remote-group", "x-remote-extra-scopes", "accept"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("admin"));
        }
        strip_claims(&mut headers);
        assert_eq!(headers.keys().collect::<Vec<_>>(), [ACCEPT]);
    }
}
