use super::*;

fn parse(method: Method, url: &str) -> Result<RequestInfo, BadPath> {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    RequestInfo::parse(&method, path, &Query::parse(query))
}

fn check(method: Method, url: &str, expected: &str) {
    let info = parse(method, url).expect("a path");
    let found = format!(
        "{} {}/{} ns={} {}/{} sub={} rest={}",
        info.verb, info.group, info.version, info.namespace, info.resource, info.name, info.subresource, info.rest
    );
    assert_eq!(found, expected, "{url}");
}

#[test]
fn paths_become_verbs_and_names() {
    check(Method::GET, "/api/v1/pods", "list /v1 ns= pods/ sub= rest=");
    check(Method::GET, "/api/v1/pods?watch=1", "watch /v1 ns= pods/ sub= rest=");
    check(Method::GET, "/api/v1/pods?watch=False", "list /v1 ns= pods/ sub= rest=");
    let named = "/api/v1/namespaces/a/pods/p?watch=1";
    check(Method::GET, named, "get /v1 ns=a pods/p sub= rest=");
    check(
        Method::GET,
        "/api/v1/namespaces/a",
        "get /v1 ns=a namespaces/a sub= rest=",
    );
    let finalize = "/api/v1/namespaces/a/finalize";
    check(Method::PUT, finalize, "update /v1 ns=a namespaces/a sub=finalize rest=");
    let pods = "/api/v1/namespaces/a/pods";
    check(Method::POST, pods, "create /v1 ns=a pods/ sub= rest=");
    let deployments = "/apis/apps/v1/namespaces/a/deployments";
    let expected = "deletecollection apps/v1 ns=a deployments/ sub= rest=";
    check(Method::DELETE, deployments, expected);
    check(Method::GET, "/healthz/", "get / ns= / sub= rest=");
    check(Method::GET, "/apis/apps/v1", "get / ns= / sub= rest=");
    check(Method::TRACE, "/healthz", "trace / ns= / sub= rest=");
}

#[test]
fn a_verb_may_stand_before_the_resource() {
    let watch = "/api/v1/watch/namespaces/a/pods/p";
    check(Method::DELETE, watch, "watch /v1 ns=a pods/p sub= rest=");
    check(
        Method::GET,
        "/api/v1/proxy/nodes/n/x",
        "proxy /v1 ns= nodes/n sub= rest=",
    );
    assert_eq!(
        parse(Method::GET, "/api/v1/watch"),
        Err(BadPath::NoResource("/api/v1/watch".to_owned()))
    );
}

/// An escaped slash separates as a plain one does, for everyone who looks at the path.
#[test]
fn a_path_is_decoded_before_it_is_taken_apart() {
    let hidden = "/api/v1/namespaces/a%2Fpods/p";
    check(Method::GET, hidden, "get /v1 ns=a pods/p sub= rest=");
    let info = parse(Method::GET, "/api%2Fv1%2fnamespaces/a/secr%65ts").unwrap();
    assert_eq!(info.path, "/api/v1/namespaces/a/secrets");
    assert_eq!((info.verb, info.resource.as_str()), ("list", "secrets"));
    // Once: what is escaped twice stays escaped, and names nothing.
    let twice = "/api/v1/namespaces/a%252Fpods/p";
    check(Method::GET, twice, "list /v1 ns=a%2Fpods p/ sub= rest=");
    assert_eq!(parse(Method::GET, "/%6detrics").unwrap().path, "/metrics");
    for malformed in ["/api/v1/%zz", "/api/v1/pods%", "/api/v1/pods%2"] {
        assert_eq!(parse(Method::GET, malformed), Err(BadPath::Escape), "{malformed}");
    }
}

/// Nothing is collapsed or climbed: such a path names what it says, which is nothing.
#[test]
fn empty_parts_and_dots_stay_where_they_are() {
    check(Method::GET, "/api/v1//pods", "get /v1 ns= /pods sub= rest=");
    check(Method::GET, "/api/v1/namespaces//pods", "list /v1 ns= pods/ sub= rest=");
    assert!(
        parse(Method::GET, "/api/v1/namespaces//pods")
            .unwrap()
            .is_below_namespace
    );
    let climbing = "/api/v1/namespaces/a/../b/secrets";
    check(Method::GET, climbing, "get /v1 ns=a ../b sub=secrets rest=");
    let escaped = "/api/v1/namespaces/a/%2e%2e/b/secrets";
    check(Method::GET, escaped, "get /v1 ns=a ../b sub=secrets rest=");
}

#[test]
fn what_a_proxy_passes_on_is_clean_and_encoded() {
    let proxy = "/api/v1/namespaces/a/pods/p:80/proxy";
    for (given, expected) in [
        ("/x/y%20z", "x/y%20z"),
        ("/x//y/", "x/y/"),
        ("/../../x", "x"),
        ("/x/%2e%2e/%2e%2e/y", "y"),
        ("/a%2Fb", "a/b"),
        ("/%ff%3F", "%FF%3F"),
        ("/", ""),
        ("", ""),
    ] {
        let info = parse(Method::GET, &format!("{proxy}{given}")).unwrap();
        assert_eq!(info.rest, expected, "{given}");
        assert_eq!(info.path_before_rest(), proxy, "{given}");
    }
}

#[test]
fn a_query_is_passed_on_as_it_was_understood() {
    let query = Query::parse("b=2&a=x%20y+z&a=&c&watch=1;x=2&d=%zz&%41=%26");
    assert_eq!(query.encode(), "A=%26&a=x+y+z&a=&b=2&c=");
    assert!(!query.flag("watch"));
}
