//! Who may ask the kubelet, and for what.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use client::Client;
use http::header::{AUTHORIZATION, UPGRADE};
use http::{HeaderMap, Request};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct User {
    #[serde(rename = "username")]
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Why it is not known who a client is or what it may do.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("failed to create a TokenReview: {0}")]
    TokenReview(#[source] client::Error),
    #[error("failed to create a SubjectAccessReview: {0}")]
    SubjectAccessReview(#[source] client::Error),
}

/// Knows bearer tokens.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// The token's user; none if it is nobody's.
    async fn authenticate(&self, token: &str) -> Result<Option<User>, AuthError>;
}

/// Decides what a user may do with this node.
#[async_trait]
pub trait Authorizer: Send + Sync {
    async fn authorize(&self, user: &User, access: &Access) -> Result<bool, AuthError>;
}

/// What is asked for, in the terms of RBAC: a verb on `nodes/SUBRESOURCE`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    pub verb: &'static str,
    pub subresource: &'static str,
    pub node: String,
}

/// Paths at which something is run or reached in a pod, whatever the method: WebSockets begin with GET.
const RUNS: &[&str] = &["exec", "attach", "portForward", "run", "cri"];

impl Access {
    /// What a request needs; any of them is enough. The paths that upstream has given a subresource of their own are open
    /// to holders of `nodes/proxy` too.
    pub fn any_of<B>(request: &Request<B>, node: &str) -> Vec<Access> {
        let path = request.uri().path();
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let runs = RUNS.contains(&first) || request.headers().contains_key(UPGRADE);
        let verb = match request.method().as_str() {
            _ if runs => "create",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "get",
        };
        let subresources: &[&'static str] = match first {
            "stats" => &["stats"],
            "metrics" => &["metrics"],
            "logs" => &["log"],
            "checkpoint" => &["checkpoint"],
            "statusz" => &["statusz"],
            "flagz" => &["configz"],
            "pods" | "runningpods" => &["pods", "proxy"],
            "healthz" => &["healthz", "proxy"],
            "configz" => &["configz", "proxy"],
            _ => &["proxy"],
        };
        let access = |subresource: &&'static str| Access {
            verb,
            subresource,
            node: node.to_owned(),
        };
        subresources.iter().map(access).collect()
    }
}

/// Answers are good for this long, and no more of them are kept than this.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
const REMEMBERED: usize = 1024;
/// Tokens that are longer are asked about every time: whoever sends them must not fill the memory.
const MAX_REMEMBERED_TOKEN_BYTES: usize = 8192;
/// Tokens that are asked about at a time. Whoever has a certificate does not wait for those who have none.
const TOKEN_REVIEWS_AT_ONCE: usize = 32;

/// Asks the API server, by TokenReview and SubjectAccessReview.
pub struct ApiAuth {
    client: Client,
    users: Remembered<String, User>,
    /// Tokens that nobody has. They are kept apart, for anybody can make up any number of them.
    unknown: Remembered<String, ()>,
    token_reviews: Semaphore,
    decisions: Remembered<(User, Access), bool>,
}

impl ApiAuth {
    pub fn new(client: Client) -> ApiAuth {
        ApiAuth {
            client,
            users: Remembered::default(),
            unknown: Remembered::default(),
            token_reviews: Semaphore::new(TOKEN_REVIEWS_AT_ONCE),
            decisions: Remembered::default(),
        }
    }

    /// Whether a user may do what is asked, which are `attributes` of a SubjectAccessReview.
    pub async fn may(&self, user: &User, attributes: &str, asked: Value) -> Result<bool, AuthError> {
        #[derive(Deserialize)]
        struct Review {
            status: Status,
        }
        #[derive(Deserialize)]
        struct Status {
            #[serde(default)]
            allowed: bool,
        }
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
                attributes: asked,
            },
        });
        let api = self
            .client
            .resource(&api::kinds::subject_access_review::SUBJECT_ACCESS_REVIEW);
        let review: Review = api.create(&body).await.map_err(AuthError::SubjectAccessReview)?;
        Ok(review.status.allowed)
    }
}

/// The token that a request brings.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[async_trait]
impl Authenticator for ApiAuth {
    async fn authenticate(&self, token: &str) -> Result<Option<User>, AuthError> {
        #[derive(Deserialize)]
        struct Review {
            status: Status,
        }
        #[derive(Deserialize)]
        #[serde(default)]
        #[derive(Default)]
        struct Status {
            authenticated: bool,
            user: User,
        }
        let key = token.to_owned();
        if let Some(user) = self.users.get(&key) {
            return Ok(Some(user));
        }
        if self.unknown.get(&key).is_some() {
            return Ok(None);
        }
        // The semaphore is never closed.
        let _permit = self.token_reviews.acquire().await;
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        });
        let api = self.client.resource(&api::kinds::token_review::TOKEN_REVIEW);
        let review: Review = api.create(&body).await.map_err(AuthError::TokenReview)?;
        let user = review.status.authenticated.then_some(review.status.user);
        match &user {
            _ if key.len() > MAX_REMEMBERED_TOKEN_BYTES => {}
            Some(user) => self.users.put(key, user.clone()),
            None => self.unknown.put(key, ()),
        }
        Ok(user)
    }
}

#[async_trait]
impl Authorizer for ApiAuth {
    async fn authorize(&self, user: &User, access: &Access) -> Result<bool, AuthError> {
        let key = (user.clone(), access.clone());
        if let Some(known) = self.decisions.get(&key) {
            return Ok(known);
        }
        let asked = json!({
            "verb": access.verb, "version": "v1", "resource": "nodes",
            "subresource": access.subresource, "name": access.node,
        });
        let allowed = self.may(user, "resourceAttributes", asked).await?;
        self.decisions.put(key, allowed);
        Ok(allowed)
    }
}

struct Remembered<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Remembered(Mutex::new(HashMap::new()))
    }
}

impl<K: Eq + std::hash::Hash, V: Clone> Remembered<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock();
        let (at, value) = known.get(key)?;
        (at.elapsed() < REMEMBERED_FOR).then(|| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut known = self.0.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, (at, _)| at.elapsed() < REMEMBERED_FOR);
        }
        if known.len() < REMEMBERED {
            known.insert(key, (Instant::now(), value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(method: &str, path: &str, upgrade: bool) -> Vec<String> {
        let mut request = Request::builder().method(method).uri(path);
        if upgrade {
            request = request.header(UPGRADE, "websocket");
        }
        let access = Access::any_of(&request.body(()).unwrap(), "n1");
        let shown = access
            .iter()
            .map(|access| format!("{} {}", access.verb, access.subresource));
        shown.collect()
    }

    #[test]
    fn reading_never_runs_anything() {
        for path in [
            "/exec/ns/pod/main?command=id",
            "//exec/ns/pod/main",
            "/attach/ns/pod/main",
            "/portForward/ns/pod",
            "/run/ns/pod/main?cmd=id",
            "/cri/exec/token",
        ] {
            for method in ["GET", "POST", "PUT", "HEAD"] {
                assert_eq!(needs(method, path, false), ["create proxy"], "{method} {path}");
            }
        }
        assert_eq!(needs("GET", "/anything", true), ["create proxy"]);
        assert_eq!(needs("GET", "/pods", true), ["create pods", "create proxy"]);
    }

    #[test]
    fn paths_of_their_own_need_no_right_to_everything() {
        for (path, wanted) in [
            ("/pods", &["get pods", "get proxy"][..]),
            ("/runningpods/", &["get pods", "get proxy"]),
            ("/healthz/ping", &["get healthz", "get proxy"]),
            ("/configz", &["get configz", "get proxy"]),
            ("/stats/summary", &["get stats"]),
            ("/metrics/resource", &["get metrics"]),
            ("/logs/", &["get log"]),
            ("/podsecurity", &["get proxy"]),
            ("/containerLogs/ns/pod/main", &["get proxy"]),
        ] {
            assert_eq!(needs("GET", path, false), wanted, "{path}");
        }
        assert_eq!(needs("POST", "/checkpoint/ns/pod/main", false), ["create checkpoint"]);
    }
}
