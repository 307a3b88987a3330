//! Connections to kubelets and pods.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub type Connection = Box<dyn Duplex>;

/// How the server proves itself to kubelets and checks who they are.
#[derive(Clone)]
pub struct KubeletDialer {
    pub tls: Arc<ClientConfig>,
}

impl KubeletDialer {
    pub async fn dial(&self, host: &str, port: u16) -> io::Result<Connection> {
        tls(self.tls.clone(), host, port).await
    }
}

pub async fn plain(host: &str, port: u16) -> io::Result<Connection> {
    let stream = connect(host, port).await?;
    Ok(Box::new(stream))
}

pub async fn tls(config: Arc<ClientConfig>, host: &str, port: u16) -> io::Result<Connection> {
    tls_as(config, host, host, port).await
}

/// A connection to a server whose certificate has another name than its address.
pub async fn tls_as(config: Arc<ClientConfig>, name: &str, host: &str, port: u16) -> io::Result<Connection> {
    let stream = connect(host, port).await?;
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let stream = timeout(CONNECT_TIMEOUT, TlsConnector::from(config).connect(name, stream)).await??;
    Ok(Box::new(stream))
}

async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}
