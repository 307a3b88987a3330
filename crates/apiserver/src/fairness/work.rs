//! How much of the server a request takes: lists are worth a seat for every so many objects they look at.

use crate::request::{Query, RequestInfo};

/// Upstream's figures.
const OBJECTS_PER_SEAT: usize = 100;
const MAX_SEATS: usize = 10;

/// The seats that a request takes. `stored` tells how many objects of its resource there are.
pub fn width(info: &RequestInfo, query: &Query, stored: impl FnOnce(&RequestInfo) -> usize) -> usize {
    if !matches!(info.verb, "list" | "deletecollection") {
        return 1;
    }
    let stored = stored(info);
    let selects = query.text("fieldSelector").is_some() || query.text("labelSelector").is_some();
    // A page ends when it is full, unless a selector leaves objects out.
    let limit = query.text("limit").and_then(|limit| limit.parse().ok());
    let seen = match limit {
        Some(limit) if limit > 0 && !selects => stored.min(limit),
        _ => stored,
    };
    seen.div_ceil(OBJECTS_PER_SEAT).clamp(1, MAX_SEATS)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn check(method: Method, query: &str, stored: usize, wanted: usize) {
        let query = Query::parse(query);
        let info = RequestInfo::parse(&method, "/api/v1/namespaces/default/pods", &query).expect("a path");
        assert_eq!(
            width(&info, &query, |_| stored),
            wanted,
            "{method} {query:?} of {stored}"
        );
    }

    #[test]
    fn a_list_is_as_wide_as_what_it_looks_at() {
        check(Method::GET, "", 0, 1);
        check(Method::GET, "", 100, 1);
        check(Method::GET, "", 101, 2);
        check(Method::GET, "", 100_000, 10);
        check(Method::GET, "limit=50", 100_000, 1);
        check(Method::GET, "limit=500", 100_000, 5);
        check(Method::GET, "limit=50&labelSelector=a", 100_000, 10);
        check(Method::POST, "", 100_000, 1);
        check(Method::GET, "watch=1", 100_000, 1);
    }
}
