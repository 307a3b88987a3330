//! Servers outside of the cluster that the gate asks: issuers of tokens, and webhooks named by a kubeconfig.
//!
//! Everything is bounded: how long a call may take, how much it may answer, and how many are under way. No redirect is
//! followed: what an administrator named is what is asked.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::{Config, ConfigError, HttpTransport, Source, Transport};
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The longest answer that is read.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// Calls to one webhook that may be under way; others wait within their own time.
const MAX_CALLS: usize = 256;
const RETRIES: u32 = 4;
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(500);
const AUDIT_TIMEOUT: Duration = Duration::from_secs(30);
const AGENT: &str = "kube-apiserver";

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("{url:?} is not an https URL with a host")]
    Url { url: String },
    #[error("no response within {seconds} seconds")]
    Timeout { seconds: u64 },
    #[error("{0}")]
    Transport(#[from] client::TransportError),
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("cannot read the response: {0}")]
    Body(String),
    #[error("the server responded with status {code}; redirects are not followed")]
    Redirect { code: u16 },
    #[error("the server responded with status {code}: {text}")]
    Status { code: u16, text: String },
}

impl RemoteError {
    /// Whether the same call may succeed a moment later.
    fn is_passing(&self) -> bool {
        match self {
            RemoteError::Transport(_) | RemoteError::Body(_) => true,
            RemoteError::Status { code, .. } => *code == 429 || *code >= 500,
            RemoteError::Url { .. }
            | RemoteError::Timeout { .. }
            | RemoteError::Config(_)
            | RemoteError::Redirect { .. } => false,
        }
    }
}

/// Gets a document over HTTPS from a server whose certificate the authority signed, or one of the system's.
pub async fn get(url: &str, authority_pem: Option<&str>, within: Duration) -> Result<Bytes, RemoteError> {
    let wrong = || RemoteError::Url { url: url.to_owned() };
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let (Some("https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(wrong());
    };
    let transport = HttpTransport::new(Config {
        server: format!("https://{authority}"),
        certificate_authority: authority_pem.map(|pem| Source::Data(pem.as_bytes().to_vec())),
        ..Config::default()
    })?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, AGENT)
        .body(Bytes::new())
        .map_err(client::TransportError::from)?;
    exchange(&transport, request, within).await
}

/// A webhook that a kubeconfig names: the server's address is the whole URL, the user is how to show who asks.
pub struct KubeconfigWebhook {
    transport: HttpTransport,
    path: String,
    calls: Semaphore,
}

impl KubeconfigWebhook {
    pub fn open(kubeconfig: &Path) -> Result<KubeconfigWebhook, ConfigError> {
        let mut config = Config::from_kubeconfig(kubeconfig, None)?;
        let path = split_path(&mut config.server);
        Ok(KubeconfigWebhook {
            transport: HttpTransport::new(config)?,
            path,
            calls: Semaphore::new(MAX_CALLS),
        })
    }

    /// Posts a review and returns the answer. All attempts together take no longer than `within`.
    pub async fn post(&self, review: &serde_json::Value, within: Duration) -> Result<Bytes, RemoteError> {
        let body = Bytes::from(review.to_string());
        let attempts = async {
            let Ok(_call) = self.calls.acquire().await else {
                return Err(RemoteError::Timeout { seconds: 0 });
            };
            let mut pause = FIRST_RETRY_PAUSE;
            let mut attempt = 0;
            loop {
                match self.post_once(body.clone(), within).await {
                    Err(error) if error.is_passing() && attempt < RETRIES => {}
                    answer => return answer,
                }
                tokio::time::sleep(pause).await;
                (attempt, pause) = (attempt + 1, pause * 3 / 2);
            }
        };
        let seconds = within.as_secs();
        timeout(within, attempts)
            .await
            .unwrap_or(Err(RemoteError::Timeout { seconds }))
    }

    async fn post_once(&self, body: Bytes, within: Duration) -> Result<Bytes, RemoteError> {
        let request = Request::post(format!("{}?timeout={}s", self.path, within.as_secs().max(1)))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .header(USER_AGENT, AGENT)
            .body(body)
            .map_err(client::TransportError::from)?;
        exchange(&self.transport, request, within).await
    }
}

/// Audit events are sent once; those that have a queue of them try again.
#[async_trait]
impl audit::Sink for KubeconfigWebhook {
    async fn send(&self, list: Bytes) -> Result<(), String> {
        let sent = self.post_once(list, AUDIT_TIMEOUT).await;
        sent.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// Takes the path off a server's URL.
fn split_path(server: &mut String) -> String {
    let after_scheme = server.find("://").map_or(0, |at| at + 3);
    let path = match server[after_scheme..].find('/') {
        Some(at) => server.split_off(after_scheme + at),
        None => String::new(),
    };
    match path.as_str() {
        "" => "/".to_owned(),
        _ => path,
    }
}

async fn exchange(transport: &HttpTransport, request: Request<Bytes>, within: Duration) -> Result<Bytes, RemoteError> {
    let exchange = async {
        let response: Response<client::Body> = transport.send(request).await?;
        let code = response.status().as_u16();
        if (300..400).contains(&code) {
            return Err(RemoteError::Redirect { code });
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| RemoteError::Body(error.to_string()))?.to_bytes();
        match code {
            200..300 => Ok(body),
            _ => {
                let text = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
                Err(RemoteError::Status { code, text })
            }
        }
    };
    let seconds = within.as_secs();
    timeout(within, exchange)
        .await
        .unwrap_or(Err(RemoteError::Timeout { seconds }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_webhook_is_part_of_its_server() {
        for (server, host, path) in [
            (
                "https://hook.example:8443/review",
                "https://hook.example:8443",
                "/review",
            ),
            ("https://hook.example", "https://hook.example", "/"),
            ("https://hook.example/", "https://hook.example", "/"),
            ("http://[::1]:1/a/b", "http://[::1]:1", "/a/b"),
        ] {
            let mut given = server.to_owned();
            assert_eq!(split_path(&mut given), path);
            assert_eq!(given, host);
        }
    }

    #[tokio::test]
    async fn only_https_is_fetched() {
        for url in [
            "http://issuer.example/keys",
            "file:///etc/passwd",
            "issuer.example",
            "",
            "https://",
            "https:///x",
        ] {
            let error = get(url, None, Duration::from_secs(1)).await.unwrap_err();
            assert!(matches!(error, RemoteError::Url { .. }), "{url}: {error}");
        }
    }
}
