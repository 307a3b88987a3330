//! Requests and answers that are out of shape, for `fuzz/`.

use std::sync::Arc;

use auth::User;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use registry::Continuation;

use crate::connect::rewrite;
use crate::negotiate;
use crate::options;
use crate::request::{Query, RequestInfo};

const METHODS: [Method; 6] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

/// The first line is a path with its query, the second one stands for the headers that are taken apart.
pub fn request(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (url, header) = text.split_once('\n').unwrap_or((&text, ""));
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let query = Query::parse(query);
    for method in METHODS {
        if let Ok(info) = RequestInfo::parse(&method, path, &query) {
            assert!(info.is_resource || info.resource.is_empty());
            assert!(!info.namespace.contains('/') && !info.name.contains('/'));
        }
    }
    let _ = query.text("continue").map(Continuation::decode);
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(header) {
        for name in [ACCEPT, CONTENT_TYPE, USER_AGENT] {
            headers.insert(name, value.clone());
        }
    }
    let _ = negotiate::content(&headers);
    let _ = negotiate::wanted(&headers, &query, true);
    let _ = negotiate::wanted_of_custom(&headers, &query);
    let _ = options::client_write_options(Arc::new(User::default()), "create", &query, &headers);
}

/// A page of somebody's server, passed on with its links rewritten.
pub fn page(data: &[u8]) {
    let written = rewrite::html(data, "/api/v1/namespaces/default/pods/web/proxy");
    assert!(written.len() >= data.len());
    let _ = rewrite::prefixed(&String::from_utf8_lossy(data), "/proxy");
}
