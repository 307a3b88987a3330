//! `karve kube-apiserver`: upstream's flags, and how they become a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::{
    AdmissionOptions, ApiServer, ClusterFacts, EncryptedEtcdCodec, FrontProxies, FrontProxy, FrontProxyOptions,
    GateOptions, KubeletDialer, KubeletTls, KubeletTrust, LocalNode, Options, STORE_ROOT, ServiceNetwork, Services,
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
use super::encryption::{EncryptionArgs, EncryptionFile};
use super::own_certificates::OwnCertificates;
use crate::component::embedded_store::EmbeddedStoreArgs;
use crate::kubeconfig;
use crate::layout::{Layout, read, write_private};
use crate::pki::{self, Authority};
use crate::renewal::{self, Renewed};
use crate::{say, stop, tls};

/// Upstream's flags of kube-apiserver, as far as they are supported. Certificates, keys and an administrator's
/// kubeconfig are made in the data directory when they are not given.
#[derive(Args, Clone, Debug)]
pub struct ApiServerArgs {
    /// IP address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// HTTPS port
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// IP address at which nodes and pods reach the API server [default: the address of the default route's interface]
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// Additional DNS names and IP addresses in the serving certificate
    #[arg(long, value_delimiter = ',')]
    pub tls_san: Vec<String>,
    /// Serving certificate chain, PEM
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file, PEM
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// CA certificates that authenticate client certificates, PEM
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub authentication: AuthenticationArgs,
    #[command(flatten)]
    pub authorization: AuthorizationArgs,
    #[command(flatten)]
    pub audit: AuditArgs,

    /// Store objects in this etcd instead of the embedded store
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// Prefix of all keys in etcd
    #[arg(long, default_value = STORE_ROOT)]
    pub etcd_prefix: String,
    /// CA certificate that verifies etcd, PEM
    #[arg(long)]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd, PEM
    #[arg(long, requires_all = ["etcd_keyfile", "etcd_cafile"])]
    pub etcd_certfile: Option<PathBuf>,
    /// Private key of --etcd-certfile, PEM
    #[arg(long, requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    #[command(flatten)]
    pub embedded_store: EmbeddedStoreArgs,
    #[command(flatten)]
    pub encryption: EncryptionArgs,

    /// Issuer of service account tokens; the first one issues tokens, the others are accepted
    #[arg(long, default_value = "https://kubernetes.default.svc.cluster.local")]
    pub service_account_issuer: Vec<String>,
    /// Private key that signs service account tokens, PEM
    #[arg(long)]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Public keys that verify service account tokens, PEM
    #[arg(long)]
    pub service_account_key_file: Vec<PathBuf>,
    /// URI of the JSON Web Key Set in the issuer discovery document [default: /openid/v1/jwks of this server]
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// Audiences of the API server in service account tokens [default: the issuer]
    #[arg(long, value_delimiter = ',')]
    pub api_audiences: Vec<String>,

    /// CIDR range of Service cluster IPs
    #[arg(long, default_value = "10.96.0.0/16")]
    pub service_cluster_ip_range: String,
    /// Port range of NodePort Services
    #[arg(long, default_value = "30000-32767")]
    pub service_node_port_range: String,

    /// Client certificate for kubelets, PEM [default: a dedicated certificate of the cluster's CA]
    #[arg(long, requires = "kubelet_client_key")]
    pub kubelet_client_certificate: Option<PathBuf>,
    /// Private key of --kubelet-client-certificate, PEM
    #[arg(long, requires = "kubelet_client_certificate")]
    pub kubelet_client_key: Option<PathBuf>,
    /// CA certificate that verifies kubelets, PEM [default with `karve up`: the cluster's CA; otherwise kubelets are
    /// not verified]
    #[arg(long)]
    pub kubelet_certificate_authority: Option<PathBuf>,

    /// Client certificate for API servers behind APIServices, PEM
    #[arg(long, requires_all = ["proxy_client_key_file", "requestheader_client_ca_file"])]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Private key of --proxy-client-cert-file, PEM
    #[arg(long, requires = "proxy_client_cert_file")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// CA certificate of authenticating front proxies, which pass users in headers, and of --proxy-client-cert-file;
    /// published to the servers behind APIServices, PEM
    #[arg(long)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that certificates of front proxies may have [default: any]
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Request headers with the user name
    #[arg(long, value_delimiter = ',', default_value = "x-remote-user")]
    pub requestheader_username_headers: Vec<String>,
    /// Request headers with the UID of the user
    #[arg(long, value_delimiter = ',', default_value = "x-remote-uid")]
    pub requestheader_uid_headers: Vec<String>,
    /// Request headers with the groups of the user
    #[arg(long, value_delimiter = ',', default_value = "x-remote-group")]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of request headers with extra properties of the user
    #[arg(long, value_delimiter = ',', default_value = "x-remote-extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Admission plugins to enable in addition to the defaults
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,

    /// Maximum number of concurrent non-mutating requests
    #[arg(long, default_value_t = apiserver::MAX_READS_IN_FLIGHT)]
    pub max_requests_inflight: usize,
    /// Maximum number of concurrent mutating requests
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

    /// What all keys in the store begin with, in the one form that it has there.
    fn store_root(&self) -> String {
        format!("/{}", self.etcd_prefix.trim_matches('/'))
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
    /// Whether the certificates of a node end when its Node is deleted.
    pub ends_access_of_deleted_nodes: bool,
}

/// A started server, with what others need to reach it.
pub struct Running {
    pub server: Arc<ApiServer>,
    pub tls: Arc<rustls::ServerConfig>,
    /// Where this machine reaches it.
    pub url: String,
    pub authority: Arc<Authority>,
    /// The certificates that this process shows, to be kept current.
    pub renewed: Vec<Arc<Renewed>>,
    pub advertise: IpAddr,
    pub secure_port: u16,
    pub node_ports: RangeInclusive<u16>,
    /// Signs the tokens of service accounts, PEM.
    pub token_key_pem: String,
    /// What `--tls-san` says that it is reached by, names and addresses.
    pub extra_names: Vec<String>,
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

    /// Renews what this process shows and the administrator's kubeconfig, for ever.
    pub fn keep_certificates(&self, layout: &Layout) -> impl Future<Output = ()> + Send + use<> {
        let (layout, authority, url) = (layout.clone(), self.authority.clone(), self.url.clone());
        let kubeconfig = move || match admin_kubeconfig(&layout, &authority, &url)? {
            Some(text) => write_private(&layout.kubeconfig(), text.as_bytes()),
            None => Ok(()),
        };
        renewal::keep(self.renewed.clone(), kubeconfig)
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
    let authority = Arc::new(Authority::open(layout)?);
    // Bound before anything else: a port in use is the most common mistake and should cost nothing.
    let address = SocketAddr::new(args.bind_address, args.secure_port);
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("failed to listen on {address}; if another cluster is running, choose another --secure-port")
    })?;
    let secure_port = listener.local_addr()?.port();
    let advertise = args.advertised();
    let services = services(args)?;
    let node_ports = services.node_ports.0..=services.node_ports.1;
    let network = services.network;
    let own = OwnCertificates::new(layout, args, &authority, (advertise, network))?;
    let serving = serving_tls(args, &authority, &own.serving)?;
    let client_authority = match &args.client_ca_file {
        Some(path) => read(path)?,
        None => authority.certificate_pem.clone(),
    };
    let token_key_pem = token_key(layout, args)?;
    let mut gate = gate_options(args, &authority, &token_key_pem)?;
    gate.ends_access_of_deleted_nodes = surroundings.ends_access_of_deleted_nodes;
    let encryption_file = args.encryption.open(layout, &args.store_root())?;
    let encryption = encryption_file.encryption.clone();
    let options = Options {
        store: open_store(layout, args, encryption_file).await?,
        encryption,
        admission: AdmissionOptions {
            enable: args.enable_admission_plugins.clone(),
            disable: args.disable_admission_plugins.clone(),
        },
        gate,
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
        kubelets: kubelets(
            args,
            &authority,
            &own.kubelet_client,
            surroundings.serving_approver.is_some(),
        )?,
        front_proxy: front_proxy(layout, args, &own.front_proxy)?,
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
        .context("the API server failed to start")?;
    let running = Running {
        server,
        tls: serving,
        url,
        authority,
        renewed: own.all(),
        advertise,
        secure_port,
        node_ports,
        token_key_pem,
        extra_names: args.tls_san.clone(),
        network,
    };
    Ok((running, listener, kubeconfig))
}

/// The API server alone, until a signal ends it.
pub async fn run(layout: &Layout, args: &ApiServerArgs) -> Result<()> {
    let (running, listener, kubeconfig) = start(layout, args, Surroundings::default()).await?;
    kubeconfig.await??;
    say::remark(format_args!(
        "API server is listening at {}; kubeconfig: {}",
        running.url,
        layout.kubeconfig().display()
    ));
    let renewing = tokio::spawn(running.keep_certificates(layout));
    apiserver::serve(running.server.clone(), listener, running.tls.clone(), stop::on_signal()).await?;
    renewing.abort();
    running.server.stop().await;
    Ok(())
}

async fn open_store(layout: &Layout, args: &ApiServerArgs, encryption: EncryptionFile) -> Result<Arc<dyn Store>> {
    let codec = encryption.encryption.clone();
    if args.etcd_servers.is_empty() {
        let embedded = args.embedded_store.open(layout, codec).await?;
        tokio::spawn(encryption.follow(Some(embedded.clone())));
        return Ok(embedded);
    }
    args.embedded_store.ensure_unused()?;
    let tls = args.etcd_cafile.clone().map(|ca| store::etcd::Tls {
        ca,
        cert: args.etcd_certfile.clone(),
        key: args.etcd_keyfile.clone(),
    });
    let options = store::etcd::EtcdOptions {
        endpoints: args.etcd_servers.clone(),
        prefix: args.store_root(),
        tls,
        codec: Arc::new(EncryptedEtcdCodec(codec)),
        compaction_interval: Some(COMPACTION_INTERVAL),
    };
    let connected = store::etcd::connect(options).await;
    let connected =
        connected.with_context(|| format!("failed to connect to etcd at {}", args.etcd_servers.join(", ")))?;
    tokio::spawn(encryption.follow(None));
    Ok(connected)
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
        root: args.store_root(),
    })
}

fn serving_tls(args: &ApiServerArgs, authority: &Authority, shown: &Arc<Renewed>) -> Result<Arc<rustls::ServerConfig>> {
    let mut client_authorities = client_authorities(args, authority)?;
    // Which authority signed a certificate decides what it is good for: see `front_proxies`.
    if let Some(path) = &args.requestheader_client_ca_file {
        client_authorities.extend(roots_of(path)?.roots);
    }
    let identity = shown.identity();
    let serving = ServingTls {
        certificates: tls::certificates(&identity.certificate_pem)?,
        key: tls::key(&identity.key_pem)?,
        client_authorities,
    };
    let mut config = serving
        .config()
        .map_err(|error| anyhow::anyhow!("invalid serving certificate: {error}"))?;
    Arc::make_mut(&mut config).cert_resolver = shown.clone();
    Ok(config)
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
    tls::roots(&read(path)?).with_context(|| format!("{} contains no certificate", path.display()))
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

/// The key that signs the tokens of service accounts, PEM.
fn token_key(layout: &Layout, args: &ApiServerArgs) -> Result<String> {
    match &args.service_account_signing_key_file {
        Some(path) => read(path),
        None => pki::service_account_key(layout),
    }
}

fn gate_options(args: &ApiServerArgs, authority: &Authority, token_key: &str) -> Result<GateOptions> {
    let signing = SigningKey::from_pem(token_key).context("invalid key for service account tokens")?;
    let mut keys = Vec::new();
    for path in &args.service_account_key_file {
        let found = PublicKey::from_pem(&read(path)?).with_context(|| format!("{} contains no key", path.display()))?;
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
fn kubelets(
    args: &ApiServerArgs,
    authority: &Authority,
    shown: &Arc<Renewed>,
    signs_for_kubelets: bool,
) -> Result<KubeletDialer> {
    let trust = match &args.kubelet_certificate_authority {
        Some(path) => KubeletTrust::NodesOrNames(tls::roots(&read(path)?)?),
        None if signs_for_kubelets => KubeletTrust::Nodes(tls::roots(&authority.certificate_pem)?),
        None => KubeletTrust::Anyone,
    };
    let identity = shown.identity();
    let tls = KubeletTls {
        identity: Some((
            tls::certificates(&identity.certificate_pem)?,
            tls::key(&identity.key_pem)?,
        )),
        trust,
        is_for_kubelets_only: args.kubelet_client_certificate.is_none(),
    };
    let dialer = tls.dialer().context("invalid client certificate for kubelets")?;
    Ok(dialer.showing(shown.clone()))
}

/// How other API servers know that requests come from this one: by an authority that signs nothing else.
fn front_proxy(layout: &Layout, args: &ApiServerArgs, shown: &Arc<Renewed>) -> Result<FrontProxy> {
    // The flags come all together or not at all.
    let authority_pem = match (&args.proxy_client_cert_file, &args.requestheader_client_ca_file) {
        (Some(_), Some(authority)) => read(authority)?,
        _ => Authority::open_front_proxy(layout)?.certificate_pem,
    };
    let identity = shown.identity();
    let mut unchecked_tls = tls::client(None, Some(&identity))?;
    Arc::make_mut(&mut unchecked_tls).client_auth_cert_resolver = shown.clone();
    Ok(FrontProxy {
        unchecked_tls,
        identity: Some((identity.certificate_pem, identity.key_pem)),
        renewed: Some(shown.clone()),
        authority_pem,
        allowed_names: args.requestheader_allowed_names.clone(),
    })
}

/// Writes the kubeconfig while other things start: a disk takes its time to keep a file. One that is good for long enough
/// stays as it is, so that a cluster also starts on a full disk.
fn write_admin_kubeconfig(layout: &Layout, authority: &Authority, url: &str) -> Result<Writing> {
    let Some(text) = admin_kubeconfig(layout, authority, url)? else {
        return Ok(tokio::spawn(async { Ok(()) }));
    };
    let path = layout.kubeconfig();
    Ok(tokio::task::spawn_blocking(move || {
        write_private(&path, text.as_bytes())
    }))
}

/// A new kubeconfig of the administrator, unless the one that is there is good for long enough.
fn admin_kubeconfig(layout: &Layout, authority: &Authority, url: &str) -> Result<Option<String>> {
    if kubeconfig::is_current(&layout.kubeconfig(), &layout.name, url, &authority.certificate_pem) {
        return Ok(None);
    }
    let admin = authority.client("kubernetes-admin", &["system:masters"])?;
    let text = kubeconfig::render(&layout.name, url, &authority.certificate_pem, "admin", &admin);
    Ok(Some(text))
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
