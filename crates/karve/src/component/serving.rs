//! The server of a component that runs alone: that it lives, for all, and its figures, for those who may see them.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::serving::{AnyError, ConnectionLimits, Connections, HANDSHAKE_TIMEOUT, http_server};
use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Args;
use client::Client;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubelet::{ApiAuth, AuthError, Authenticator, User, bearer, user_of};
use metrics::Page;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::trust::Trust;
use crate::layout::read;
use crate::pki::{self, Identity};

/// Connections at a time. Nobody's are ever known, for each asks for one thing and is closed.
const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 64,
    unidentified: 32,
    unidentified_on_loopback: 32,
    per_client: 0,
};
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a component serves.
#[derive(Args, Clone, Debug)]
pub struct ServingArgs {
    /// IP address for /metrics and /healthz
    #[arg(long, default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// HTTPS port; 0 disables it [default: upstream's port, if it is free]
    #[arg(long)]
    secure_port: Option<u16>,
    /// Serving certificate chain, PEM [default: a self-signed certificate]
    #[arg(long, requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file, PEM
    #[arg(long, requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// CA certificates that authenticate client certificates, PEM [default: the API server's client CA]
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
}

/// Serves until it is dropped.
pub struct Serving(JoinHandle<()>);

/// Knows who asks and what they may see.
struct Desk {
    auth: ApiAuth,
    page: Arc<dyn Page>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves a component's figures, on `port` unless the flags say otherwise. The API server is asked who may see them.
pub async fn serve(
    name: &str,
    args: &ServingArgs,
    port: u16,
    client: &Client,
    page: Arc<dyn Page>,
) -> Result<Option<Serving>> {
    let address = SocketAddr::new(args.bind_address, args.secure_port.unwrap_or(port));
    if address.port() == 0 {
        return Ok(None);
    }
    let trust = Arc::new(Trust::new(identity(name, args)?)?);
    if let Some(path) = &args.client_ca_file {
        let authority = trust.in_clients_of(&read(path)?);
        authority.with_context(|| format!("failed to load {}", path.display()))?;
    }
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        // Several clusters on one machine all have such a component.
        Err(error) if args.secure_port.is_none() => {
            tracing::warn!(%address, %error, "Failed to listen; /metrics is not served. Choose another --secure-port");
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("failed to listen on {address}")),
    };
    let client = client.named(name);
    let desk = Arc::new(Desk {
        auth: ApiAuth::new(client.clone()),
        page,
    });
    let is_given = args.client_ca_file.is_some();
    let following = trust.clone();
    Ok(Some(Serving(tokio::spawn(async move {
        tokio::select! {
            () = accept(listener, trust, desk) => (),
            () = following.follow(&client), if !is_given => (),
        }
    }))))
}

async fn accept(listener: TcpListener, trust: Arc<Trust>, desk: Arc<Desk>) {
    let connections = Connections::new(LIMITS);
    let serve = |stream, _| {
        let connection = connection(stream, trust.acceptor(), desk.clone());
        async move { tokio::time::timeout(PATIENCE, connection).await? }
    };
    match ::serving::accept(&listener, &connections, serve).await {}
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, desk: Arc<Desk>) -> Result<(), AnyError> {
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let by_certificate = certificate.and_then(user_of);
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (desk, user) = (desk.clone(), by_certificate.clone());
        async move { Ok::<_, Infallible>(desk.answer(&request, user).await) }
    });
    let mut server = http_server().http1_only();
    server.http1().keep_alive(false);
    server.serve_connection(TokioIo::new(stream), service).await
}

impl Desk {
    /// `by_certificate` is who the connection is from, if that was shown.
    async fn answer<B>(&self, request: &Request<B>, by_certificate: Option<User>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        match path {
            _ if request.method() != Method::GET => text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
            // Upstream asks nobody who wants to know only this.
            "/healthz" | "/livez" | "/readyz" => text(StatusCode::OK, "ok"),
            "/metrics" => match self.admit(request, by_certificate, path).await {
                Ok(()) => text(StatusCode::OK, self.metrics()),
                Err(refusal) => refusal,
            },
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        self.page.write(&mut text);
        metrics::process::write(&mut text);
        text
    }

    async fn admit<B>(
        &self,
        request: &Request<B>,
        by_certificate: Option<User>,
        path: &str,
    ) -> Result<(), Response<Full<Bytes>>> {
        let failed = |error: AuthError| text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        let user = match (by_certificate, bearer(request.headers())) {
            (Some(user), _) => user,
            (None, None) => User {
                name: "system:anonymous".to_owned(),
                groups: vec!["system:unauthenticated".to_owned()],
                ..User::default()
            },
            (None, Some(token)) => {
                let known = self.auth.authenticate(token).await.map_err(failed)?;
                known.ok_or_else(|| text(StatusCode::UNAUTHORIZED, "Unauthorized"))?
            }
        };
        let asked = json!({ "verb": "get", "path": path });
        match self.auth.may(&user, "nonResourceAttributes", asked).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let why = format!("forbidden: User {:?} cannot get path {path:?}", user.name);
                Err(text(StatusCode::FORBIDDEN, why))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

fn identity(name: &str, args: &ServingArgs) -> Result<Identity> {
    match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(certificate), Some(key)) => Ok(Identity {
            certificate_pem: read(certificate)?,
            key_pem: read(key)?,
        }),
        _ => pki::self_signed(name, &["localhost", &super::host_name()]),
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use client::{Body, Transport, TransportError, body_from_bytes};
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::layout::Layout;
    use crate::pki::Authority;
    use crate::tls;

    /// An API server that knows one token, whose user may see everything.
    struct Reviews;

    #[async_trait]
    impl Transport for Reviews {
        async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
            let asked: Value = serde_json::from_slice(request.body()).unwrap();
            let answer = match asked["kind"].as_str() {
                Some("TokenReview") => {
                    let known = asked["spec"]["token"] == "good";
                    json!({ "authenticated": known, "user": { "username": "prometheus" } })
                }
                _ => {
                    assert_eq!(
                        asked["spec"]["nonResourceAttributes"],
                        json!({ "verb": "get", "path": "/metrics" })
                    );
                    json!({ "allowed": asked["spec"]["user"] == "prometheus" })
                }
            };
            let body = json!({ "status": answer }).to_string();
            Ok(Response::new(body_from_bytes(body.into())))
        }
    }

    struct One;

    impl Page for One {
        fn write(&self, text: &mut String) {
            text.push_str("one 1\n");
        }
    }

    fn desk() -> Desk {
        Desk {
            auth: ApiAuth::new(Client::new(Arc::new(Reviews))),
            page: Arc::new(One),
        }
    }

    async fn ask(path: &str, token: Option<&str>) -> (StatusCode, String) {
        let desk = desk();
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let answer = desk.answer(&request.body(()).unwrap(), None).await;
        let code = answer.status();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn figures_are_for_those_who_may_see_them() {
        let (code, text) = ask("/metrics", Some("good")).await;
        assert_eq!(code, StatusCode::OK);
        assert!(
            text.starts_with("one 1\n") && text.contains("process_cpu_seconds_total"),
            "{text}"
        );
        assert_eq!(ask("/metrics", Some("bad")).await.0, StatusCode::UNAUTHORIZED);
        let refused = ask("/metrics", None).await;
        let why = "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"";
        assert_eq!(refused, (StatusCode::FORBIDDEN, why.to_owned()));
    }

    /// What a client is answered that shows a certificate, or none.
    async fn ask_over_tls(address: SocketAddr, identity: Option<&Identity>) -> Result<String> {
        let connector = tokio_rustls::TlsConnector::from(tls::client(None, identity)?);
        let stream = TcpStream::connect(address).await?;
        let mut stream = connector.connect("localhost".try_into()?, stream).await?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    }

    #[tokio::test]
    async fn a_certificate_of_the_authority_tells_who_asks() {
        let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let authority = |dir: &tempfile::TempDir| {
            let (name, root) = ("tests".to_owned(), dir.path().to_owned());
            let layout = Layout { name, root };
            std::fs::create_dir(layout.pki()).unwrap();
            Authority::open(&layout).unwrap()
        };
        let (ours, others) = (authority(&ours), authority(&others));
        let trust = Arc::new(Trust::new(pki::self_signed("one", &["localhost"]).unwrap()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _serving = Serving(tokio::spawn(accept(listener, trust.clone(), Arc::new(desk()))));
        let (good, other) = (
            ours.client("prometheus", &[]).unwrap(),
            ours.client("other", &[]).unwrap(),
        );
        let forged = others.client("prometheus", &[]).unwrap();
        let refused = "HTTP/1.1 403 Forbidden";
        assert_eq!(
            ask_over_tls(address, Some(&good)).await.unwrap(),
            refused,
            "nobody is trusted yet"
        );
        trust.in_clients_of(&ours.certificate_pem).unwrap();
        assert_eq!(ask_over_tls(address, Some(&good)).await.unwrap(), "HTTP/1.1 200 OK");
        assert_eq!(ask_over_tls(address, Some(&other)).await.unwrap(), refused);
        assert_eq!(ask_over_tls(address, None).await.unwrap(), refused);
        let answer = ask_over_tls(address, Some(&forged)).await;
        assert!(!matches!(&answer, Ok(line) if !line.is_empty()), "{answer:?}");
    }

    #[tokio::test]
    async fn that_it_lives_is_for_all() {
        for path in ["/healthz", "/livez", "/readyz"] {
            assert_eq!(ask(path, None).await, (StatusCode::OK, "ok".to_owned()));
        }
        assert_eq!(ask("/debug", Some("good")).await.0, StatusCode::NOT_FOUND);
    }
}
