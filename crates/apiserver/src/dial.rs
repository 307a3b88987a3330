//! Connections to addresses that have been checked.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub type Connection = Box<dyn Duplex>;

/// Connects to the first of some addresses that answers. They are addresses and no names, so that what was checked is
/// what is connected to.
pub async fn plain(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(addresses)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection to a server whose certificate is for `name`, whatever its address.
pub async fn tls(config: Arc<ClientConfig>, name: &str, addresses: &[SocketAddr]) -> io::Result<TlsStream<TcpStream>> {
    let stream = plain(addresses).await?;
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    timeout(CONNECT_TIMEOUT, TlsConnector::from(config).connect(name, stream)).await?
}
