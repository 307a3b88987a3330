//! The server under load, and who we are to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::identity::Authority;

#[derive(Args)]
pub struct TargetArgs {
    /// Address and port of the API server
    #[arg(long)]
    server: String,
    /// The authority of its certificate, PEM
    #[arg(long)]
    ca: PathBuf,
    /// Our certificate, PEM
    #[arg(long)]
    cert: PathBuf,
    /// Its key, PEM
    #[arg(long)]
    key: PathBuf,
    /// The authority's key, PEM, for the certificates of hollow nodes
    #[arg(long)]
    ca_key: Option<PathBuf>,
}

#[derive(Clone)]
pub struct Target {
    server: String,
    name: ServerName<'static>,
    http1: TlsConnector,
    http2: TlsConnector,
    nodes: Option<Arc<Authority>>,
}

impl Target {
    pub fn new(args: &TargetArgs) -> Result<Self> {
        let host = args.server.rsplit_once(':').context("--server has no port")?.0;
        let roots = Arc::new(roots(&args.ca)?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = configure(args, roots.clone(), provider.clone())?;
        let authority = |key| Authority::open(&args.ca, key, roots, provider).map(Arc::new);
        let speak = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsConnector::from(Arc::new(config))
        };
        Ok(Self {
            name: ServerName::try_from(host.to_owned())?,
            http1: speak(b"http/1.1"),
            http2: speak(b"h2"),
            nodes: args.ca_key.as_deref().map(authority).transpose()?,
            server: args.server.clone(),
        })
    }

    pub async fn connect_http1(&self) -> Result<TlsStream<TcpStream>> {
        self.connect(&self.http1).await
    }

    pub async fn connect_http2(&self) -> Result<TlsStream<TcpStream>> {
        self.connect(&self.http2).await
    }

    /// A connection on which the node of this name asks.
    pub async fn connect_as_node(&self, node: &str) -> Result<TlsStream<TcpStream>> {
        let authority = self.nodes.as_ref().context("hollow nodes need --ca-key")?;
        self.connect(&authority.node(node)?).await
    }

    async fn connect(&self, connector: &TlsConnector) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&self.server)
            .await
            .with_context(|| format!("cannot reach {}", self.server))?;
        stream.set_nodelay(true)?;
        connector
            .connect(self.name.clone(), stream)
            .await
            .with_context(|| format!("no TLS with {}", self.server))
    }
}

fn roots(authority: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn configure(args: &TargetArgs, roots: Arc<RootCertStore>, provider: Arc<CryptoProvider>) -> Result<ClientConfig> {
    let key = PrivateKeyDer::from_pem_slice(&read(&args.key)?).context("--key holds no key")?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = builder.with_root_certificates(roots);
    Ok(config.with_client_auth_cert(certificates(&args.cert)?, key)?)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    found.with_context(|| format!("{} is not PEM", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
