//! `karve etcd`: the embedded store alone, behind etcd's API for any API server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use apiserver::EtcdCodec;
use clap::Args;
use rustls::ServerConfig;
use store::Store;
use store::serve::{Server, serve};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::layout::{Layout, read};
use crate::pki::Identity;
use crate::stop;
use crate::tls::{self, Clients};

/// Flags of etcd that mean something to a single member.
#[derive(Args, Clone, Debug)]
pub struct EtcdArgs {
    /// Where clients are answered; others than those on this machine only with https and --trusted-ca-file
    #[arg(long, value_delimiter = ',', default_value = "http://127.0.0.1:2379")]
    listen_client_urls: Vec<String>,
    /// The certificate shown to clients of https addresses, PEM
    #[arg(long, requires = "key_file")]
    cert_file: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, requires = "cert_file")]
    key_file: Option<PathBuf>,
    /// The authority of clients' certificates, PEM; clients without one are refused
    #[arg(long, requires = "cert_file")]
    trusted_ca_file: Option<PathBuf>,
}

/// An address and whether it is encrypted.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    address: SocketAddr,
    secure: bool,
}

pub async fn run(layout: &Layout, args: EtcdArgs) -> Result<()> {
    let knows_clients = args.trusted_ca_file.is_some();
    let places = args.listen_client_urls.iter().map(|url| place(url, knows_clients));
    let places = places.collect::<Result<Vec<Place>>>()?;
    let encryption = encryption(&args)?;
    layout.create()?;
    let opened = store::embedded::open(&layout.store(), store::embedded::Options::default()).await;
    let store = opened.with_context(|| format!("cannot open the store in {}", layout.store().display()))?;
    // The store holds JSON, as our own API server left it; clients of etcd expect what upstream's server writes.
    let server = Server::new(store.clone(), Arc::new(EtcdCodec));
    let mut serving = JoinSet::new();
    for place in places {
        let listener = TcpListener::bind(place.address).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", place.address))?;
        let tls = match place.secure {
            true => Some(
                encryption
                    .clone()
                    .context("an https address needs --cert-file and --key-file")?,
            ),
            false => None,
        };
        let mut stop = stop::on_signal();
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        serving.spawn(serve(server.clone(), listener, tls, stopped));
        eprintln!("the store of {} answers at {}", layout.name, place.address);
    }
    while let Some(ended) = serving.join_next().await {
        ended??;
    }
    store.close().await;
    Ok(())
}

/// Reads an address. Who can reach it could change everything, so that must be this machine alone unless clients are known
/// by their certificates.
fn place(url: &str, knows_clients: bool) -> Result<Place> {
    let (secure, address) = match url.split_once("://") {
        Some(("http", address)) => (false, address),
        Some(("https", address)) => (true, address),
        _ => bail!("--listen-client-urls {url}: begins with neither http:// nor https://"),
    };
    let address = address.trim_end_matches('/').replace("localhost", "127.0.0.1");
    let address: SocketAddr = address
        .parse()
        .with_context(|| format!("--listen-client-urls {url}: needs an address and a port"))?;
    ensure!(
        (secure && knows_clients) || address.ip().is_loopback(),
        "--listen-client-urls {url}: use https with --trusted-ca-file, or an address of this machine alone such as \
         http://127.0.0.1:2379"
    );
    Ok(Place { address, secure })
}

fn encryption(args: &EtcdArgs) -> Result<Option<Arc<ServerConfig>>> {
    let (Some(certificate), Some(key)) = (&args.cert_file, &args.key_file) else {
        return Ok(None);
    };
    let identity = Identity {
        certificate_pem: read(certificate)?,
        key_pem: read(key)?,
    };
    let authority = args.trusted_ca_file.as_deref().map(read).transpose()?;
    let clients = authority.as_deref().map_or(Clients::Unknown, Clients::MustBeOf);
    let mut config = tls::server(&identity, &clients)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_answered_without_knowing_who_asks() {
        let local = place("http://localhost:2379", false).unwrap();
        assert_eq!(local.address.to_string(), "127.0.0.1:2379");
        assert!(place("https://127.0.0.1:2379", false).unwrap().secure);
        assert!(place("https://10.0.0.1:2379", true).unwrap().secure);
        assert!(place("https://10.0.0.1:2379", false).is_err());
        for refused in [
            "http://10.0.0.1:2379",
            "http://0.0.0.0:2379",
            "10.0.0.1:2379",
            "http://127.0.0.1",
        ] {
            assert!(place(refused, true).is_err(), "{refused}");
        }
    }
}
