//! `karve kube-apiserver`: upstream's flags, and how they become a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::{
    AdmissionOptions, ApiServer, ClusterFacts, FrontProxies, FrontProxy, FrontProxyOptions, GateOptions,
    KUBELET_CLIENT, KubeletDialer, KubeletTls, KubeletTrust, LocalNode, Options, STORE_ROOT, ServiceNetwork, Services,
    ServingTls,
};
use auth::authenticate::{PublicKey, ServiceAccounts, SigningKey};
use clap::Args;
use client::destination::Destinations;
use metrics::Page;
use rustls::RootCertStore;
use store::Store;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::audit::AuditArgs;
use super::authentication::AuthenticationArgs;
use super::authorization::AuthorizationArgs;
use crate::component::embedded_store::EmbeddedStoreArgs;
use crate::kubeconfig;
use crate::layout::{Layout, read, write_private};
use crate::pki::{self, Authority};
use crate::{say, stop, tls};

/// Upstream's flags of kube-apiserver, as far as they are supported. Certificates, keys and an administrator's
/// kubeconfig are made in the data directory when they are not given.
#[derive(Args, Clone, Debug)]
pub struct ApiServerArgs {
    /// The address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The port to serve HTTPS on
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// The address that nodes and pods reach this server at [default: the address of the default route]
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// Serve under these names and addresses too
    #[arg(long, value_delimiter = ',')]
    pub tls_san: Vec<String>,
    /// The server's certificate chain, PEM
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// The key of --tls-cert-file, PEM
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Clients with a certificate from one of these authorities are who the certificate says, PEM
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub authentication: AuthenticationArgs,
    #[command(flatten)]
    pub authorization: AuthorizationArgs,
    #[command(flatten)]
    pub audit: AuditArgs,

    /// Keep objects in this etcd instead of the embedded store
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// The root of all keys
    #[arg(long, default_value = STORE_ROOT)]
    pub etcd_prefix: String,
    /// The authority of etcd's certificate, PEM
    #[arg(long)]
    pub etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd, PEM
    #[arg(long, requires_all = ["etcd_keyfile", "etcd_cafile"])]
    pub etcd_certfile: Option<PathBuf>,
    /// The key of --etcd-certfile, PEM
    #[arg(long, requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    #[command(flatten)]
    pub embedded_store: EmbeddedStoreArgs,

    /// The issuer of service account tokens; the first one issues, the others are accepted
    #[arg(long, default_value = "https://kubernetes.default.svc.cluster.local")]
    pub service_account_issuer: Vec<String>,
    /// The key that signs service account tokens, PEM
    #[arg(long)]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Keys that verify service account tokens, PEM
    #[arg(long)]
    pub service_account_key_file: Vec<PathBuf>,
    /// Where others find the keys of service account tokens [default: /openid/v1/jwks of this server]
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// The audiences of tokens that are meant for this server [default: the issuer]
    #[arg(long, value_delimiter = ',')]
    pub api_audiences: Vec<String>,

    /// The addresses that Services get
    #[arg(long, default_value = "10.96.0.0/16")]
    pub service_cluster_ip_range: String,
    /// The ports that NodePort Services get
    #[arg(long, default_value = "30000-32767")]
    pub service_node_port_range: String,

    /// The certificate to show to kubelets, PEM [default: one of the cluster's authority that is good for nothing else]
    #[arg(long, requires = "kubelet_client_key")]
    pub kubelet_client_certificate: Option<PathBuf>,
    /// The key of --kubelet-client-certificate, PEM
    #[arg(long, requires = "kubelet_client_certificate")]
    pub kubelet_client_key: Option<PathBuf>,
    /// The authority of kubelets' serving certificates, PEM. `karve up` checks them against the cluster's own authority
    /// without it, the API server alone does not check them then
    #[arg(long)]
    pub kubelet_certificate_authority: Option<PathBuf>,

    /// The certificate to show to API servers behind APIServices, PEM
    #[arg(long, requires_all = ["proxy_client_key_file", "requestheader_client_ca_file"])]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// The key of --proxy-client-cert-file, PEM
    #[arg(long, requires = "proxy_client_cert_file")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// The authority of front proxies, which may name users in headers, and of --proxy-client-cert-file, which the
    /// servers behind APIServices are told, PEM
    #[arg(long)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// The names in certificates of that authority that are believed, here and by those servers [default: any]
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// The headers that name the user of a front proxy's request
    #[arg(long, value_delimiter = ',', default_value = "x-remote-user")]
    pub requestheader_username_headers: Vec<String>,
    /// The headers that have the user's UID
    #[arg(long, value_delimiter = ',', default_value = "x-remote-uid")]
    pub requestheader_uid_headers: Vec<String>,
    /// The headers that name the user's groups
    #[arg(long, value_delimiter = ',', default_value = "x-remote-group")]
    pub requestheader_group_headers: Vec<String>,
    /// What the headers of the user's other properties begin with
    #[arg(long, value_delimiter = ',', default_value = "x-remote-extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Admission plugins to run beyond the defaults
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins not to run
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,

    /// Reads handled at once
    #[arg(long, default_value_t = apiserver::MAX_READS_IN_FLIGHT)]
    pub max_requests_inflight: usize,
    /// Writes handled at once
    #[arg(long, default_value_t = apiserver::MAX_WRITES_IN_FLIGHT)]
    pub max_mutating_requests_inflight: usize,
    /// Accepted for compatibility: privileged containers are always allowed
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub allow_privileged: bool,
}

impl ApiServerArgs {
    /// The address that nodes and pods reach this server at.
    pub fn advertised(&self) -> IpAddr {
        self.advertise_address.unwrap_or_else(default_address)
    }
}

/// How much of etcd's history is kept, as upstream does by default.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(300);

/// What a server is told by what else runs in its process.
#[derive(Default)]
pub struct Surroundings {
    /// The figures of the other components.
    pub pages: Vec<Arc<dyn Page>>,
    pub local_node: Option<LocalNode>,
    /// The service account that approves the serving certificates of kubelets. Where there is one, kubelets have
    /// certificates of the cluster's authority and no others are believed.
    pub serving_approver: Option<&'static str>,
    /// Whether a controller gives nodes the addresses of their pods.
    pub allocates_node_cidrs: bool,
}

/// A started server, with what others need to reach it.
pub struct Running {
    pub server: Arc<ApiServer>,
    pub tls: Arc<rustls::ServerConfig>,
    /// Where this machine reaches it.
    pub url: String,
    pub authority: Authority,
    pub advertise: IpAddr,
    pub secure_port: u16,
    network: ServiceNetwork,
}

impl Running {
    /// The address of a Service at a fixed place in the network.
    pub fn service_address(&self, offset: u32) -> IpAddr {
        IpAddr::V4(self.network.address(offset))
    }

    /// Where other machines reach it.
    pub fn advertised_url(&self) -> String {
        format!("https://{}", self.advertised())
    }

    /// What no node can serve at.
    pub fn destinations(&self) -> Destinations {
        Destinations {
            server: Some(self.advertised()),
            services: Some((self.network.base, self.network.prefix_length)),
        }
    }

    fn advertised(&self) -> SocketAddr {
        SocketAddr::new(self.advertise, self.secure_port)
    }
}

/// A file that is being written.
pub type Writing = JoinHandle<Result<()>>;

/// Opens the store, makes what certificates are missing, and starts the server. The listener is yet to be served, and
/// the kubeconfig may still be on its way to the disk.
pub async fn start(
    layout: &Layout,
    args: &ApiServerArgs,
    surroundings: Surroundings,
) -> Result<(Running, TcpListener, Writing)> {
    layout.create()?;
    let authority = Authority::open(layout)?;
    // Bound before anything else: a port in use is the most common mistake and should cost nothing.
    let address = SocketAddr::new(args.bind_address, args.secure_port);
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; is another cluster running? choose --secure-port"))?;
    let secure_port = listener.local_addr()?.port();
    let advertise = args.advertised();
    let services = services(args)?;
    let network = services.network;
    let serving = serving_tls(args, &authority, advertise, network)?;
    let client_authority = match &args.client_ca_file {
        Some(path) => read(path)?,
        None => authority.certificate_pem.clone(),
    };
    let options = Options {
        store: open_store(layout, args).await?,
        admission: AdmissionOptions {
            enable: args.enable_admission_plugins.clone(),
            disable: args.disable_admission_plugins.clone(),
        },
        gate: gate_options(layout, args, &authority)?,
        services,
        facts: ClusterFacts {
            advertise,
            secure_port,
            authority: authority.certificate_pem.clone(),
            client_authority,
            local_node: surroundings.local_node,
            serving_approver: surroundings.serving_approver,
            allocates_node_cidrs: surroundings.allocates_node_cidrs,
        },
        kubelets: kubelets(args, &authority, surroundings.serving_approver.is_some())?,
        front_proxy: front_proxy(layout, args)?,
        insecure_tls: tls::client(None, None)?,
        max_reads_in_flight: args.max_requests_inflight,
        max_writes_in_flight: args.max_mutating_requests_inflight,
        pages: surroundings.pages,
        auditor: args.audit.auditor()?,
    };
    let local = if args.bind_address.is_unspecified() {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    } else {
        args.bind_address
    };
    let url = format!("https://{}", SocketAddr::new(local, secure_port));
    let kubeconfig = write_admin_kubeconfig(layout, &authority, &url)?;
    let server = ApiServer::start(options)
        .await
        .context("the API server did not start")?;
    let running = Running {
        server,
        tls: serving,
        url,
        authority,
        advertise,
        secure_port,
        network,
    };
    Ok((running, listener, kubeconfig))
}

/// The API server alone, until a signal ends it.
pub async fn run(layout: &Layout, args: &ApiServerArgs) -> Result<()> {
    let (running, listener, kubeconfig) = start(layout, args, Surroundings::default()).await?;
    kubeconfig.await??;
    say::remark(format_args!(
        "serving {}; kubeconfig in {}",
        running.url,
        layout.kubeconfig().display()
    ));
    apiserver::serve(running.server.clone(), listener, running.tls, stop::on_signal()).await?;
    running.server.stop().await;
    Ok(())
}

async fn open_store(layout: &Layout, args: &ApiServerArgs) -> Result<Arc<dyn Store>> {
    if args.etcd_servers.is_empty() {
        return Ok(args.embedded_store.open(layout).await?);
    }
    args.embedded_store.ensure_unused()?;
    let tls = args.etcd_cafile.clone().map(|ca| store::etcd::Tls {
        ca,
        cert: args.etcd_certfile.clone(),
        key: args.etcd_keyfile.clone(),
    });
    let options = store::etcd::EtcdOptions {
        endpoints: args.etcd_servers.clone(),
        prefix: args.etcd_prefix.clone(),
        tls,
        codec: Arc::new(apiserver::EtcdCodec),
        compaction_interval: Some(COMPACTION_INTERVAL),
    };
    let connected = store::etcd::connect(options).await;
    Ok(connected.with_context(|| format!("cannot use etcd at {}", args.etcd_servers.join(", ")))?)
}

fn services(args: &ApiServerArgs) -> Result<Services> {
    let network = ServiceNetwork::parse(&args.service_cluster_ip_range).with_context(|| {
        format!(
            "--service-cluster-ip-range {:?} is not an IPv4 network between /12 and /29",
            args.service_cluster_ip_range
        )
    })?;
    let ports = args.service_node_port_range.split_once('-').and_then(|(first, last)| {
        Some((first.parse().ok()?, last.parse().ok()?)).filter(|(first, last): &(u16, u16)| first <= last)
    });
    let node_ports = ports.with_context(|| {
        format!(
            "--service-node-port-range {:?} is not FIRST-LAST",
            args.service_node_port_range
        )
    })?;
    Ok(Services {
        network,
        node_ports,
        root: args.etcd_prefix.clone(),
    })
}

fn serving_tls(
    args: &ApiServerArgs,
    authority: &Authority,
    advertise: IpAddr,
    network: ServiceNetwork,
) -> Result<Arc<rustls::ServerConfig>> {
    let (chain, key) = match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(certificate), Some(key)) => (read(certificate)?, read(key)?),
        _ => {
            let mut names = vec![
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
                "localhost",
            ];
            let mut addresses = vec![
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                advertise,
                IpAddr::V4(network.address(1)),
            ];
            for extra in &args.tls_san {
                match extra.parse() {
                    Ok(address) => addresses.push(address),
                    Err(_) => names.push(extra),
                }
            }
            let identity = authority.server("kube-apiserver", &names, &addresses)?;
            (identity.certificate_pem, identity.key_pem)
        }
    };
    let mut client_authorities = client_authorities(args, authority)?;
    // Which authority signed a certificate decides what it is good for: see `front_proxies`.
    if let Some(path) = &args.requestheader_client_ca_file {
        client_authorities.extend(roots_of(path)?.roots);
    }
    let serving = ServingTls {
        certificates: tls::certificates(&chain)?,
        key: tls::key(&key)?,
        client_authorities,
    };
    serving
        .config()
        .map_err(|error| anyhow::anyhow!("the server's certificate cannot be used: {error}"))
}

/// The authorities of users.
fn client_authorities(args: &ApiServerArgs, authority: &Authority) -> Result<RootCertStore> {
    let mut authorities = tls::roots(&authority.certificate_pem)?;
    if let Some(path) = &args.client_ca_file {
        authorities.extend(roots_of(path)?.roots);
    }
    Ok(authorities)
}

fn roots_of(path: &Path) -> Result<RootCertStore> {
    tls::roots(&read(path)?).with_context(|| format!("{} holds no certificate", path.display()))
}

/// Proxies that may name the users of requests: those with a certificate of an authority that was given for them.
fn front_proxies(args: &ApiServerArgs, authority: &Authority) -> Result<Option<FrontProxies>> {
    let Some(path) = &args.requestheader_client_ca_file else {
        return Ok(None);
    };
    let proxies = FrontProxies::new(FrontProxyOptions {
        authorities: roots_of(path)?,
        client_authorities: client_authorities(args, authority)?,
        allowed_names: args.requestheader_allowed_names.clone(),
        username_headers: args.requestheader_username_headers.clone(),
        uid_headers: args.requestheader_uid_headers.clone(),
        group_headers: args.requestheader_group_headers.clone(),
        extra_prefixes: args.requestheader_extra_headers_prefix.clone(),
    })?;
    Ok(Some(proxies))
}

fn gate_options(layout: &Layout, args: &ApiServerArgs, authority: &Authority) -> Result<GateOptions> {
    let signing = match &args.service_account_signing_key_file {
        Some(path) => read(path)?,
        None => pki::service_account_key(layout)?,
    };
    let signing = SigningKey::from_pem(&signing).context("the key for service account tokens cannot be used")?;
    let mut keys = Vec::new();
    for path in &args.service_account_key_file {
        let found = PublicKey::from_pem(&read(path)?).with_context(|| format!("{} holds no key", path.display()))?;
        keys.extend(found);
    }
    let issuers = args.service_account_issuer.clone();
    let service_accounts = ServiceAccounts::new(issuers, args.api_audiences.clone(), Some(signing), keys);
    let mut gate = GateOptions::new(service_accounts, Vec::new());
    gate.key_set_address = args.service_account_jwks_uri.clone();
    args.authentication.apply(&mut gate, &args.service_account_issuer)?;
    args.authorization.apply(&mut gate)?;
    gate.front_proxies = front_proxies(args, authority)?;
    Ok(gate)
}

/// How kubelets are asked: by an identity that is good for nothing else, unless another one is given.
fn kubelets(args: &ApiServerArgs, authority: &Authority, signs_for_kubelets: bool) -> Result<KubeletDialer> {
    let given = match (&args.kubelet_client_certificate, &args.kubelet_client_key) {
        (Some(certificate), Some(key)) => Some(pki::Identity {
            certificate_pem: read(certificate)?,
            key_pem: read(key)?,
        }),
        _ => None,
    };
    let is_for_kubelets_only = given.is_none();
    let identity = given.map_or_else(|| authority.client(KUBELET_CLIENT, &[]), Ok)?;
    let trust = match &args.kubelet_certificate_authority {
        Some(path) => KubeletTrust::NodesOrNames(tls::roots(&read(path)?)?),
        None if signs_for_kubelets => KubeletTrust::Nodes(tls::roots(&authority.certificate_pem)?),
        None => KubeletTrust::Anyone,
    };
    let tls = KubeletTls {
        identity: Some((
            tls::certificates(&identity.certificate_pem)?,
            tls::key(&identity.key_pem)?,
        )),
        trust,
        is_for_kubelets_only,
    };
    tls.dialer()
        .context("the certificate for asking kubelets cannot be used")
}

/// How other API servers know that requests come from this one: by an authority that signs nothing else.
fn front_proxy(layout: &Layout, args: &ApiServerArgs) -> Result<FrontProxy> {
    let given = (
        &args.proxy_client_cert_file,
        &args.proxy_client_key_file,
        &args.requestheader_client_ca_file,
    );
    // The flags come all together or not at all.
    let (identity, authority_pem) = match given {
        (Some(certificate), Some(key), Some(authority)) => {
            let identity = pki::Identity {
                certificate_pem: read(certificate)?,
                key_pem: read(key)?,
            };
            (identity, read(authority)?)
        }
        _ => {
            let authority = Authority::open_front_proxy(layout)?;
            (authority.client("front-proxy-client", &[])?, authority.certificate_pem)
        }
    };
    Ok(FrontProxy {
        unchecked_tls: tls::client(None, Some(&identity))?,
        identity: Some((identity.certificate_pem, identity.key_pem)),
        authority_pem,
        allowed_names: args.requestheader_allowed_names.clone(),
    })
}

/// Writes the kubeconfig while other things start: a disk takes its time to keep a file. One that is good for long enough
/// stays as it is, so that a cluster also starts on a full disk.
fn write_admin_kubeconfig(layout: &Layout, authority: &Authority, url: &str) -> Result<Writing> {
    if kubeconfig::is_current(&layout.kubeconfig(), &layout.name, url, &authority.certificate_pem) {
        return Ok(tokio::spawn(async { Ok(()) }));
    }
    let admin = authority.client("kubernetes-admin", &["system:masters"])?;
    let text = kubeconfig::render(&layout.name, url, &authority.certificate_pem, "admin", &admin);
    let path = layout.kubeconfig();
    Ok(tokio::task::spawn_blocking(move || {
        write_private(&path, text.as_bytes())
    }))
}

/// The address this machine uses towards others: that of the route to the outside, without sending anything.
pub fn default_address() -> IpAddr {
    let probe = || -> std::io::Result<IpAddr> {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip())
    };
    probe().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}
