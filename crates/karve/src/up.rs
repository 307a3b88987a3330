//! `karve up`: the whole cluster in this process.

use std::fs::OpenOptions;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::apiserver::{ApiServer, InProcess, LocalNode};
use ::controllers::{Accounts, AddressRange, AddressSource, KubeletServing, LoadBalancer, Settings, SigningAuthority};
use ::scheduler::SchedulerMetrics;
use anyhow::{Context, Result, bail, ensure};
use api::kinds::node::NODE;
use auth::User;
use clap::Args;
use client::when::Moment;
use client::{Client, QueueMetrics, Transport};
use kubelet::ServingCertificate;
use metrics::Page;
use network::{Cidr, Protocol};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster_info::ClusterInfo;
use crate::component::apiserver::{self, ApiServerArgs, Running, Surroundings};
use crate::component::{self, controllers, scheduler};
use crate::layout::Layout;
use crate::node::{self, ClusterNetwork, NodeArgs, NodeClients, NodeFootprint, NodeRuntime, NodeSetup, Policies};
use crate::readiness::{POLL, is_node_ready, wait_for_node};
use crate::renewal::{self, Renewed};
use crate::run_file::{JoinFacts, RunFile};
use crate::start_report::StartReport;
use crate::supervise::supervise;
use crate::{say, stop, token};

const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Where in the Services' network the name server is, as everywhere.
const DNS_OFFSET: u32 = 10;

/// Flags of `karve up`: those of the API server and of the node.
#[derive(Args, Clone, Debug)]
pub struct UpArgs {
    /// Run in the background; returns when the node is Ready
    #[arg(long, short)]
    detach: bool,
    /// Run the control plane only; this machine does not become a node
    #[arg(long)]
    no_node: bool,
    #[command(flatten)]
    server: ApiServerArgs,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    node: NodeArgs,
}

/// What `karve token` hands on to nodes that join.
#[derive(Args, Clone, Debug)]
struct NetworkArgs {
    /// CIDR range of all pods; every node is assigned a block of it
    #[arg(long, default_value = "10.244.0.0/16")]
    cluster_cidr: Cidr,
    /// DNS servers of pods [default: the built-in DNS server, at the tenth address of the Service range]
    #[arg(long, value_delimiter = ',')]
    cluster_dns: Vec<IpAddr>,
    /// DNS domain of the cluster
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
    /// How Services of type LoadBalancer get addresses: `nodes` uses the addresses of all ready nodes, `off` leaves it
    /// to another controller, or a pool of addresses that the network routes to the nodes, such as
    /// 192.0.2.0/28,192.0.2.40-192.0.2.49
    #[arg(long, default_value = "nodes", value_name = "nodes|off|POOL")]
    service_load_balancer: String,
}

/// When this command was given, by the clock that durations are measured with and by that of the cluster's objects.
#[derive(Clone, Copy)]
struct Begun {
    instant: Instant,
    moment: Moment,
}

impl Begun {
    fn now() -> Begun {
        Begun {
            instant: Instant::now(),
            moment: Moment::now(),
        }
    }
}

/// What runs beside the API server; ends with it.
#[derive(Default)]
struct Components {
    tasks: Vec<JoinHandle<()>>,
    runtime: Option<NodeRuntime>,
}

/// What the components beside the API server count. One process has one page of metrics, and the server shows it.
#[derive(Default)]
struct Figures {
    queues: Arc<QueueMetrics>,
    scheduler: Arc<SchedulerMetrics>,
}

impl Figures {
    fn pages(&self) -> Vec<Arc<dyn Page>> {
        vec![self.queues.clone(), self.scheduler.clone()]
    }
}

pub async fn run(layout: Layout, args: UpArgs) -> Result<()> {
    if args.detach {
        return detach(&layout, &args).await;
    }
    let begun = Begun::now();
    RunFile::ensure_stopped(&layout).await?;
    ensure!(
        args.network.cluster_cidr.contains_block(&args.block()),
        "--pod-cidr {} is outside --cluster-cidr {}: other nodes could not reach its pods",
        args.block(),
        args.network.cluster_cidr
    );
    // Other machines join by such tokens.
    let mut server_args = args.server.clone();
    server_args.authentication.enable_bootstrap_token_auth = true;
    let figures = Figures::default();
    let surroundings = Surroundings {
        pages: figures.pages(),
        local_node: (!args.no_node).then(|| args.local_node()),
        serving_approver: Some(::controllers::APPROVER),
        allocates_node_cidrs: true,
        ends_access_of_deleted_nodes: true,
    };
    let (running, listener, kubeconfig) = apiserver::start(&layout, &server_args, surroundings).await?;
    let server = running.server.clone();
    let stop = stop::on_signal();
    let network = args.network.of(&running, &args.server)?;
    let mut node = args.node.clone();
    node.pod_cidr = Some(args.block());
    let footprint = (!args.no_node).then(|| {
        let mut footprint = NodeFootprint::new(&layout, &node, &network);
        footprint.reserved_ports.insert((Protocol::Tcp, running.secure_port));
        footprint
    });
    let mut run_file = RunFile::new(&running.url, footprint.clone());
    run_file.join = Some(JoinFacts {
        server: running.advertised_url(),
        network: network.clone(),
    });
    let serving = tokio::spawn(::apiserver::serve(
        server.clone(),
        listener,
        running.tls.clone(),
        stop.clone(),
    ));
    // The server answers while the disk takes its time; but before anything is made on the node, the file that says what
    // to clean up must be there.
    kubeconfig.await??;
    run_file.write(&layout)?;
    let load_balancer = args.network.load_balancer(&running)?;
    let info = ClusterInfo {
        name: layout.name.clone(),
        server: running.advertised_url(),
        authority_pem: running.authority.certificate_pem.clone(),
        network: network.clone(),
    };
    let mut components = start_control_plane(&running, info, load_balancer, figures)?;
    components.tasks.push(tokio::spawn(running.keep_certificates(&layout)));
    if let Some(footprint) = footprint {
        start_node(&running, node, network, footprint, &mut components).await?;
    }
    announce(&layout, &running, begun, &args, stop).await;
    serving.await??;
    components.tasks.iter().for_each(JoinHandle::abort);
    server.stop().await;
    Ok(())
}

impl UpArgs {
    /// The node that runs beside the server.
    fn local_node(&self) -> LocalNode {
        let node_ip = self.node.node_ip.unwrap_or_else(|| self.server.advertised());
        LocalNode {
            name: self.node.node_name(),
            kubelet: SocketAddr::new(node_ip, self.node.kubelet_port),
            pod_cidrs: vec![self.block().to_string()],
        }
    }

    /// The addresses of that node's pods.
    fn block(&self) -> Cidr {
        let first = || first_block(self.network.cluster_cidr);
        self.node.pod_cidr.unwrap_or_else(first)
    }
}

impl NetworkArgs {
    fn load_balancer(&self, running: &Running) -> Result<Option<LoadBalancer>> {
        let source = match self.service_load_balancer.as_str() {
            "off" => return Ok(None),
            "nodes" => AddressSource::Nodes,
            pool => {
                let ranges: Result<Vec<AddressRange>, _> = pool.split(',').map(str::parse).collect();
                AddressSource::Pool(ranges.context("--service-load-balancer")?)
            }
        };
        Ok(Some(LoadBalancer {
            source,
            node_ports: running.node_ports.clone(),
            reserved_ports: [("TCP".to_owned(), running.secure_port)].into(),
        }))
    }

    fn of(&self, running: &Running, server: &ApiServerArgs) -> Result<ClusterNetwork> {
        let builtin_dns = self.cluster_dns.is_empty();
        Ok(ClusterNetwork {
            cluster_cidr: self.cluster_cidr,
            service_cidr: node::parse(&server.service_cluster_ip_range)?,
            name_servers: match builtin_dns {
                true => vec![running.service_address(DNS_OFFSET)],
                false => self.cluster_dns.clone(),
            },
            builtin_dns,
            cluster_domain: self.cluster_domain.clone(),
        })
    }
}

/// The block of the first node, cut as those of all others are.
fn first_block(cluster: Cidr) -> Cidr {
    let length = if cluster.is_ipv4() { 24 } else { 64 };
    Cidr::containing(cluster.address(), cluster.prefix().max(length))
}

fn start_control_plane(
    running: &Running,
    info: ClusterInfo,
    load_balancer: Option<LoadBalancer>,
    figures: Figures,
) -> Result<Components> {
    let network = &info.network;
    let cluster_cidr = network.cluster_cidr;
    let cluster_dns = network.builtin_address();
    let root_ca = running.authority.certificate_pem.clone();
    let signing = SigningAuthority {
        certificate_pem: root_ca.clone(),
        key_pem: running.authority.key_pem.clone(),
    };
    let token_signer = controllers::token_signer(&running.token_key_pem)?;
    let kubelet_serving = KubeletServing {
        destinations: running.destinations(),
        server_names: running.extra_names.clone(),
    };
    let client = in_process(running, "system:kube-controller-manager", &[]);
    let server = running.server.clone();
    let accounts: Accounts = Arc::new(move |name| as_account(&server, name));
    let controllers = supervise("controllers", move || {
        let settings = Settings {
            root_ca: Some(root_ca.clone()),
            cluster_cidrs: vec![cluster_cidr.to_string()],
            signing: Some(signing.clone()),
            token_signer: Some(token_signer.clone()),
            kubelet_serving: Some(kubelet_serving.clone()),
            cluster_dns,
            load_balancer: load_balancer.clone(),
            ..Settings::default()
        };
        let queues = figures.queues.clone();
        let options = controllers::options(client.clone(), Some(accounts.clone()), settings, queues);
        async move {
            ::controllers::run(options).await;
            Ok(())
        }
    });
    let client = in_process(running, "system:kube-scheduler", &[]);
    let scheduler = supervise("scheduler", move || {
        let options = scheduler::options(client.clone(), figures.scheduler.clone());
        async move {
            ::scheduler::run(options).await;
            Ok(())
        }
    });
    let admin = in_process(running, "system:apiserver", &["system:masters"]);
    let publisher = admin.clone();
    let dns = supervise("cluster dns", move || publish_dns(publisher.clone(), cluster_dns));
    let granter = admin.clone();
    let rights = supervise("rights of nodes", move || tell_nodes(granter.clone(), info.clone()));
    let storage = supervise("default storage class", move || create_default_class(admin.clone()));
    Ok(Components {
        tasks: vec![controllers, scheduler, dns, rights, storage],
        runtime: None,
    })
}

/// The kubelets of the cluster keep the volumes of this class.
async fn create_default_class(admin: Client) -> Result<()> {
    Ok(::controllers::create_default_class(&admin).await?)
}

/// What nodes may read, and what machines are told that want to become nodes. Nodes that joined with the token of an
/// earlier version have to read NetworkPolicies too: without them they start no pods.
async fn tell_nodes(admin: Client, info: ClusterInfo) -> Result<()> {
    token::grant(&admin).await?;
    info.publish(&admin).await
}

/// Only the server says where the cluster's DNS is.
async fn publish_dns(admin: Client, address: Option<IpAddr>) -> Result<()> {
    dns::withdraw(&admin).await?;
    if let Some(address) = address {
        dns::publish(&admin, address).await?;
    }
    Ok(())
}

async fn start_node(
    running: &Running,
    args: NodeArgs,
    network: ClusterNetwork,
    footprint: NodeFootprint,
    components: &mut Components,
) -> Result<()> {
    let node_ip: IpAddr = args.node_ip.unwrap_or(running.advertise);
    let name = footprint.node_name.clone();
    let runtime = footprint.open_runtime(Policies::Enforced).await?;
    let (authority, node) = (running.authority.clone(), name.clone());
    let serving = Renewed::new("kubelet", move || authority.kubelet_server(&node, node_ip))?;
    let setup = NodeSetup {
        args,
        // Signed here, without a request that somebody would have to approve: the node is ready sooner.
        serving: ServingCertificate::Renewed(serving.clone()),
        chooses_block: true,
        client_authority_pem: running.authority.certificate_pem.clone(),
        network,
        footprint,
        node_ip,
        api_servers: [SocketAddr::new(running.advertise, running.secure_port)].into(),
    };
    let clients = NodeClients {
        kubelet: in_process(running, &format!("system:node:{name}"), &["system:nodes"]),
        proxy: in_process(running, "system:kube-proxy", &["system:node-proxier"]),
        dns: Client::new(as_account(&running.server, dns::ACCOUNT)),
        policy: in_process(running, &format!("system:node:{name}"), &["system:nodes"]),
        admin: Some(in_process(running, "system:apiserver", &["system:masters"])),
    };
    components.tasks.extend(setup.start(&runtime, clients)?);
    let renewing = renewal::keep(vec![serving], || Ok(()));
    components.tasks.push(tokio::spawn(renewing));
    components.runtime = Some(runtime);
    Ok(())
}

/// Says where the cluster is as soon as it can take pods.
async fn announce(layout: &Layout, running: &Running, begun: Begun, args: &UpArgs, mut stop: watch::Receiver<bool>) {
    let client = in_process(running, "system:apiserver", &["system:masters"]);
    let ready = async {
        match args.no_node {
            true => true,
            false => wait_for_node(&client, &args.node.node_name(), begun.moment, READY_TIMEOUT).await,
        }
    };
    let ready = tokio::select! {
        ready = ready => ready,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    let state = if ready {
        "ready"
    } else {
        "serving, but its node is not Ready (check the log)"
    };
    say::remark(format_args!(
        "cluster {} is {state} after {} ms at {}",
        layout.name,
        begun.instant.elapsed().as_millis(),
        running.url
    ));
    if let Some(warning) = pressure_warning(layout, args) {
        say::remark(&warning);
    }
    say::remark(format_args!(
        "try: kubectl --kubeconfig {} get pods -A",
        layout.kubeconfig().display()
    ));
}

/// Why the node would take no pods although it is Ready, and what to do about it.
fn pressure_warning(layout: &Layout, args: &UpArgs) -> Option<String> {
    if args.no_node {
        return None;
    }
    let shortages = args.node.shortages(&layout.node());
    let lines: Vec<String> = shortages.iter().map(|shortage| format!("  {shortage}")).collect();
    (!lines.is_empty()).then(|| {
        format!(
            "WARNING: this machine is under pressure, so the node is tainted and new pods stay Pending:\n{}\n\
             Free some of it ({} is where pods' files are), or start with lower thresholds: --eviction-hard 'nodefs.available<100Mi'",
            lines.join("\n"),
            layout.node().display()
        )
    })
}

/// Starts the same command in the background and waits until its node is Ready.
async fn detach(layout: &Layout, args: &UpArgs) -> Result<()> {
    layout.create()?;
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(layout.log_file())
        .with_context(|| format!("failed to open {}", layout.log_file().display()))?;
    let arguments = std::env::args_os()
        .skip(1)
        .filter(|argument| argument != "-d" && argument != "--detach");
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    let report = StartReport::new().context("failed to start in the background")?;
    report.hand_to(&mut command);
    let begun = Begun::now();
    let mut child = command.spawn().context("failed to start in the background")?;
    let deadline = begun.instant + READY_TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            match report.read() {
                Some(why) => bail!("the cluster failed to start: {why}"),
                None => bail!(
                    "the cluster failed to start ({status}); see {}",
                    layout.log_file().display()
                ),
            }
        }
        if is_up(layout, child.id(), begun).await {
            say::result(format_args!(
                "cluster {} is ready after {} ms",
                layout.name,
                begun.instant.elapsed().as_millis()
            ))?;
            if let Some(warning) = pressure_warning(layout, args) {
                say::remark(&warning);
            }
            say::result(format_args!("export KUBECONFIG={}", layout.kubeconfig().display()))?;
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    bail!(
        "the cluster was not ready within {} s; see {}",
        READY_TIMEOUT.as_secs(),
        layout.log_file().display()
    )
}

async fn is_up(layout: &Layout, pid: u32, begun: Begun) -> bool {
    let Ok(Some(run)) = RunFile::read(layout) else {
        return false;
    };
    if run.pid != pid {
        return false;
    }
    let Ok(client) = component::connect(&layout.kubeconfig()) else {
        return false;
    };
    match &run.node {
        Some(node) => is_node_ready(&client, &node.node_name, begun.moment).await,
        None => client
            .resource(&NODE)
            .list::<Value>(&client::ListOptions::default())
            .await
            .is_ok(),
    }
}

/// A client of a component in this process, with that component's own rights.
fn in_process(running: &Running, user: &str, groups: &[&str]) -> Client {
    let user = User::system(user, groups);
    Client::new(Arc::new(InProcess::new(running.server.clone(), user)))
}

/// The way to the server as a service account of the control plane, which needs no object: its name has the rights.
fn as_account(server: &Arc<ApiServer>, name: &str) -> Arc<dyn Transport> {
    let user = User::service_account(controllers::ACCOUNTS_NAMESPACE, name, "").authenticated();
    Arc::new(InProcess::new(server.clone(), user))
}
