//! Connections: TLS, HTTP/1.1 and HTTP/2, and a shutdown that lets running requests finish.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::RootCertStore;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::body::BoxError;
use crate::pipeline::Peer;
use crate::stall::{PATIENCE, PatientStream};
use crate::{ApiServer, gate};

/// The 64 KB that HTTP/2 begins with stall watches.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
const MAX_STREAMS: u32 = 2000;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Accepting fails when the process is out of file handles; trying again at once would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(tls);
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let watcher = graceful.watcher();
                let (server, acceptor) = (server.clone(), acceptor.clone());
                tokio::spawn(async move {
                    if let Err(error) = connection(server, acceptor, stream, watcher).await {
                        debug!(%error, "a connection ended");
                    }
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        debug!("some connections were still open at the end of shutdown");
    }
    Ok(())
}

async fn connection(
    server: Arc<ApiServer>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), BoxError> {
    stream.set_nodelay(true)?;
    let accepting = acceptor.accept(PatientStream::new(stream, PATIENCE));
    let stream = match timeout(HANDSHAKE_TIMEOUT, accepting).await {
        Ok(Ok(stream)) => stream,
        failed => {
            server.metrics.handshake_failed();
            failed??
        }
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let peer = Peer::Tls {
        certificate: certificate.and_then(|certificate| gate::client_certificate(certificate)),
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, peer) = (server.clone(), peer.clone());
        async move {
            let request = request.map(|body| body.map_err(BoxError::from).boxed_unsync());
            Ok::<_, Infallible>(server.handle(request, peer).await)
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(Some(Duration::from_secs(30)));
    let connection = builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .into_owned();
    watcher.watch(connection).await
}
