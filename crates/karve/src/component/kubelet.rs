//! `karve kubelet`: the node agent alone, against any API server.

pub mod config;
mod registration;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use client::{Client, Config};
use kubelet::{
    ApiAuth, ImageGcOptions, KubeletOptions, ManifestUrl, Reserved, ServerOptions, ServingCertificate, Thresholds,
};

use super::{apiserver, authority_of, host_name, marks};
use crate::layout::Layout;
use crate::node::{ContainerLogArgs, PodArgs};
use crate::pki::Authority;

/// Upstream's flags of kubelet, as far as they are supported. It drives the runtime at a CRI socket; the embedded
/// runtime runs with `karve up`.
#[derive(Args, Clone, Debug)]
pub struct KubeletArgs {
    /// Kubeconfig of the API server
    #[arg(long)]
    kubeconfig: PathBuf,
    /// CRI socket of the container runtime
    #[arg(long)]
    container_runtime_endpoint: String,
    /// Name of the node [default: the machine's hostname]
    #[arg(long)]
    hostname_override: Option<String>,
    /// IP address of the node [default: the address of the default route's interface]
    #[arg(long)]
    node_ip: Option<IpAddr>,
    /// Data directory of the kubelet
    #[arg(long, default_value = "/var/lib/kubelet")]
    root_dir: PathBuf,
    /// Directory of container logs
    #[arg(long, default_value = "/var/log/pods")]
    pod_logs_dir: PathBuf,
    /// Parent cgroup of all pods
    #[arg(long, default_value = "/")]
    cgroup_root: String,
    /// DNS servers of pods
    #[arg(long, value_delimiter = ',')]
    cluster_dns: Vec<IpAddr>,
    /// DNS domain of the cluster
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
    /// Port of the kubelet's server
    #[arg(long, default_value_t = 10250)]
    port: u16,
    /// IP address of the kubelet's server
    #[arg(long, default_value = "0.0.0.0")]
    address: IpAddr,
    /// The certificate of the kubelet's server, PEM [default: one it signs itself]
    #[arg(
        long,
        requires = "tls_private_key_file",
        conflicts_with = "rotate_server_certificates"
    )]
    tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file, PEM
    #[arg(long, requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Request the kubelet's serving certificate with a CertificateSigningRequest, which must be approved, and renew it
    /// before it expires
    #[arg(long)]
    rotate_server_certificates: bool,
    /// Directory of the serving certificate
    #[arg(long, default_value = "/var/lib/kubelet/pki")]
    cert_dir: PathBuf,
    /// CA certificate that authenticates client certificates, PEM [default: the kubeconfig's CA]
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    /// Maximum number of pods on this node
    #[arg(long, default_value_t = 110)]
    max_pods: u32,
    /// Below these amounts the node is under pressure and takes no new pods: memory.available, nodefs.available,
    /// nodefs.inodesFree, imagefs.available, imagefs.inodesFree and pid.available, each a quantity or a percentage
    #[arg(
        long,
        default_value = "memory.available<100Mi,nodefs.available<10%,imagefs.available<15%,nodefs.inodesFree<5%,imagefs.inodesFree<5%"
    )]
    eviction_hard: Thresholds,
    /// Disk usage in percent at which unused images are removed; 100 disables it
    #[arg(long, default_value_t = 85)]
    image_gc_high_threshold: u64,
    /// Disk usage in percent down to which unused images are removed
    #[arg(long, default_value_t = 80)]
    image_gc_low_threshold: u64,
    #[command(flatten)]
    pods: PodArgs,
    #[command(flatten)]
    logs: ContainerLogArgs,
    #[command(flatten)]
    static_pods: StaticPodArgs,
    #[command(flatten)]
    registration: RegistrationArgs,
    /// Resolver configuration that pods inherit
    #[arg(long, default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,
    /// Serve the logs of the node's services, from the journal, at /logs/
    #[arg(long)]
    enable_system_log_query: bool,
    /// KubeletConfiguration file (kubelet.config.k8s.io/v1beta1); flags take precedence
    #[arg(long)]
    config: Option<PathBuf>,
    /// Directory of drop-in files that override --config; *.conf files are applied in alphabetical order
    #[arg(long)]
    config_dir: Option<PathBuf>,
}

/// Where static pods come from.
#[derive(Args, Clone, Debug)]
struct StaticPodArgs {
    /// Directory or file with static pods
    #[arg(long)]
    pod_manifest_path: Option<PathBuf>,
    /// Interval at which --pod-manifest-path is read even without a change notification
    #[arg(long, default_value = "20s", value_parser = duration)]
    file_check_frequency: Duration,
    /// URL of a manifest with static pods
    #[arg(long)]
    manifest_url: Option<String>,
    /// HTTP header of requests to --manifest-url, as name:value. Can be repeated
    #[arg(long, value_parser = header, value_delimiter = ',')]
    manifest_url_header: Vec<(String, String)>,
    /// Interval at which --manifest-url is read
    #[arg(long, default_value = "20s", value_parser = duration)]
    http_check_frequency: Duration,
}

impl StaticPodArgs {
    fn apply(self, options: &mut KubeletOptions) {
        options.static_pod_path = self.pod_manifest_path;
        options.file_check = self.file_check_frequency;
        let (headers, check) = (self.manifest_url_header, self.http_check_frequency);
        let url = |url| ManifestUrl { url, headers, check };
        options.manifest_url = self.manifest_url.map(url);
    }
}

/// What the node's object says when the node registers, and what pods get of the machine.
#[derive(Args, Clone, Debug)]
struct RegistrationArgs {
    /// Labels with which the node registers, as key=value
    #[arg(long, value_delimiter = ',')]
    node_labels: Vec<String>,
    /// Taints with which the node registers, as key=value:effect
    #[arg(long, value_delimiter = ',')]
    register_with_taints: Vec<String>,
    /// ID of the machine at its cloud provider
    #[arg(long, default_value = "")]
    provider_id: String,
    /// Resources reserved for the operating system (cpu, memory, ephemeral-storage, pid), as cpu=200m,memory=500Mi
    #[arg(long, default_value = "")]
    system_reserved: Reserved,
    /// Resources reserved for Kubernetes components, as cpu=200m,memory=500Mi
    #[arg(long, default_value = "")]
    kube_reserved: Reserved,
}

impl RegistrationArgs {
    fn apply(self, options: &mut KubeletOptions) -> Result<()> {
        options.labels = registration::labels(&self.node_labels)?;
        options.taints = registration::taints(&self.register_with_taints)?;
        options.provider_id = self.provider_id;
        options.reserved = self.system_reserved.plus(&self.kube_reserved);
        Ok(())
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let nanos = schema::parse_duration(text).map_err(|error| error.to_string())?;
    let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0);
    nanos
        .map(Duration::from_nanos)
        .ok_or_else(|| "must be positive".to_owned())
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("must be name:value")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub async fn run(layout: &Layout, args: KubeletArgs) -> Result<()> {
    let path = &args.kubeconfig;
    let config = Config::from_kubeconfig(path, None).with_context(|| format!("failed to load {}", path.display()))?;
    let authority = authority_of(&config)?;
    let client = Client::connect(config)?;
    let endpoint = &args.container_runtime_endpoint;
    let runtime = cri::connect(endpoint).await;
    let runtime = runtime.with_context(|| format!("failed to connect to the container runtime at {endpoint}"))?;
    let name = args.hostname_override.clone().unwrap_or_else(host_name);
    let node_ip = args.node_ip.unwrap_or_else(apiserver::default_address);
    let certificate = serving(layout, &args, &name, node_ip)?;
    let client_ca = match &args.client_ca_file {
        Some(path) => Some(read(path)?),
        None => authority.map(String::into_bytes),
    };
    let _telling = marks::tell(&client);
    let auth = Arc::new(ApiAuth::new(client.clone()));
    let mut options = KubeletOptions::new(client, runtime, name);
    options.node_ips = vec![node_ip];
    options.root_dir = args.root_dir;
    options.pod_logs_dir = args.pod_logs_dir;
    options.cgroup_root = args.cgroup_root;
    options.cluster_dns = args.cluster_dns;
    options.cluster_domain = args.cluster_domain;
    options.max_pods = args.max_pods;
    options.eviction_hard = args.eviction_hard;
    options.image_gc = ImageGcOptions {
        high_percent: args.image_gc_high_threshold,
        low_percent: args.image_gc_low_threshold,
    };
    options.container_logs = args.logs.options()?;
    args.pods.apply(&mut options)?;
    options.port = args.port;
    options.resolv_conf = args.resolv_conf;
    options.system_log_query = args.enable_system_log_query;
    args.static_pods.apply(&mut options);
    args.registration.apply(&mut options)?;
    options.server = Some(ServerOptions {
        address: SocketAddr::new(args.address, args.port),
        certificate,
        client_ca,
        authenticator: Some(auth.clone()),
        authorizer: auth,
    });
    Ok(kubelet::run(options).await?)
}

/// Without a certificate of its own the kubelet signs one itself, as upstream's does.
fn serving(layout: &Layout, args: &KubeletArgs, name: &str, node_ip: IpAddr) -> Result<ServingCertificate> {
    if let (Some(certificate), Some(key)) = (&args.tls_cert_file, &args.tls_private_key_file) {
        return Ok(ServingCertificate::Given {
            chain: read(certificate)?,
            key: read(key)?,
        });
    }
    if args.rotate_server_certificates {
        return Ok(ServingCertificate::Requested {
            directory: args.cert_dir.clone(),
            authority: None,
        });
    }
    layout.create()?;
    Ok(Authority::open(layout)?.kubelet_server(name, node_ip)?.serving())
}

fn read(path: &PathBuf) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))
}
