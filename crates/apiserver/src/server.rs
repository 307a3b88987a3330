//! Connections: TLS, HTTP/1.1 and HTTP/2, and a shutdown that lets running requests finish.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::RootCertStore;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serving::{Connection, ConnectionLimits, Connections, HANDSHAKE_TIMEOUT, client_id, http_server};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::ApiServer;
use crate::body::BoxError;
use crate::peer::Peer;
use crate::stall::{PATIENCE, PatientStream};

const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// What the server shows to clients and whose clients it knows.
pub struct ServingTls {
    pub certificates: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    /// Client certificates count when one of these signed them.
    pub client_authorities: RootCertStore,
}

impl ServingTls {
    pub fn config(self) -> Result<Arc<ServerConfig>, BoxError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = if self.client_authorities.is_empty() {
            builder.with_no_client_auth()
        } else {
            let verifier = WebPkiClientVerifier::builder_with_provider(self.client_authorities.into(), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
        };
        let mut config = builder.with_single_cert(self.certificates, self.key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Serves until `stop` becomes true, then lets running requests finish for a while.
pub async fn serve(
    server: Arc<ApiServer>,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    serve_within(ConnectionLimits::default(), server, listener, tls, stop).await
}

/// The same with other bounds on connections.
pub async fn serve_within(
    limits: ConnectionLimits,
    server: Arc<ApiServer>,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(tls);
    let graceful = GracefulShutdown::new();
    let connections = Connections::new(limits);
    let serve = |stream, place| connection(server.clone(), acceptor.clone(), stream, graceful.watcher(), place);
    tokio::select! {
        never = serving::accept(&listener, &connections, serve) => match never {},
        _ = stop.wait_for(|stop| *stop) => {}
    }
    // Nobody waits for a server that goes.
    drop(listener);
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        debug!("Closed connections that were still open when the shutdown timeout expired");
    }
    Ok(())
}

async fn connection(
    server: Arc<ApiServer>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    watcher: hyper_util::server::graceful::Watcher,
    place: Arc<Connection>,
) -> Result<(), BoxError> {
    let address = stream.peer_addr().ok().map(|address| address.ip());
    let accepting = acceptor.accept(PatientStream::new(stream, PATIENCE));
    let stream = match timeout(HANDSHAKE_TIMEOUT, accepting).await {
        Ok(Ok(stream)) => stream,
        failed => {
            server.metrics.handshake_failed();
            failed??
        }
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let (certificate, is_front_proxy) = server.gate.judge_certificate(chain);
    if let Some(shown) = certificate
        .as_ref()
        .filter(|shown| server.kubelets.is_reserved(&shown.user))
    {
        warn!(
            user = shown.user.name,
            "Refused a connection that presents this server's own kubelet client certificate: the address of a Node points to the API server"
        );
        return Ok(());
    }
    if let Some(certificate) = &certificate
        && !place.identify(client_id(&certificate.user.name))
    {
        return Err(format!("user {:?} has too many connections", certificate.user.name).into());
    }
    let peer = Peer::Tls {
        certificate,
        address,
        is_front_proxy,
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, peer, place) = (server.clone(), peer.clone(), place.clone());
        async move {
            let token = match place.is_identified() {
                true => None,
                false => request.headers().get(AUTHORIZATION).map(client_id),
            };
            let request = request.map(|body| body.map_err(BoxError::from).boxed_unsync());
            let response = server.handle(request, peer).await;
            if let Some(token) = token
                && response.status() != StatusCode::UNAUTHORIZED
                && !place.identify(token)
            {
                return Err("a token has too many connections");
            }
            Ok(response)
        }
    });
    let connection = http_server()
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .into_owned();
    watcher.watch(connection).await
}
