//! Connections to the server.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::Connected;

use super::Server;
use crate::etcd::Connection;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Handshakes at once.
const HANDSHAKES: usize = 64;

/// How long requests under way may take once the server is told to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Accepting fails when the process is out of file handles; trying again at once would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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

/// Connections as they are ready; those that fail are left out.
fn connections(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
) -> impl Stream<Item = Result<Accepted, Infallible>> {
    let acceptor = tls.map(TlsAcceptor::from);
    let streams = stream::unfold(listener, async |listener| {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Some((stream, listener)),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    streams
        .map(move |stream| accept(stream, acceptor.clone()))
        .buffer_unordered(HANDSHAKES)
        .filter_map(async |accepted| match accepted {
            Ok(accepted) => Some(Ok(accepted)),
            Err(error) => {
                tracing::debug!(%error, "a connection failed before its first request");
                None
            }
        })
}

async fn accept(stream: TcpStream, acceptor: Option<TlsAcceptor>) -> io::Result<Accepted> {
    stream.set_nodelay(true)?;
    Ok(Accepted(match acceptor {
        Some(acceptor) => Box::new(timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??),
        None => Box::new(stream),
    }))
}

/// A connection, encrypted or not.
struct Accepted(Box<dyn Connection>);

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
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
