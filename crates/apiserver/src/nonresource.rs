//! Paths that name no resource: discovery, health, version, OpenAPI, keys, metrics and marks.

use std::sync::Arc;
use std::time::Duration;

use api::{Error, Reason, Value};
use auth::User;
use http::{HeaderMap, Request, Response, StatusCode};
use registry::not_served;
use serde_json::json;

use crate::body::{self, Body, RequestBody};
use crate::errors::method_not_allowed;
use crate::metrics::Present;
use crate::request::{Query, RequestInfo};
use crate::resolve::NotServed;
use crate::respond::{self, page_not_found};
use crate::version::version_info;
use crate::{ApiServer, aggregator, discovery, health, negotiate, openapi};

/// How long the store may take to tell its size.
const STORE_PATIENCE: Duration = Duration::from_secs(1);

/// Marks that one request may bring, and the length of a name in them.
const MARKS_AT_ONCE: usize = 1000;
const MARK_TEXT_BYTES: usize = 512;

/// Answers; paths that nobody knows get the answer of a web server, not of the API.
pub async fn run(
    server: &Arc<ApiServer>,
    info: &RequestInfo,
    query: &Query,
    user: &User,
    request: Request<RequestBody>,
) -> Result<Response<Body>, Error> {
    let parts: Vec<&str> = info.parts().collect();
    if has_stray_slash(info, &parts) {
        return Ok(page_not_found());
    }
    if takes_marks(info, &parts) {
        return absorb_marks(&body::read(request.into_body()).await?);
    }
    if let ["openapi", "v3", document @ ..] = parts.as_slice()
        && let Some(remote) = server.aggregation.remote_of_document(document)
    {
        return aggregator::forward(server, &remote, user, (info, query), request).await;
    }
    match answer(server, info.verb, &parts, query, request.headers()).await {
        Err(error) if error == not_served() => Ok(page_not_found()),
        answered => answered,
    }
}

/// Answers for a place of the API where nothing is.
pub fn not_served_response(server: &ApiServer, reason: NotServed, info: &RequestInfo) -> Result<Response<Body>, Error> {
    match reason {
        NotServed::Refused(error) => Err(error),
        // Groups that nobody serves are no part of the API.
        NotServed::NoResource if info.group.is_empty() || discovery::group(server, &info.group).is_some() => {
            Err(not_served())
        }
        NotServed::NoResource | NotServed::NoPage => Ok(page_not_found()),
    }
}

/// A path is another one with a slash at its end, except where upstream says so.
fn has_stray_slash(info: &RequestInfo, parts: &[&str]) -> bool {
    let may_have_one = match parts.first() {
        None => true,
        Some(first) => matches!(*first, ".well-known" | "api" | "apis" | "openid" | "version"),
    };
    info.path.ends_with("//") || info.path.ends_with('/') && !may_have_one
}

async fn answer(
    server: &Arc<ApiServer>,
    verb: &str,
    parts: &[&str],
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>, Error> {
    // Discovery answers GET alone, as upstream's does.
    let takes_head = !matches!(parts, [".well-known" | "api" | "apis" | "openid" | "version", ..]);
    if verb != "get" && !(verb == "head" && takes_head) {
        return Err(method_not_allowed());
    }
    let document = |found: Option<Value>| respond::document(headers, query, &found.ok_or_else(not_served)?);
    match parts {
        [] => Ok(paths(server)),
        ["version"] => {
            negotiate::require_json(headers)?;
            Ok(respond::pretty_json(StatusCode::OK, &version_info()))
        }
        [endpoint @ ("healthz" | "livez" | "readyz"), check @ ..] => health::answer(server, endpoint, check, query)
            .await
            .ok_or_else(not_served),
        ["api"] => discovery::core(server, headers, query),
        ["apis"] => discovery::groups(server, headers, query),
        ["api", version] => document(discovery::resources(server, "", version)),
        ["apis", group] => document(discovery::group(server, group)),
        ["apis", group, version] => document(discovery::resources(server, group, version)),
        ["openapi", "v3"] => Ok(openapi::index(&server.openapi, &server.registry, &server.aggregation).await),
        ["openapi", "v3", rest @ ..] => {
            let own = openapi::document(&server.openapi, &server.registry, &rest.join("/"), query, headers).await;
            own.ok_or_else(not_served)?
        }
        ["openapi", "v2"] => openapi::v2(&server.openapi, &server.registry, headers).await,
        [".well-known", "openid-configuration"] => {
            let metadata = server.gate.issuer_metadata(&server.advertised_address());
            Ok(respond::json(StatusCode::OK, &metadata))
        }
        ["openid", "v1", "jwks"] => Ok(respond::bytes(
            StatusCode::OK,
            "application/jwk-set+json",
            server.gate.key_set().to_string(),
        )),
        ["metrics", "slis"] => Ok(respond::text(StatusCode::OK, server.metrics.health.text())),
        ["metrics"] => Ok(respond::text(StatusCode::OK, metrics(server).await)),
        ["debug", "karve", "backup"] => crate::backup::stream(server).await,
        ["debug", "karve", "marks"] => Ok(marks(query)),
        _ => Err(not_served()),
    }
}

async fn metrics(server: &ApiServer) -> String {
    let present = Present {
        levels: server.fairness.report(),
        object_counts: server.registry.object_counts(),
        store_bytes: store_bytes(server).await,
    };
    let mut text = server.metrics.text(&present);
    server.pages.iter().for_each(|page| page.write(&mut text));
    text
}

/// What the store takes on its disk; a store that does not answer is not waited for.
async fn store_bytes(server: &ApiServer) -> Option<u64> {
    let asked = tokio::time::timeout(STORE_PATIENCE, server.registry.disk_bytes()).await;
    asked.ok().flatten()
}

fn paths(server: &ApiServer) -> Response<Body> {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
    ]
    .into_iter()
    .chain([
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ])
    .map(str::to_owned)
    .collect();
    let custom_resources = server.registry.custom_resources();
    let served = api::kinds::GROUP_VERSIONS
        .iter()
        .copied()
        .chain(custom_resources.group_versions());
    for (group, version) in served.filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.push(format!("/apis/{group}/{version}"));
    }
    paths.sort();
    paths.dedup();
    respond::pretty_json(StatusCode::OK, &json!({ "paths": paths }))
}

/// Marks of this process, all or those of objects whose name starts with `prefix`.
fn marks(query: &Query) -> Response<Body> {
    let prefix = query.first("prefix").unwrap_or_default();
    let found = trace::dump(|mark| mark.object.starts_with(prefix));
    respond::json(StatusCode::OK, &json!({ "marks": found }))
}

/// Whether marks are brought, instead of asked for.
fn takes_marks(info: &RequestInfo, parts: &[&str]) -> bool {
    info.verb == "post" && parts == ["debug", "karve", "marks"]
}

/// Marks of a component that runs in a process of its own, for `karve trace` to find all in one place.
fn absorb_marks(body: &[u8]) -> Result<Response<Body>, Error> {
    #[derive(serde::Deserialize)]
    struct ReceivedMarks {
        marks: Vec<trace::Mark>,
    }
    let bad = |message: String| Error::new(Reason::BadRequest, message);
    let ReceivedMarks { marks } =
        serde_json::from_slice(body).map_err(|error| bad(format!("the body is not a list of marks: {error}")))?;
    let is_long = |mark: &trace::Mark| mark.object.len().max(mark.uid.len()).max(mark.stage.len()) > MARK_TEXT_BYTES;
    if marks.len() > MARKS_AT_ONCE || marks.iter().any(is_long) {
        return Err(bad(format!(
            "too much: at most {MARKS_AT_ONCE} marks with texts of at most {MARK_TEXT_BYTES} bytes"
        )));
    }
    let count = marks.len();
    trace::absorb(marks);
    Ok(respond::json(StatusCode::OK, &json!({ "absorbed": count })))
}
