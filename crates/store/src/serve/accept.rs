//! Connections to the server.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, stream};
use rustls::ServerConfig;
use serving::{AnyError, Connection as ServerConnection, ConnectionLimits, Connections, HANDSHAKE_TIMEOUT, client_id};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::Connected;

use super::Server;
use crate::etcd::Connection;

/// Connections that are ready and wait to be taken.
const READY: usize = 64;

/// How long requests under way may take once the server is told to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Serves until `stop` is done, encrypted if there is a configuration for it.
pub async fn serve(
    server: Server,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (stopping, stopped) = oneshot::channel();
    let stop = async move {
        stop.await;
        let _ = stopping.send(());
    };
    let served = server
        .router()
        .serve_with_incoming_shutdown(connections(listener, tls), stop);
    // Watches never end by themselves, so that they are not waited for.
    let patience = async move {
        match stopped.await {
            Ok(()) => sleep(STOP_PATIENCE).await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        served = served => served.map_err(io::Error::other),
        () = patience => Ok(()),
    }
}

/// Connections as they are ready; those that fail are left out. Each shakes hands in a task of its own, so that nobody waits
/// for a client that does not.
fn connections(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
) -> impl Stream<Item = Result<Accepted, Infallible>> {
    let acceptor = tls.map(TlsAcceptor::from);
    let (ready, accepted) = mpsc::channel(READY);
    let accepting = tokio::spawn(async move {
        let connections = Connections::new(ConnectionLimits::default());
        let serve = |stream, slot| greet(stream, slot, acceptor.clone(), ready.clone());
        match serving::accept(&listener, &connections, serve).await {}
    });
    // The listener goes with whoever takes connections from it.
    let accepting = AbortOnDrop(accepting);
    stream::unfold((accepted, accepting), async |(mut accepted, accepting)| {
        let next: Accepted = accepted.recv().await?;
        Some((Ok(next), (accepted, accepting)))
    })
}

/// Hands a connection on once it is encrypted, and waits until it is over or has to make room.
async fn greet(
    stream: TcpStream,
    slot: Arc<ServerConnection>,
    acceptor: Option<TlsAcceptor>,
    ready: mpsc::Sender<Accepted>,
) -> Result<(), AnyError> {
    let io: Box<dyn Connection> = match acceptor {
        None => Box::new(stream),
        Some(acceptor) => {
            let stream = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
            let certificates = stream.get_ref().1.peer_certificates();
            if let Some(certificate) = certificates.and_then(|chain| chain.first())
                && !slot.identify(client_id(certificate.as_ref()))
            {
                return Err("the client has too many connections".into());
            }
            Box::new(stream)
        }
    };
    let (end, over) = oneshot::channel();
    let accepted = Accepted { io, end };
    ready.send(accepted).await.map_err(|_| "the server has stopped")?;
    // Nothing is ever sent: the sender goes with the connection, and the connection with this.
    let _ = over.await;
    drop(slot);
    Ok(())
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection, encrypted or not.
struct Accepted {
    io: Box<dyn Connection>,
    /// Closed when the connection has to make room for others.
    end: oneshot::Sender<()>,
}

impl Connected for Accepted {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.end.poll_closed(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::AsyncReadExt;
    use tokio_rustls::TlsConnector;

    use super::*;

    /// More clients than may be waited for at a time connect and never shake hands; one who does gets through at once.
    #[tokio::test]
    async fn silent_clients_keep_nobody_out() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut accepted = Box::pin(connections(listener, Some(Arc::new(server))));
        let mut silent = Vec::new();
        for _ in 0..2 * READY {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let honest = async {
            let stream = TcpStream::connect(address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            TlsConnector::from(Arc::new(client))
                .connect(name, stream)
                .await
                .unwrap()
        };
        let both = async { tokio::join!(honest, futures_util::StreamExt::next(&mut accepted)) };
        let (mut honest, taken) = timeout(HANDSHAKE_TIMEOUT / 2, both)
            .await
            .expect("nobody is waited for");
        // A connection goes with the value that stands for it.
        drop(taken);
        assert!(honest.read_u8().await.is_err());
    }
}
