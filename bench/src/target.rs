//! The server under load, and who we are to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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
}

#[derive(Clone)]
pub struct Target {
    server: String,
    name: ServerName<'static>,
    http1: TlsConnector,
    http2: TlsConnector,
}

impl Target {
    pub fn new(args: &TargetArgs) -> Result<Self> {
        let host = args.server.rsplit_once(':').context("--server has no port")?.0;
        let config = configure(args)?;
        let speak = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsConnector::from(Arc::new(config))
        };
        Ok(Self {
            name: ServerName::try_from(host.to_owned())?,
            http1: speak(b"http/1.1"),
            http2: speak(b"h2"),
            server: args.server.clone(),
        })
    }

    pub async fn connect_http1(&self) -> Result<TlsStream<TcpStream>> {
        self.connect(&self.http1).await
    }

    pub async fn connect_http2(&self) -> Result<TlsStream<TcpStream>> {
        self.connect(&self.http2).await
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

fn configure(args: &TargetArgs) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&args.ca)? {
        roots.add(certificate)?;
    }
    let key = rustls_pemfile::private_key(&mut &*read(&args.key)?)?.context("--key holds no key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = builder.with_root_certificates(roots);
    Ok(config.with_client_auth_cert(certificates(&args.cert)?, key)?)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = rustls_pemfile::certs(&mut &*read(path)?).collect();
    found.with_context(|| format!("{} is not PEM", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
