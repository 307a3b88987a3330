//! The binary: flags, certificates, wiring. What the components do is in their own crates.
//!
//! Start with [`Command`], the table of everything this binary can be asked to do.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod backup;
mod builtin;
mod certs;
mod cluster_info;
mod component;
mod control;
mod down;
mod image;
mod join;
mod kubeconfig;
mod layout;
mod leftovers;
mod log;
mod memory;
mod node;
mod pki;
mod pod_network;
mod readiness;
mod renewal;
mod routes;
mod run_file;
mod say;
mod start_report;
mod stop;
mod supervise;
mod tls;
mod token;
mod up;
mod why;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use layout::{ClusterArgs, Layout};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Kubernetes in one binary
#[derive(Parser)]
#[command(name = "karve", version, max_term_width = 100)]
struct Karve {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Log level: error, warn, info, debug or trace
    #[arg(long, global = true, env = "KARVE_LOG", default_value = "warn")]
    log: tracing::level_filters::LevelFilter,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a single-node cluster
    ///
    /// Example: karve up -d
    Up(Box<up::UpArgs>),
    /// Join this machine to a cluster as a node
    ///
    /// Example: karve join https://10.0.0.1:6443 --token abcdef.0123456789abcdef --ca-hash sha256:…
    Join(Box<join::JoinArgs>),
    /// Manage bootstrap tokens, with which machines join the cluster
    ///
    /// Example: karve token create
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Show certificates and their expiration, or rotate them
    ///
    /// Example: karve certs
    Certs(certs::CertsArgs),
    /// Stop a cluster and all pods on its node; stored objects are kept
    ///
    /// Example: karve down
    Down,
    /// Stop a cluster and delete all its data
    ///
    /// Example: karve reset --name test
    Reset,
    /// Show how long each stage between `apply` and Ready took
    ///
    /// Example: karve trace deployment/web
    Trace(TraceArgs),
    /// Explain why an object is not healthy and how to fix it
    ///
    /// Example: karve why pod/web-0 -n shop
    Why(why::WhyArgs),
    /// List and import images
    ///
    /// Example: karve image ls
    #[command(subcommand)]
    Image(image::ImageCommand),

    /// Save all objects of a running cluster to a file
    ///
    /// Example: karve backup cluster.backup
    Backup(backup::BackupArgs),
    /// Create a new cluster from a backup
    ///
    /// Example: karve restore --name copy cluster.backup
    Restore(backup::RestoreArgs),

    /// Run only the API server
    ///
    /// Example: karve kube-apiserver --data-dir /tmp/one --secure-port 7443
    KubeApiserver(Box<component::apiserver::ApiServerArgs>),
    /// Run only the controller manager
    ///
    /// Example: karve kube-controller-manager --kubeconfig /tmp/one/kubeconfig
    KubeControllerManager(component::controllers::ControllersArgs),
    /// Run only the scheduler
    ///
    /// Example: karve kube-scheduler --kubeconfig /tmp/one/kubeconfig
    KubeScheduler(component::scheduler::SchedulerArgs),
    /// Run only the kubelet, with a container runtime of this machine
    ///
    /// Example: karve kubelet --kubeconfig node.conf --container-runtime-endpoint unix:///run/containerd/containerd.sock
    Kubelet(Box<component::kubelet::KubeletArgs>),
    /// Run only the service proxy
    ///
    /// Example: karve kube-proxy --kubeconfig proxy.conf
    KubeProxy(component::proxy::ProxyArgs),
    /// Run only the container runtime and serve CRI on a socket
    ///
    /// Example: karve runtime --listen unix:///run/karve.sock --pod-cidr 10.244.0.0/24
    Runtime(component::runtime::RuntimeArgs),

    /// Run only the embedded store and serve etcd's API to clients with a certificate
    ///
    /// Example: karve etcd --data-dir /tmp/one --listen-client-urls https://127.0.0.1:2379
    Etcd(component::etcd::EtcdArgs),

    /// Wait for a termination signal; the default command of the built-in image
    ///
    /// Example: karve pause
    Pause,
    /// Serve the hostname over HTTP; used by the quickstart with the built-in image
    ///
    /// Example: karve serve --port 8080
    Serve(builtin::ServeArgs),
}

#[derive(clap::Args)]
struct TraceArgs {
    /// deployment/NAME or pod/NAME
    target: String,
    /// Namespace of the object
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// Kubeconfig of the API server [default: the cluster's own]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Output format: `json`
    #[arg(long, short, value_parser = ["json"])]
    output: Option<String>,
}

/// Names of links to this binary that mean a component.
const COMPONENTS: &[&str] = &[
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
];

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    // A pod's supervisor stays single-threaded and small: it is told apart before anything else happens.
    if arguments
        .get(1)
        .is_some_and(|first| first == runtime::supervisor::SUBCOMMAND)
    {
        return runtime::supervisor::main(std::env::args().skip(2));
    }
    // So is what unpacks images, which gives up everything that it could lose.
    if arguments
        .get(1)
        .is_some_and(|first| first == runtime::unpacker::SUBCOMMAND)
    {
        return runtime::unpacker::main();
    }
    let program = arguments
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .unwrap_or_default()
        .to_owned();
    if COMPONENTS.iter().any(|component| program == *component) {
        arguments.insert(1, program);
    }
    if let Err(error) = component::kubelet::config::expand(&mut arguments) {
        say::remark(format_args!("karve: {error}"));
        return ExitCode::FAILURE;
    }
    let karve = Karve::parse_from(arguments);
    log::init(karve.log);
    match run(karve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::remark(format_args!("karve: {error:#}"));
            start_report::tell(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(karve: Karve) -> Result<()> {
    if let Command::Pause = karve.command {
        return builtin::pause();
    }
    raise_open_files();
    let layout = karve.cluster.layout()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(dispatch(layout, karve.command))
}

/// Takes as many file handles as are allowed: every client and every watch holds one, and shells give out few.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // With fewer, the server still serves as many as it can.
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "Failed to raise the limit on open files");
    }
}

async fn dispatch(layout: Layout, command: Command) -> Result<()> {
    match command {
        Command::Up(args) => up::run(layout, *args).await,
        Command::Join(args) => join::run(&layout, *args).await,
        Command::Token(command) => token::run(&layout, &command).await,
        Command::Certs(args) => certs::run(&layout, &args).await,
        Command::Down => down::down(&layout).await,
        Command::Reset => down::reset(&layout).await,
        Command::Trace(args) => trace(&layout, &args).await,
        Command::Why(args) => why::run(&layout, &args).await,
        Command::Image(command) => image::run(&layout, &command).await,
        Command::Backup(args) => backup::save(&layout, &args).await,
        Command::Restore(args) => backup::restore(&layout, &args),
        Command::KubeApiserver(args) => component::apiserver::run(&layout, &args).await,
        Command::KubeControllerManager(args) => component::controllers::run(layout.kubeconfig(), args).await,
        Command::KubeScheduler(args) => component::scheduler::run(layout.kubeconfig(), args).await,
        Command::Kubelet(args) => component::kubelet::run(&layout, *args).await,
        Command::KubeProxy(args) => component::proxy::run(args).await,
        Command::Runtime(args) => component::runtime::run(&layout, args).await,
        Command::Etcd(args) => component::etcd::run(&layout, args).await,
        Command::Pause => Ok(()),
        Command::Serve(args) => builtin::serve(args).await,
    }
}

async fn trace(layout: &Layout, args: &TraceArgs) -> Result<()> {
    let path = args.kubeconfig.clone().unwrap_or_else(|| layout.kubeconfig());
    let client = component::connect(&path)?;
    let trace = cli::trace::collect(&client, &args.namespace, &args.target).await?;
    match args.output {
        Some(_) => say::result(cli::trace::render_json(&args.target, &trace))?,
        None => say::result(cli::trace::render(&args.target, &trace).trim_end_matches('\n'))?,
    }
    Ok(())
}
