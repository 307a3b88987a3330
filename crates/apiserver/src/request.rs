//! What a request asks for, read from its method, path and query.

use std::borrow::Cow;
use std::collections::HashMap;

use http::Method;

/// The parts of a URL as the API understands them. For paths that name no resource only `path` and `verb` are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    pub is_resource: bool,
    pub path: String,
    /// `get`, `list`, `watch`, `create`, … for resources; the lower-case method otherwise.
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What follows the subresource: the path that `proxy` passes on.
    pub rest: String,
}

/// The query of a request. Repeated keys keep all values; flags without a value are empty strings.
#[derive(Clone, Debug, Default)]
pub struct Query(HashMap<String, Vec<String>>);

impl RequestInfo {
    pub fn parse(method: &Method, path: &str, query: &Query) -> RequestInfo {
        let mut info = RequestInfo {
            path: path.to_owned(),
            verb: plain_verb(method),
            ..RequestInfo::default()
        };
        let mut segments = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(percent_decode);
        let (group, version) = match segments.next().as_deref() {
            Some("api") => (None, segments.next()),
            Some("apis") => (segments.next(), segments.next()),
            _ => return info,
        };
        let rest: Vec<Cow<'_, str>> = segments.collect();
        let (Some(version), false) = (version, rest.is_empty()) else {
            return info;
        };
        info.group = group.unwrap_or_default().into_owned();
        info.version = version.into_owned();
        info.is_resource = true;
        info.read_resource(&rest);
        info.verb = resource_verb(method, &info, query);
        info
    }

    /// Reads `[watch/] [namespaces/NS/] RESOURCE [/NAME [/SUBRESOURCE [/REST…]]]`.
    fn read_resource(&mut self, mut parts: &[Cow<'_, str>]) {
        if parts.len() >= 3 && parts[0] == "namespaces" && !NAMESPACE_SUBRESOURCES.contains(&&*parts[2]) {
            self.namespace = parts[1].to_string();
            parts = &parts[2..];
        }
        let part = |at: usize| parts.get(at).map(ToString::to_string).unwrap_or_default();
        (self.resource, self.name, self.subresource) = (part(0), part(1), part(2));
        self.rest = parts.get(3..).unwrap_or_default().join("/");
        if self.group.is_empty() && self.resource == "namespaces" {
            self.namespace = self.name.clone();
        }
    }
}

const NAMESPACE_SUBRESOURCES: &[&str] = &["status", "finalize"];

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "options",
    }
}

fn resource_verb(method: &Method, info: &RequestInfo, query: &Query) -> &'static str {
    match *method {
        Method::GET | Method::HEAD if query.flag("watch") && info.subresource.is_empty() => "watch",
        Method::GET | Method::HEAD if info.name.is_empty() => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if info.name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
}

impl Query {
    pub fn parse(query: &str) -> Query {
        let mut values: HashMap<String, Vec<String>> = HashMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(form_decode(key)).or_default().push(form_decode(value));
        }
        Query(values)
    }

    pub fn first(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.first().map(String::as_str)
    }

    /// A parameter that counts only when it is not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.first(key).filter(|value| !value.is_empty())
    }

    pub fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// `?watch`, `?watch=1` and `?watch=true` all set a flag.
    pub fn flag(&self, key: &str) -> bool {
        self.first(key)
            .is_some_and(|value| !matches!(value, "0" | "false" | "False" | "f" | "F" | "FALSE"))
    }
}

fn form_decode(text: &str) -> String {
    percent_decode(&text.replace('+', " ")).into_owned()
}

fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, url: &str, expected: &str) {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let info = RequestInfo::parse(&method, path, &Query::parse(query));
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
        check(Method::GET, "/api/v1/pods?watch=false", "list /v1 ns= pods/ sub= rest=");
        check(
            Method::GET,
            "/api/v1/namespaces/a",
            "get /v1 ns=a namespaces/a sub= rest=",
        );
        check(
            Method::PUT,
            "/api/v1/namespaces/a/finalize",
            "update /v1 ns=a namespaces/a sub=finalize rest=",
        );
        check(
            Method::POST,
            "/api/v1/namespaces/a/pods",
            "create /v1 ns=a pods/ sub= rest=",
        );
        check(
            Method::DELETE,
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection apps/v1 ns=a deployments/ sub= rest=",
        );
        check(
            Method::GET,
            "/api/v1/namespaces/a/pods/p:80/proxy/x/y%20z",
            "get /v1 ns=a pods/p:80 sub=proxy rest=x/y z",
        );
        check(Method::GET, "/healthz/", "get / ns= / sub= rest=");
        check(Method::GET, "/apis/apps/v1", "get / ns= / sub= rest=");
    }
}
