//! `karve etcd`: the embedded store alone, behind etcd's API for any API server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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

use crate::component::embedded_store::EmbeddedStoreArgs;
use crate::layout::{Layout, read, write_private};
use crate::pki::{Authority, Identity};
use crate::tls::{self, Clients};
use crate::{say, stop};

/// Flags of etcd that mean something to a single member. Whoever reaches the store can change everything, so clients show
/// certificates of an authority that signs for nothing else; one is made in the data directory, together with a client's
/// certificate for API servers.
#[derive(Args, Clone, Debug)]
pub struct EtcdArgs {
    /// URLs on which clients are served
    #[arg(long, value_delimiter = ',', default_value = "https://127.0.0.1:2379")]
    listen_client_urls: Vec<String>,
    /// Serving certificate, PEM [default: issued by the CA in the data directory]
    #[arg(long, requires = "key_file")]
    cert_file: Option<PathBuf>,
    /// Private key of --cert-file, PEM
    #[arg(long, requires = "cert_file")]
    key_file: Option<PathBuf>,
    /// CA certificate that authenticates clients, PEM [default: the CA in the data directory]
    #[arg(long)]
    trusted_ca_file: Option<PathBuf>,
    /// Reject clients without a certificate. Can only be disabled for loopback addresses, and then every local user can
    /// change the cluster
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    client_cert_auth: bool,
    #[command(flatten)]
    store: EmbeddedStoreArgs,
}

/// An address and whether it is encrypted.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    address: SocketAddr,
    secure: bool,
}

pub async fn run(layout: &Layout, args: EtcdArgs) -> Result<()> {
    let places = args.listen_client_urls.iter();
    let places = places.map(|url| place(url, args.client_cert_auth));
    let places = places.collect::<Result<Vec<Place>>>()?;
    layout.create()?;
    let encryption = match places.iter().any(|place| place.secure) {
        true => Some(encryption(layout, &args, &places)?),
        false => None,
    };
    let store = args.store.open(layout, Arc::new(store::codec::Identity)).await?;
    // The store holds JSON, as our own API server left it; clients of etcd expect what upstream's server writes.
    let server = Server::new(store.clone(), Arc::new(EtcdCodec));
    let mut serving = JoinSet::new();
    for place in places {
        let listener = TcpListener::bind(place.address).await;
        let listener = listener.with_context(|| format!("failed to listen on {}", place.address))?;
        let tls = match place.secure {
            true => Some(encryption.clone().context("an https address requires a certificate")?),
            false => None,
        };
        let mut stop = stop::on_signal();
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        serving.spawn(serve(server.clone(), listener, tls, stopped));
        say::remark(format_args!(
            "store of {} is listening at {}",
            layout.name, place.address
        ));
        if place.secure && args.client_cert_auth {
            let pki = layout.pki();
            say::remark(format_args!(
                "client certificate: {}",
                pki.join("etcd-client.crt").display()
            ));
        }
    }
    while let Some(ended) = serving.join_next().await {
        ended??;
    }
    store.close().await;
    Ok(())
}

/// Reads an address. One without encryption, or for clients that nobody knows, must be of this machine alone and asked for.
fn place(url: &str, knows_clients: bool) -> Result<Place> {
    let (secure, address) = match url.split_once("://") {
        Some(("http", address)) => (false, address),
        Some(("https", address)) => (true, address),
        _ => bail!("--listen-client-urls {url}: must begin with http:// or https://"),
    };
    let address = address.trim_end_matches('/').replace("localhost", "127.0.0.1");
    let address: SocketAddr = address
        .parse()
        .with_context(|| format!("--listen-client-urls {url}: must have an IP address and a port"))?;
    ensure!(
        secure || !knows_clients,
        "--listen-client-urls {url}: client certificates require https; use https, or let every local user change the store with --client-cert-auth=false"
    );
    ensure!(
        knows_clients || address.ip().is_loopback(),
        "--listen-client-urls {url}: without --client-cert-auth only loopback addresses are allowed, such as 127.0.0.1:2379"
    );
    Ok(Place { address, secure })
}

/// How clients are told who answers, and how they prove who they are.
fn encryption(layout: &Layout, args: &EtcdArgs, places: &[Place]) -> Result<Arc<ServerConfig>> {
    let own = Authority::open_etcd(layout)?;
    write_client(layout, &own)?;
    let identity = match (&args.cert_file, &args.key_file) {
        (Some(certificate), Some(key)) => Identity {
            certificate_pem: read(certificate)?,
            key_pem: read(key)?,
        },
        _ => {
            let mut addresses: Vec<IpAddr> = places.iter().map(|place| place.address.ip()).collect();
            addresses.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
            addresses.dedup();
            own.server("etcd", &["localhost", "etcd"], &addresses)?
        }
    };
    let authority = match &args.trusted_ca_file {
        Some(path) => read(path)?,
        None => own.certificate_pem,
    };
    let clients = match args.client_cert_auth {
        true => Clients::MustBeOf(&authority),
        false => Clients::Unknown,
    };
    let mut config = tls::server(&identity, &clients)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// The certificate that an API server shows to this store.
fn write_client(layout: &Layout, authority: &Authority) -> Result<()> {
    let client = authority.client("apiserver-etcd-client", &[])?;
    write_private(&layout.pki().join("etcd-client.key"), client.key_pem.as_bytes())?;
    write_private(&layout.pki().join("etcd-client.crt"), client.certificate_pem.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use clap::Parser;
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: EtcdArgs,
    }

    #[test]
    fn only_this_machine_is_answered_without_knowing_who_asks() {
        let local = place("http://localhost:2379", false).unwrap();
        assert_eq!(local.address.to_string(), "127.0.0.1:2379");
        assert!(place("https://127.0.0.1:2379", false).unwrap().secure);
        assert!(place("https://10.0.0.1:2379", true).unwrap().secure);
        for (refused, knows_clients) in [
            ("http://127.0.0.1:2379", true),
            ("http://10.0.0.1:2379", true),
            ("http://10.0.0.1:2379", false),
            ("https://10.0.0.1:2379", false),
            ("https://0.0.0.0:2379", false),
            ("10.0.0.1:2379", true),
            ("https://127.0.0.1", true),
        ] {
            assert!(place(refused, knows_clients).is_err(), "{refused} {knows_clients}");
        }
    }

    #[test]
    fn by_default_clients_must_show_a_certificate() {
        let args = Command::parse_from(["etcd"]).args;
        assert!(args.client_cert_auth);
        let places = args.listen_client_urls.iter().map(|url| place(url, true));
        assert!(places.map(Result::unwrap).all(|place| place.secure));
    }

    /// A server as the command makes it by default, and those who try to reach it.
    #[tokio::test]
    async fn the_store_opens_for_the_certificate_in_the_data_directory_alone() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout {
            name: "test".to_owned(),
            root: dir.path().to_owned(),
        };
        layout.create().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let places = [Place { address, secure: true }];
        let tls = encryption(&layout, &Command::parse_from(["etcd"]).args, &places).unwrap();
        let server = Server::new(store::memory::open(), Arc::new(EtcdCodec));
        let serving = tokio::spawn(serve(server, listener, Some(tls), std::future::pending()));

        let pki = |file: &str| layout.pki().join(file);
        for private in ["etcd-ca.key", "etcd-client.key", "etcd-client.crt"] {
            let mode = std::fs::metadata(pki(private)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{private}");
        }
        let known = Identity {
            certificate_pem: read(&pki("etcd-client.crt")).unwrap(),
            key_pem: read(&pki("etcd-client.key")).unwrap(),
        };
        assert!(
            is_answered(address, &layout, Some(&known)).await,
            "the client that is known"
        );
        assert!(!is_answered(address, &layout, None).await, "nobody in particular");
        // The cluster's administrator is one for the API server, not for the store.
        let cluster = Authority::open(&layout).unwrap();
        let admin = cluster.client("kubernetes-admin", &["system:masters"]).unwrap();
        assert!(
            !is_answered(address, &layout, Some(&admin)).await,
            "another authority's"
        );
        serving.abort();
    }

    /// Whether the server says anything to a client who shows this.
    async fn is_answered(address: SocketAddr, layout: &Layout, client: Option<&Identity>) -> bool {
        let authority = read(&layout.pki().join("etcd-ca.crt")).unwrap();
        let mut config = Arc::unwrap_or_clone(tls::client(Some(&authority), client).unwrap());
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::IpAddress(address.ip().into());
        let Ok(mut stream) = TlsConnector::from(Arc::new(config)).connect(name, stream).await else {
            return false;
        };
        // A refusal of the certificate comes with the first bytes that are read.
        let _ = stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await;
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_u8()).await;
        read.expect("an answer or an end").is_ok()
    }
}
