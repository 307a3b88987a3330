//! This machine as a node: runtime, pod network, kubelet and proxy, and how all of it is removed again.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use api::kinds::network_policy::ENFORCED_ON_NODE;
use clap::Args;
use client::Client;
use cri::Runtime;
use cri::v1::{ListPodSandboxRequest, RemovePodSandboxRequest, StopPodSandboxRequest};
use dns::DnsOptions;
use kubelet::{
    ApiAuth, ImageGcOptions, KubeletOptions, LogOptions, Measurements, Places, ServerOptions, ServingCertificate,
    Shortage, SysctlRules, Thresholds,
};
use network::bridge::{self, Bridge, BridgeOptions};
use network::cni::{self, CniOptions};
use network::host_gateway::{self, ClusterBlocks};
use network::{Cidr, PodNetwork, Protocol};
use policy::{Enforcer, PolicedNetwork, PolicyOptions};
use proxy::ProxyOptions;
use runtime::{Embedded, Mirror};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::component::host_name;
use crate::layout::{Layout, create_private_dir};
use crate::pod_network::{BRIDGE_DIR, CNI_DIR, CniArgs, CniDirs};
use crate::supervise::supervise;
use crate::{control, leftovers, routes};

/// Flags of everything that makes this machine a node; upstream's names where upstream has them.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// Name of the node [default: the machine's hostname]
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// IP address of the node [default: the address of the default route's interface]
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// Use the container runtime at this CRI socket instead of the embedded one
    #[arg(long)]
    pub container_runtime_endpoint: Option<String>,
    /// CIDR range of this node's pods [default: the first block of --cluster-cidr]. Only for `up`: nodes that join are
    /// assigned a free block
    #[arg(long)]
    pub pod_cidr: Option<Cidr>,
    /// Port of this node's instance of the built-in DNS server
    #[arg(long, default_value_t = 10053)]
    pub dns_port: u16,
    /// Port of the kubelet's server
    #[arg(long, default_value_t = 10250)]
    pub kubelet_port: u16,
    /// Port on which the proxy serves /healthz and /livez; 0 disables it
    #[arg(long, default_value_t = 10256)]
    pub proxy_healthz_port: u16,
    /// Loopback port on which the proxy serves /metrics and /proxyMode; 0 disables it
    #[arg(long, default_value_t = 10249)]
    pub proxy_metrics_port: u16,
    /// Maximum number of pods on this node
    #[arg(long, default_value_t = 110)]
    pub max_pods: u32,
    /// Below these amounts the node is under pressure and takes no new pods: memory.available, nodefs.available,
    /// nodefs.inodesFree, imagefs.available, imagefs.inodesFree and pid.available, each a quantity or a percentage. The
    /// defaults suit one machine that is not for pods alone; `karve kubelet` has upstream's
    #[arg(
        long,
        default_value = "memory.available<100Mi,nodefs.available<1Gi,imagefs.available<1Gi"
    )]
    pub eviction_hard: Thresholds,
    /// Disk usage in percent at which unused images are removed; 100 disables it
    #[arg(long, default_value_t = 95)]
    pub image_gc_high_threshold: u64,
    /// Disk usage in percent down to which unused images are removed
    #[arg(long, default_value_t = 90)]
    pub image_gc_low_threshold: u64,
    /// Mirror to try before a registry, as in docker.io=https://mirror.example:5000; * matches every registry. Can be
    /// repeated. Not allowed with --container-runtime-endpoint: configure mirrors in that runtime
    #[arg(long, value_name = "REGISTRY=URL", conflicts_with = "container_runtime_endpoint")]
    pub registry_mirror: Vec<Mirror>,
    #[command(flatten)]
    pub pods: PodArgs,
    #[command(flatten)]
    pub logs: ContainerLogArgs,
    /// Name of the pod network's bridge [default: derived from the cluster's name]
    #[arg(long)]
    pub bridge: Option<String>,
    #[command(flatten)]
    pub cni: CniArgs,
}

/// What all nodes of a cluster have to agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterNetwork {
    /// The addresses of all pods.
    pub cluster_cidr: Cidr,
    /// The addresses of all Services.
    pub service_cidr: Cidr,
    /// What pods' `resolv.conf` names.
    pub name_servers: Vec<IpAddr>,
    /// Whether the one name server is the built-in one, of which every node runs a part.
    pub builtin_dns: bool,
    pub cluster_domain: String,
}

impl ClusterNetwork {
    /// The address of the built-in name server, unless others were named.
    pub fn builtin_address(&self) -> Option<IpAddr> {
        self.name_servers.first().filter(|_| self.builtin_dns).copied()
    }
}

/// What pods may take and change of the machine.
#[derive(Args, Clone, Debug)]
pub struct PodArgs {
    /// Maximum number of processes per pod; -1 leaves only the node-wide limit for all pods
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pod_max_pids: i64,
    /// Namespaced unsafe sysctls that pods may set; patterns may end in *. Use at your own risk
    #[arg(long, value_delimiter = ',')]
    allowed_unsafe_sysctls: Vec<String>,
}

impl PodArgs {
    pub fn apply(&self, options: &mut KubeletOptions) -> Result<()> {
        options.pod_max_pids = match self.pod_max_pids {
            -1 => None,
            limit => u64::try_from(limit).ok().filter(|limit| *limit > 0),
        };
        anyhow::ensure!(
            self.pod_max_pids == -1 || options.pod_max_pids.is_some(),
            "--pod-max-pids {}: must be positive, or -1",
            self.pod_max_pids
        );
        options.sysctls = SysctlRules::new(&self.allowed_unsafe_sysctls).context("--allowed-unsafe-sysctls")?;
        Ok(())
    }
}

/// How large containers' logs grow.
#[derive(Args, Clone, Debug)]
pub struct ContainerLogArgs {
    /// Size at which a container's log is rotated
    #[arg(long, default_value = "10Mi")]
    container_log_max_size: String,
    /// Number of log files kept per container, including the current one
    #[arg(long, default_value_t = 5)]
    container_log_max_files: usize,
}

impl ContainerLogArgs {
    pub fn options(&self) -> Result<LogOptions> {
        let text = &self.container_log_max_size;
        let max_bytes = kubelet::parse_bytes(text).filter(|bytes| *bytes > 0);
        let max_bytes =
            max_bytes.with_context(|| format!("--container-log-max-size {text}: must be a quantity, such as 10Mi"))?;
        anyhow::ensure!(
            self.container_log_max_files >= 2,
            "--container-log-max-files must be at least 2"
        );
        Ok(LogOptions {
            max_bytes,
            max_files: self.container_log_max_files,
        })
    }
}

/// Everything on this machine that belongs to a node, by name: enough to remove it without its flags.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeFootprint {
    pub node_name: String,
    pub runtime_endpoint: Option<String>,
    pub bridge: String,
    pub proxy_table: String,
    /// Empty for a node that an earlier version started, which enforced no policies.
    #[serde(default)]
    pub policy_table: String,
    pub cgroup_root: String,
    pub root_dir: PathBuf,
    pub state_dir: PathBuf,
    /// Empty when the cluster gives the node its block.
    pub pod_cidr: String,
    pub cluster_cidr: String,
    pub service_cidr: String,
    #[serde(default)]
    pub registry_mirrors: Vec<Mirror>,
    /// Ports of the machine that the node's own components listen on: no pod's to have.
    #[serde(default)]
    pub reserved_ports: BTreeSet<(Protocol, u16)>,
    /// The plugins that connect pods, if it is not the built-in network.
    #[serde(default)]
    pub cni: Option<CniDirs>,
}

/// What the components of a node need beside their flags.
pub struct NodeSetup {
    pub args: NodeArgs,
    pub footprint: NodeFootprint,
    pub network: ClusterNetwork,
    pub node_ip: IpAddr,
    /// Where nodes reach the server.
    pub api_servers: BTreeSet<SocketAddr>,
    pub serving: ServingCertificate,
    /// Whether the block of the node's pods was chosen where it was started, and not by the cluster.
    pub chooses_block: bool,
    pub client_authority_pem: String,
}

/// The runtime of a node; the embedded one can do more than the CRI says.
#[derive(Clone)]
pub enum NodeRuntime {
    /// Plugins' pods have nobody here who enforces policies.
    Embedded(Arc<Embedded>, Option<PodPolicies>),
    Remote(Arc<dyn Runtime>),
}

/// Where the pods of the embedded runtime are connected, and where they wait until their NetworkPolicies hold.
#[derive(Clone)]
pub struct PodPolicies {
    bridge: Bridge,
    enforcer: Enforcer,
}

/// Whether pods wait until their NetworkPolicies hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policies {
    Enforced,
    /// There is no API server that could say what they are.
    Unknown,
}

impl NodeArgs {
    pub fn node_name(&self) -> String {
        self.hostname_override.clone().unwrap_or_else(host_name)
    }

    /// What this machine has too little of to take pods, for a node whose files are at `root_dir`.
    pub fn shortages(&self, root_dir: &Path) -> Vec<Shortage> {
        self.eviction_hard.shortages(&Measurements::take(&Places::on(root_dir)))
    }

    /// Where the node's components listen.
    fn own_ports(&self, network: &ClusterNetwork) -> BTreeSet<(Protocol, u16)> {
        let dns = [Protocol::Tcp, Protocol::Udp].map(|protocol| (protocol, self.dns_port));
        let dns = dns.into_iter().filter(|_| network.builtin_dns);
        let own = [self.kubelet_port, self.proxy_healthz_port, self.proxy_metrics_port];
        let own = own.into_iter().filter(|port| *port != 0);
        dns.chain(own.map(|port| (Protocol::Tcp, port))).collect()
    }
}

/// A node's ways to the API server, each with its component's rights.
pub struct NodeClients {
    pub kubelet: Client,
    pub proxy: Client,
    pub dns: Client,
    pub policy: Client,
    /// Gives components their rights, where this process may; a node that joins has them by its token.
    pub admin: Option<Client>,
}

impl NodeFootprint {
    pub fn new(layout: &Layout, args: &NodeArgs, network: &ClusterNetwork) -> NodeFootprint {
        let runtime = Self::of_runtime(layout, args.pod_cidr, network.cluster_cidr, network.service_cidr);
        NodeFootprint {
            node_name: args.node_name(),
            runtime_endpoint: args.container_runtime_endpoint.clone(),
            bridge: args.bridge.clone().unwrap_or(runtime.bridge),
            registry_mirrors: args.registry_mirror.clone(),
            reserved_ports: args.own_ports(network),
            cni: args
                .cni
                .dirs(&runtime.root_dir)
                .filter(|_| args.container_runtime_endpoint.is_none()),
            ..runtime
        }
    }

    /// That of the embedded runtime and its network alone.
    pub fn of_runtime(layout: &Layout, pod_cidr: Option<Cidr>, cluster_cidr: Cidr, service_cidr: Cidr) -> Self {
        let is_default = layout.name == "karve";
        let suffix = if is_default {
            String::new()
        } else {
            format!("-{}", layout.name)
        };
        NodeFootprint {
            node_name: host_name(),
            runtime_endpoint: None,
            bridge: bridge_name(&layout.name),
            proxy_table: format!("{}{suffix}", proxy::DEFAULT_TABLE),
            policy_table: format!("{}{suffix}", policy::DEFAULT_TABLE),
            cgroup_root: format!("/karve{suffix}"),
            root_dir: layout.node(),
            state_dir: Path::new("/run/karve").join(&layout.name),
            pod_cidr: pod_cidr.map(|cidr| cidr.to_string()).unwrap_or_default(),
            cluster_cidr: cluster_cidr.to_string(),
            service_cidr: service_cidr.to_string(),
            registry_mirrors: Vec::new(),
            reserved_ports: BTreeSet::new(),
            cni: None,
        }
    }

    /// Other runtimes and plugins have networks of their own.
    fn enforces_policies(&self) -> bool {
        self.runtime_endpoint.is_none() && self.cni.is_none()
    }

    fn bridge_options(&self) -> Result<BridgeOptions> {
        let mut options = BridgeOptions::new(self.root_dir.join(BRIDGE_DIR));
        options.bridge.clone_from(&self.bridge);
        options.pod_cidrs = match self.pod_cidr.as_str() {
            "" => Vec::new(),
            cidr => vec![parse(cidr)?],
        };
        options.cluster_cidrs = vec![parse(&self.cluster_cidr)?, parse(&self.service_cidr)?];
        options.reserved_ports.clone_from(&self.reserved_ports);
        Ok(options)
    }

    /// Opens the runtime, and with it the pods that are already running.
    pub async fn open_runtime(&self, policies: Policies) -> Result<NodeRuntime> {
        if let Some(endpoint) = &self.runtime_endpoint {
            let connected = cri::connect(endpoint).await;
            let remote =
                connected.with_context(|| format!("failed to connect to the container runtime at {endpoint}"))?;
            return Ok(NodeRuntime::Remote(remote));
        }
        create_private_dir(&self.root_dir)?;
        create_private_dir(&self.state_dir)?;
        let (network, pod_policies) = self.open_network(policies)?;
        let options = runtime::Options {
            root_dir: self.root_dir.join("runtime"),
            state_dir: self.state_dir.join("runtime"),
            cgroup_parent: PathBuf::from(&self.cgroup_root),
            supervisor_exe: std::env::current_exe().context("failed to find the path of this executable")?,
            network,
            mirrors: self.registry_mirrors.clone(),
        };
        let opened = runtime::open(options)
            .await
            .context("failed to open the container runtime")?;
        Ok(NodeRuntime::Embedded(opened, pod_policies))
    }

    fn open_network(&self, policies: Policies) -> Result<(Arc<dyn PodNetwork>, Option<PodPolicies>)> {
        if let Some(dirs) = &self.cni {
            let mut options = CniOptions::new(self.root_dir.join(CNI_DIR));
            options.config_dir.clone_from(&dirs.conf_dir);
            options.bin_dirs.clone_from(&dirs.bin_dirs);
            create_private_dir(&options.data_dir)?;
            tracing::info!(directory = %dirs.conf_dir.display(), "Using CNI plugins for pod networking; NetworkPolicies are enforced only if the plugins do so");
            return Ok((Arc::new(cni::open(options)), None));
        }
        let bridge = bridge::open(self.bridge_options()?).context("failed to set up the pod network")?;
        let enforcer = Enforcer::new();
        let mut network: Arc<dyn PodNetwork> = Arc::new(bridge.clone());
        if policies == Policies::Enforced {
            network = Arc::new(PolicedNetwork::new(network, enforcer.clone()));
        }
        Ok((network, Some(PodPolicies { bridge, enforcer })))
    }

    /// Stops every pod and removes every link, rule and cgroup of this node. Fine when there is nothing left.
    pub async fn tear_down(&self) -> Result<()> {
        let runtime = self.open_runtime(Policies::Unknown).await?;
        let runtime = runtime.cri();
        let listed = runtime
            .list_pod_sandbox(ListPodSandboxRequest::default())
            .await
            .context("failed to list pods")?;
        for sandbox in listed.items {
            let id = sandbox.id;
            runtime
                .stop_pod_sandbox(StopPodSandboxRequest {
                    pod_sandbox_id: id.clone(),
                })
                .await?;
            runtime
                .remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: id })
                .await?;
        }
        drop(runtime);
        let service_cidr = parse(&self.service_cidr)?;
        proxy::remove(&self.proxy_table, &[service_cidr]).context("failed to remove the rules of the proxy")?;
        if !self.policy_table.is_empty() {
            policy::remove(&self.policy_table).context("failed to remove the rules of NetworkPolicies")?;
        }
        host_gateway::remove(&[parse(&self.cluster_cidr)?]).context("failed to remove the routes to other nodes")?;
        if self.runtime_endpoint.is_none() && self.cni.is_none() {
            bridge::remove(&self.bridge_options()?).context("failed to remove the pod network")?;
        }
        leftovers::unmount_below(&self.root_dir)?;
        leftovers::remove_cgroup(&self.cgroup_root)?;
        match std::fs::remove_dir_all(&self.state_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("failed to remove {}", self.state_dir.display()))
            }
            _ => Ok(()),
        }
    }
}

impl NodeRuntime {
    pub fn cri(&self) -> Arc<dyn Runtime> {
        match self {
            NodeRuntime::Embedded(embedded, _) => embedded.clone(),
            NodeRuntime::Remote(remote) => remote.clone(),
        }
    }
}

impl NodeSetup {
    /// Starts everything that makes this machine a node. Each task starts its component again when it fails.
    pub fn start(self, runtime: &NodeRuntime, clients: NodeClients) -> Result<Vec<JoinHandle<()>>> {
        let mut tasks = Vec::new();
        if let NodeRuntime::Embedded(embedded, policies) = runtime {
            tasks.push(control::serve(&self.footprint.state_dir, embedded.clone())?);
            tasks.extend(
                policies
                    .iter()
                    .flat_map(|policies| self.keep_network(policies, &clients)),
            );
        }
        let kubelet = self.kubelet(clients.kubelet, runtime.cri())?;
        tasks.push(supervise("kubelet", move || {
            let options = kubelet.clone();
            async move { Ok(::kubelet::run(options).await?) }
        }));
        // Plugins lead to the pods of other nodes by ways of their own.
        if self.footprint.cni.is_none() {
            tasks.push(self.follow_routes(clients.proxy.clone()));
        }
        let proxy = self.proxy(clients.proxy);
        tasks.push(supervise("proxy", move || {
            let options = proxy.clone();
            async move { Ok(::proxy::run(options).await?) }
        }));
        if let Some(options) = self.dns(clients.dns) {
            let admin = clients.admin;
            tasks.push(supervise("dns", move || {
                let (options, admin) = (options.clone(), admin.clone());
                async move {
                    if let Some(admin) = admin {
                        dns::grant(&admin).await?;
                    }
                    Ok(dns::run(options).await?)
                }
            }));
        }
        Ok(tasks)
    }

    fn follow_routes(&self, client: Client) -> JoinHandle<()> {
        let node = self.footprint.node_name.clone();
        let cluster = ClusterBlocks {
            pods: self.network.cluster_cidr,
            services: self.network.service_cidr,
        };
        supervise("routes", move || routes::follow(client.clone(), node.clone(), cluster))
    }

    /// The tasks of the built-in network.
    fn keep_network(&self, policies: &PodPolicies, clients: &NodeClients) -> [JoinHandle<()>; 2] {
        let bridge = policies.bridge.clone();
        let kept = supervise("pod network", move || {
            let bridge = bridge.clone();
            async move { Ok(bridge.keep().await?) }
        });
        [self.enforce_policies(policies, clients), kept]
    }

    /// Another runtime has another network, and that enforces policies or does not.
    fn enforce_policies(&self, pods: &PodPolicies, clients: &NodeClients) -> JoinHandle<()> {
        let bridge = pods.bridge.clone();
        let options = PolicyOptions {
            client: clients.policy.clone(),
            node_name: self.footprint.node_name.clone(),
            table: self.footprint.policy_table.clone(),
            bridge: self.footprint.bridge.clone(),
            interface_of: Arc::new(move |ip| bridge.interface_of(ip)),
            enforcer: pods.enforcer.clone(),
            ready: watch::Sender::new(false),
        };
        let admin = clients.admin.clone();
        supervise("network policies", move || {
            let (options, admin) = (options.clone(), admin.clone());
            async move {
                if let Some(admin) = admin {
                    policy::grant(&admin).await?;
                }
                Ok(policy::run(options).await?)
            }
        })
    }

    fn kubelet(&self, client: Client, runtime: Arc<dyn Runtime>) -> Result<KubeletOptions> {
        let auth = Arc::new(ApiAuth::new(client.clone()));
        let mut options = KubeletOptions::new(client, runtime, &self.footprint.node_name);
        options.node_ips = vec![self.node_ip];
        options.root_dir = self.footprint.root_dir.join("kubelet");
        options.pod_logs_dir = self.footprint.root_dir.join("logs/pods");
        options.local_volumes_dir = Some(self.footprint.root_dir.with_file_name("volumes"));
        options.cgroup_root.clone_from(&self.footprint.cgroup_root);
        options.cluster_dns.clone_from(&self.network.name_servers);
        options.cluster_domain.clone_from(&self.network.cluster_domain);
        options.pod_cidrs = self.args.pod_cidr.into_iter().collect();
        options.registers_pod_cidrs = self.chooses_block;
        options.max_pods = self.args.max_pods;
        options.eviction_hard = self.args.eviction_hard.clone();
        options.image_gc = ImageGcOptions {
            high_percent: self.args.image_gc_high_threshold,
            low_percent: self.args.image_gc_low_threshold,
        };
        options.container_logs = self.args.logs.options()?;
        self.args.pods.apply(&mut options)?;
        options.port = self.args.kubelet_port;
        options.reserved_ports.clone_from(&self.footprint.reserved_ports);
        if self.network.builtin_dns {
            let port = self.args.dns_port.to_string();
            options.annotations.insert(controllers::DNS_PORT.to_owned(), port);
        }
        let enforced = self.footprint.enforces_policies().to_string();
        options.annotations.insert(ENFORCED_ON_NODE.to_owned(), enforced);
        options.server = Some(ServerOptions {
            address: (self.node_ip, self.args.kubelet_port).into(),
            certificate: self.serving.clone(),
            client_ca: Some(self.client_authority_pem.clone().into_bytes()),
            authenticator: Some(auth.clone()),
            authorizer: auth,
        });
        Ok(options)
    }

    /// The built-in name server, unless others were named.
    fn dns(&self, client: Client) -> Option<DnsOptions> {
        if !self.network.builtin_dns {
            return None;
        }
        let server = SocketAddr::new(self.node_ip, self.args.dns_port);
        let mut options = DnsOptions::new(client, server);
        options.domain.clone_from(&self.network.cluster_domain);
        // Processes of the host, pods in its network among them, ask from the node's own address.
        options.clients = vec![self.network.cluster_cidr, Cidr::containing(self.node_ip, u8::MAX)];
        Some(options)
    }

    fn proxy(&self, client: Client) -> ProxyOptions {
        let mut options = ProxyOptions::new(client, &self.footprint.node_name);
        options.cluster_cidrs = vec![self.network.cluster_cidr];
        options.service_cidrs = vec![self.network.service_cidr];
        options.table.clone_from(&self.footprint.proxy_table);
        options.reserved_ports.clone_from(&self.footprint.reserved_ports);
        options.kubelet_port = self.args.kubelet_port;
        options.api_servers.clone_from(&self.api_servers);
        let healthz = self.args.proxy_healthz_port;
        options.healthz_address = (healthz != 0).then(|| (Ipv4Addr::UNSPECIFIED, healthz).into());
        let metrics = self.args.proxy_metrics_port;
        options.metrics_address = (metrics != 0).then(|| (Ipv4Addr::LOCALHOST, metrics).into());
        options
    }
}

/// Interface names have at most 15 bytes.
fn bridge_name(cluster: &str) -> String {
    match cluster {
        "karve" => "karve0".to_owned(),
        name => {
            let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
                (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
            });
            format!("kv{hash:08x}")
        }
    }
}

pub fn parse(cidr: &str) -> Result<Cidr> {
    cidr.parse()
        .map_err(|error| anyhow::anyhow!("{cidr:?} is not a CIDR range: {error}"))
}
