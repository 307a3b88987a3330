//! Acting as service accounts: transports that get tokens for them, and new ones before those expire.

use std::sync::Arc;
use std::time::Duration;

use api::kinds::service_account::SERVICE_ACCOUNT;
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::when::Moment;
use crate::{Body, Client, Config, ConfigError, HttpTransport, Result, Transport, TransportError};

/// How long tokens are asked to be valid; the server may decide otherwise.
const LIFETIME_SECONDS: u64 = 3600;
/// The part of its life after which a token is replaced, in percent: early enough to try for minutes.
const RENEWAL_PERCENT: u32 = 80;

/// The service accounts of one namespace, as whom requests can be sent.
#[derive(Clone)]
pub struct ServiceAccounts {
    /// Asks for tokens, and creates accounts that are missing.
    root: Client,
    /// The way to the server, without credentials of its own.
    way: Arc<dyn Transport>,
    namespace: String,
}

impl ServiceAccounts {
    /// Reaches the server as `config` says, but for the credentials in it.
    pub fn connect(config: &Config, root: Client, namespace: &str) -> Result<ServiceAccounts, ConfigError> {
        let anonymous = Config {
            client_certificate: None,
            token: None,
            basic: None,
            impersonate: crate::Impersonate::default(),
            ..config.clone()
        };
        Ok(ServiceAccounts {
            root,
            way: Arc::new(HttpTransport::new(anonymous)?),
            namespace: namespace.to_owned(),
        })
    }

    pub fn transport(&self, name: &str) -> Arc<dyn Transport> {
        Arc::new(AccountTransport {
            accounts: self.clone(),
            name: name.to_owned(),
            grant: Mutex::new(None),
        })
    }

    /// A token for the account, which is created if it does not exist.
    async fn request(&self, name: &str) -> Result<TokenRequest> {
        let accounts = self
            .root
            .resource(&SERVICE_ACCOUNT)
            .in_namespace(self.namespace.clone());
        let tokens = accounts.clone().subresource("token");
        let wish = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFETIME_SECONDS},
        });
        match tokens.create_for(name, &wish).await {
            Err(error) if error.is_not_found() => {}
            answer => return answer,
        }
        let account = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": self.namespace},
        });
        match accounts.create::<IgnoredAny>(&account).await {
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
        tokens.create_for(name, &wish).await
    }
}

struct AccountTransport {
    accounts: ServiceAccounts,
    name: String,
    grant: Mutex<Option<Grant>>,
}

#[derive(Clone)]
struct Grant {
    authorization: HeaderValue,
    renew_at: Instant,
}

#[derive(Deserialize)]
struct TokenRequest {
    status: TokenStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenStatus {
    token: String,
    expiration_timestamp: String,
}

impl AccountTransport {
    async fn authorization(&self) -> Result<HeaderValue, TransportError> {
        let mut grant = self.grant.lock().await;
        if let Some(grant) = grant.as_ref().filter(|grant| grant.renew_at > Instant::now()) {
            return Ok(grant.authorization.clone());
        }
        let refused = |why: String| TransportError::Credentials(format!("no token for {}: {why}", self.name));
        let answer = self.accounts.request(&self.name).await;
        let fresh = Grant::new(&answer.map_err(|error| refused(error.to_string()))?.status).map_err(refused)?;
        Ok(grant.insert(fresh).authorization.clone())
    }

    async fn send_once(&self, mut request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let authorization = self.authorization().await?;
        request.headers_mut().insert(header::AUTHORIZATION, authorization);
        self.accounts.way.send(request).await
    }
}

impl Grant {
    fn new(status: &TokenStatus) -> Result<Grant, String> {
        let authorization = HeaderValue::from_str(&format!("Bearer {}", status.token));
        let mut authorization = authorization.map_err(|error| error.to_string())?;
        authorization.set_sensitive(true);
        let expires = Moment::parse(&status.expiration_timestamp);
        let life = expires.map_or(Duration::ZERO, |expires| expires.since(Moment::now()));
        Ok(Grant {
            authorization,
            renew_at: Instant::now() + life * RENEWAL_PERCENT / 100,
        })
    }
}

#[async_trait]
impl Transport for AccountTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let answer = self.send_once(request.clone()).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        // The account was made anew, or the server's keys were: its old tokens are worth nothing.
        *self.grant.lock().await = None;
        self.send_once(request).await
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::body_from_bytes;

    /// A server that knows no account at first, numbers its tokens and takes only the newest.
    #[derive(Default)]
    struct Server {
        log: Mutex<Vec<String>>,
        exists: Mutex<bool>,
        tokens: Mutex<u32>,
    }

    #[async_trait]
    impl Transport for Arc<Server> {
        async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
            let bearer = request
                .headers()
                .get(header::AUTHORIZATION)
                .map(|value| value.to_str().unwrap().to_owned());
            let path = request.uri().path().to_owned();
            self.log.lock().push(format!(
                "{} {path} {}",
                request.method(),
                bearer.clone().unwrap_or_default()
            ));
            let (code, body) = if path.ends_with("/token") {
                self.token()
            } else if path.ends_with("/serviceaccounts") {
                *self.exists.lock() = true;
                (201, json!({}))
            } else {
                let current = bearer == Some(format!("Bearer t{}", self.tokens.lock()));
                (if current { 200 } else { 401 }, json!({}))
            };
            let answer = Response::builder()
                .status(code)
                .body(body_from_bytes(Bytes::from(body.to_string())));
            Ok(answer.unwrap())
        }
    }

    impl Server {
        fn token(&self) -> (u16, serde_json::Value) {
            if !*self.exists.lock() {
                return (404, json!({"kind": "Status", "reason": "NotFound", "code": 404}));
            }
            let mut tokens = self.tokens.lock();
            *tokens += 1;
            let status = json!({"token": format!("t{tokens}"), "expirationTimestamp": "2999-01-01T00:00:00Z"});
            (201, json!({"status": status}))
        }
    }

    #[tokio::test]
    async fn a_missing_account_is_made_and_a_refused_token_replaced() {
        let server = Arc::new(Server::default());
        let accounts = ServiceAccounts {
            root: Client::new(Arc::new(server.clone())),
            way: Arc::new(server.clone()),
            namespace: "kube-system".to_owned(),
        };
        let transport = accounts.transport("x-controller");
        let get = || Request::get("/api/v1/pods").body(Bytes::new()).unwrap();
        assert_eq!(transport.send(get()).await.unwrap().status(), 200);
        assert_eq!(transport.send(get()).await.unwrap().status(), 200);
        *server.tokens.lock() = 7;
        assert_eq!(transport.send(get()).await.unwrap().status(), 200);
        let base = "/api/v1/namespaces/kube-system/serviceaccounts";
        assert_eq!(
            *server.log.lock(),
            [
                format!("POST {base}/x-controller/token "),
                format!("POST {base} "),
                format!("POST {base}/x-controller/token "),
                "GET /api/v1/pods Bearer t1".to_owned(),
                "GET /api/v1/pods Bearer t1".to_owned(),
                "GET /api/v1/pods Bearer t1".to_owned(),
                format!("POST {base}/x-controller/token "),
                "GET /api/v1/pods Bearer t8".to_owned(),
            ]
        );
    }

    #[test]
    fn a_token_is_replaced_before_it_expires() {
        let in_an_hour = Moment::now().plus(Duration::from_secs(3600)).to_time();
        let status = TokenStatus {
            token: "t".to_owned(),
            expiration_timestamp: in_an_hour,
        };
        let left = Grant::new(&status).unwrap().renew_at - Instant::now();
        assert!(
            (Duration::from_secs(2800)..Duration::from_secs(2881)).contains(&left),
            "{left:?}"
        );
    }
}
