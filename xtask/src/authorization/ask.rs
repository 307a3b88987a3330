//! Random requests.

use serde_json::{Value, json};

use super::world::{NAMESPACES, NODE, RESOURCES, Resource, USERS, pick};
use crate::differential::cases::Request;
use crate::random::Random;

const METHODS: &[&str] = &["GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
const NAMES: &[&str] = &["x", "y", "new", "a", NODE, "default"];

/// Paths that name no resource, or none that anybody has.
const PATHS: &[&str] = &[
    "/",
    "/healthz",
    "/healthz/",
    "/healthz/ping",
    "/healthz/etcd",
    "/livez",
    "/livez/ping",
    "/readyz",
    "/metrics",
    "/metrics/slis",
    "/version",
    "/version/",
    "/api",
    "/api/",
    "/api/v1",
    "/api/v1/",
    "/apis",
    "/apis/",
    "/apis/apps",
    "/apis/apps/v1",
    "/apis/test.dev",
    "/apis/test.dev/v1",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/api/v1",
    "/openapi/v3/apis/test.dev/v1",
    "/logs",
    "/logs/x",
    "/debug/pprof",
    "/debug/pprof/",
    "/debug/flags/v",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
    "/swagger.json",
    "/nowhere",
    "/apis/none",
    "/apis/none/v1/x",
    "/api/v2/pods",
    "/api/v1/watch",
    "/statusz",
    "/flagz",
    "/configz",
    "//healthz",
    "/healthz/../metrics",
    "/healthz/%2e%2e/metrics",
    "/%68ealthz",
    "/healthz%2Fping",
    "/apis%2Fapps",
    "/api/v1/none",
    "/apis/apps/v1/none/x",
];

pub fn request(random: &mut Random) -> Request {
    if random.below(12) == 0 {
        return review(random);
    }
    let resource = pick(random, RESOURCES);
    let method = pick(random, METHODS);
    let is_path = random.below(8) == 0;
    let path = match is_path {
        true => (pick(random, PATHS)).to_owned(),
        false => resource_path(random, resource, method),
    };
    let mut request = Request {
        method: method.to_owned(),
        path: odd(random, path),
        token: Some(who(random)),
        headers: claims(random),
        ..Request::default()
    };
    request.path += &query(random, method);
    if matches!(method, "POST" | "PUT" | "PATCH") {
        request.content_type = match method {
            "PATCH" => pick(
                random,
                &["application/merge-patch+json", "application/apply-patch+yaml"],
            )
            .to_string(),
            _ => "application/json".to_owned(),
        };
        request.body = body(random, resource).to_string();
    }
    request
}

/// Whether an answer may have no end, or none that its head tells of.
pub fn may_be_endless(request: &Request) -> bool {
    let path = decoded(&request.path);
    request.method == "HEAD" || path.contains("watch") || path.contains("follow")
}

/// A path with as many of its escapes undone as make sense.
fn decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                decoded.push(char::from(byte));
                decoded += &part[2..];
            }
            None => decoded += part,
        }
    }
    decoded
}

fn who(random: &mut Random) -> String {
    match random.below(20) {
        0 => String::new(),
        1 => "wrong".to_owned(),
        _ => pick(random, USERS).0.to_owned(),
    }
}

/// Headers of those who would be somebody else.
fn claims(random: &mut Random) -> Vec<(String, String)> {
    if random.below(10) != 0 {
        return Vec::new();
    }
    let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut claims = Vec::new();
    if random.below(8) != 0 {
        let users = [
            "u0",
            "u1",
            "system:anonymous",
            "system:node:n1",
            "system:serviceaccount:a:s",
            "system:serviceaccount:a:s:x",
        ];
        claims.push(named("Impersonate-User", pick(random, &users)));
    }
    if random.below(3) == 0 {
        let groups = ["g0", "g1", "system:masters", "system:unauthenticated"];
        claims.push(named("Impersonate-Group", pick(random, &groups)));
    }
    if random.below(4) == 0 {
        claims.push(named("Impersonate-Uid", "u"));
    }
    if random.below(4) == 0 {
        let keys = ["Impersonate-Extra-K", "Impersonate-Extra-Acme.io%2fk"];
        claims.push(named(pick(random, &keys), "v"));
    }
    claims
}

/// Places of a resource, in its scope or in the other one.
fn resource_path(random: &mut Random, resource: Resource, method: &str) -> String {
    let mut parts = vec![match resource.group {
        "" => "api".to_owned(),
        group => format!("apis/{group}"),
    }];
    parts.push(resource.version.to_owned());
    if random.below(15) == 0 {
        parts.push(pick(random, &["watch", "proxy"]).to_owned());
    }
    let in_namespace = match random.below(6) {
        0 => !resource.namespaced,
        _ => resource.namespaced,
    };
    if in_namespace {
        let namespace = match random.below(20) {
            // Admission has its say on what is written nowhere before anybody sees that it is nowhere.
            0 if method == "GET" => "",
            1 => "none",
            _ => pick(random, &NAMESPACES),
        };
        parts.extend(["namespaces".to_owned(), namespace.to_owned()]);
    }
    parts.push(resource.plural.to_owned());
    let is_collection = match method {
        "POST" => random.below(3) != 0,
        "PUT" | "PATCH" => random.below(8) == 0,
        _ => random.below(3) == 0,
    };
    if !is_collection {
        parts.push((pick(random, NAMES)).to_owned());
        match (random.below(3), resource.subresources) {
            (0, [_, ..]) => parts.push((pick(random, resource.subresources)).to_owned()),
            (1, _) if random.below(4) == 0 => parts.push("status".to_owned()),
            _ => {}
        }
        if random.below(15) == 0 {
            parts.push("rest".to_owned());
        }
    }
    format!("/{}", parts.join("/"))
}

/// The same path, written in another way or spoilt.
fn odd(random: &mut Random, path: String) -> String {
    match random.below(12) {
        0 => encoded(random, &path, |_| true),
        1 => encoded(random, &path, |byte| byte == b'/'),
        2 => path + "/",
        3 => {
            let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
            let at = pick(random, &slashes);
            let between = pick(random, &["/", "/.", "/..", "/%2e%2e", "/%2E", "%2F", "%252F"]);
            format!("{}{between}{}", &path[..at], &path[at..])
        }
        _ => path,
    }
}

/// Some of the bytes that qualify become escapes.
fn encoded(random: &mut Random, path: &str, qualifies: fn(u8) -> bool) -> String {
    let mut encoded = String::new();
    for (at, byte) in path.bytes().enumerate() {
        let is_escape = at > 0 && path.as_bytes()[at.saturating_sub(2)..=at].contains(&b'%');
        if at > 0 && !is_escape && qualifies(byte) && random.below(4) == 0 {
            encoded += &format!("%{byte:02x}");
        } else {
            encoded.push(char::from(byte));
        }
    }
    encoded
}

/// Whatever would be written is only tried.
fn query(random: &mut Random, method: &str) -> String {
    let mut pairs: Vec<&str> = Vec::new();
    if !matches!(method, "GET" | "HEAD") {
        pairs.push("dryRun=All");
    }
    if method == "PATCH" {
        pairs.push("fieldManager=m");
    }
    let selectors = [
        "fieldSelector=metadata.name%3Dx",
        "fieldSelector=metadata.name%3D..",
        "fieldSelector=spec.nodeName%3Dn1",
        "fieldSelector=metadata.namespace%3Da",
        "labelSelector=a%3Db",
        "fieldSelector=metadata.name%3Dx,metadata.name%3Dy",
    ];
    if matches!(method, "GET" | "HEAD" | "DELETE") && random.below(6) == 0 {
        pairs.push(pick(random, &selectors));
    }
    if method == "GET" && random.below(10) == 0 {
        let watches = [
            "watch=1",
            "watch",
            "watch=true",
            "watch=0",
            "watch=False",
            "watch=f",
            "watch=1;x",
            "limit=x&watch=1",
        ];
        pairs.push(pick(random, &watches));
        pairs.push("timeoutSeconds=1");
    }
    match pairs.is_empty() {
        true => String::new(),
        false => format!("?{}", pairs.join("&")),
    }
}

/// Something of the kind, which may or may not be right.
fn body(random: &mut Random, resource: Resource) -> Value {
    let api_version = match resource.group {
        "" => resource.version.to_owned(),
        group => format!("{group}/{}", resource.version),
    };
    let name = pick(random, NAMES);
    let mut body = json!({"apiVersion": api_version, "kind": resource.kind, "metadata": {"name": name}});
    match resource.plural {
        "clusterrolebindings" | "rolebindings" => {
            body["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r1"});
        }
        "clusterroles" | "roles" => {
            body["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        }
        "pods" => body["spec"] = json!({"containers": [{"name": "c", "image": "i"}]}),
        "services" => body["spec"] = json!({"ports": [{"port": 80}]}),
        "runtimeclasses" => body["handler"] = "h".into(),
        "selfsubjectaccessreviews" | "localsubjectaccessreviews" => {
            body["metadata"] = json!({});
            let attributes = json!({"verb": "get", "resource": "pods", "namespace": "a"});
            body["spec"] = json!({"resourceAttributes": attributes});
            if resource.namespaced {
                body["spec"]["user"] = "u0".into();
            }
        }
        "selfsubjectreviews" => body["metadata"] = json!({}),
        "tokenreviews" => {
            body["metadata"] = json!({});
            body["spec"] = json!({"token": "u0"});
        }
        _ => {}
    }
    body
}

/// A question about somebody's rights, in words that no path could have.
fn review(random: &mut Random) -> Request {
    let (user, groups) = pick(random, USERS);
    let groups: Vec<&str> = groups.split(',').filter(|group| !group.is_empty()).collect();
    let mut spec = json!({"user": user, "groups": groups});
    let verb = pick(
        random,
        &[
            "get",
            "list",
            "watch",
            "create",
            "update",
            "impersonate",
            "*",
            "",
            "proxy",
            "bind",
        ],
    );
    if random.below(5) == 0 {
        let path = pick(random, PATHS);
        spec["nonResourceAttributes"] = json!({"verb": verb, "path": path});
    } else {
        let resource = pick(random, RESOURCES);
        let mut attributes = json!({"verb": verb, "group": resource.group, "resource": resource.plural});
        let subresource = match resource.subresources {
            [] => "status",
            subresources => pick(random, subresources),
        };
        match random.below(6) {
            0 => attributes["subresource"] = subresource.into(),
            1 => attributes["resource"] = format!("{}/{subresource}", resource.plural).into(),
            2 => attributes["resource"] = "*".into(),
            3 => attributes["group"] = "*".into(),
            _ => {}
        }
        if random.below(3) != 0 {
            attributes["namespace"] = (pick(random, &NAMESPACES)).into();
        }
        if random.below(3) == 0 {
            attributes["name"] = (pick(random, &["x", "*", "a", NODE])).into();
        }
        if random.below(8) == 0 {
            let raw = pick(random, &["spec.nodeName=n1", "metadata.name=x", "spec.nodeName=n2"]);
            attributes["fieldSelector"] = json!({"rawSelector": raw});
        }
        spec["resourceAttributes"] = attributes;
    }
    Request {
        method: "POST".to_owned(),
        path: "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(),
        content_type: "application/json".to_owned(),
        body: json!({ "spec": spec }).to_string(),
        ..Request::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_requests_and_none_writes() {
        let requests = |seed| {
            let mut random = Random::new(seed);
            (0..500).map(|_| request(&mut random)).collect::<Vec<_>>()
        };
        let once = requests(7);
        assert_eq!(once, requests(7));
        assert_ne!(once, requests(8));
        for request in once
            .iter()
            .filter(|request| !matches!(request.method.as_str(), "GET" | "HEAD"))
        {
            let is_dry = request.path.contains("?dryRun=All") || request.path.ends_with("subjectaccessreviews");
            assert!(is_dry, "{} {}", request.method, request.path);
        }
    }
}
