//! Requests to another API server: passed on for a user, or asked by this server itself.

use std::sync::Arc;
use std::time::Duration;

use api::{Error, Reason, Value};
use auth::User;
use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use tokio::time::timeout;

use crate::aggregation::Remote;
use crate::body::{self, Body, BoxError, RequestBody};
use crate::connect;
use crate::dial::{self, Connection};
use crate::request::{Query, RequestInfo, encode_path};
use crate::{ApiServer, respond};

/// How long a server may take to say what it serves, and how much it may say.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// Passes a request on in the name of its user.
pub async fn forward(
    server: &Arc<ApiServer>,
    remote: &Remote,
    user: &User,
    (info, query): (&RequestInfo, &Query),
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
    *outgoing.uri_mut() = address(info, query)?;
    let mut headers = parts.headers;
    strip_claims(&mut headers);
    connect::copy_headers(&headers, outgoing.headers_mut(), wants_upgrade);
    prepare(outgoing.headers_mut(), remote, user)?;
    let connection = dial(server, remote).await.map_err(|error| unreachable(remote, error))?;
    let mut response = connect::send(connection, outgoing)
        .await
        .map_err(|error| unreachable(remote, error.to_string()))?;
    if let Some(switched) = connect::switched(&mut response, client_side)? {
        return Ok(switched);
    }
    response.headers_mut().remove(CONNECTION);
    response.headers_mut().remove(TRANSFER_ENCODING);
    let (parts, body) = response.into_parts();
    Ok(Response::from_parts(parts, body.map_err(BoxError::from).boxed_unsync()))
}

/// The path and query that authorization has seen, written anew: never the text that the client sent, which another
/// server might read in another way.
fn address(info: &RequestInfo, query: &Query) -> Result<Uri, Error> {
    connect::uri(&encode_path(info.path.as_bytes()), &query.encode())
}

/// Reads JSON from another server in one of this server's own names.
pub async fn ask(server: &ApiServer, remote: &Remote, user: &User, path: &str) -> Result<Value, String> {
    let exchange = async {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = path.parse().map_err(|_| format!("invalid path {path:?}"))?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        prepare(request.headers_mut(), remote, user).map_err(|error| error.message)?;
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

/// Who asks whether a server is available.
pub fn availability_user() -> User {
    User::system("system:kube-aggregator", &["system:masters"])
}

/// Who asks for OpenAPI documents. It has no rights of its own.
pub fn document_user() -> User {
    User::new("system:aggregator", &[])
}

async fn dial(server: &ApiServer, remote: &Remote) -> Result<Connection, String> {
    let tls = remote.tls.clone()?;
    let endpoint = {
        let lookup = server.registry.lookup();
        admission::Services(&lookup).endpoint(&remote.namespace, &remote.service, remote.port)?
    };
    let addresses = connect::resolve_endpoint(server, &remote.namespace, &endpoint, remote.is_verified).await?;
    let connected = dial::tls(tls, &remote.host(), &addresses).await;
    connected
        .map(|stream| Box::new(stream) as Connection)
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
        // Names of users need not be ASCII.
        headers.append(
            name,
            HeaderValue::from_bytes(value.as_bytes()).map_err(Error::internal)?,
        );
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

    /// The parts that authorization was asked about are those that the other server will find.
    #[test]
    fn what_is_passed_on_reads_as_it_was_authorized() {
        for raw in [
            "/apis/g.io/v1/namespaces/a%2Fsecrets/x",
            "/apis/g.io/v1/namespaces/a%2F..%2Fb/secrets",
            "/apis/g.io/v1/namespaces/a/%2e%2e/secrets?x=1&watch=1;y=%zz",
            "/apis/g.io/v1/namespaces/a/secrets/%3Fwatch=1%23",
            "/apis/g.io/v1/namespaces/a%252Fb/secrets/%25",
        ] {
            let (path, query) = raw.split_once('?').unwrap_or((raw, ""));
            let query = Query::parse(query);
            let seen = RequestInfo::parse(&http::Method::GET, path, &query).expect("a path");
            let passed = address(&seen, &query).expect("an address");
            let found = Query::parse(passed.query().unwrap_or_default());
            let found = RequestInfo::parse(&http::Method::GET, passed.path(), &found);
            assert_eq!(found, Ok(seen), "{raw} became {passed}");
            assert!(!passed.path().contains("%2F"), "{passed}");
        }
    }

    #[test]
    fn documents_are_asked_for_by_somebody_without_rights() {
        assert_eq!(document_user().groups, [""; 0]);
    }

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
