//! The binary: flags, certificates, wiring. What the components do is in their own crates.
//!
//! Start with [`Command`], the table of everything this binary can be asked to do.

mod builtin;
mod component;
mod kubeconfig;
mod layout;
mod pki;
mod stop;
mod supervise;
mod tls;
mod up;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use layout::ClusterArgs;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Kubernetes in one binary.
#[derive(Parser)]
#[command(name = "karve", version, about, max_term_width = 100)]
struct Karve {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// How much to log: error, warn, info, debug or trace
    #[arg(long, global = true, env = "KARVE_LOG", default_value = "warn")]
    log: tracing::level_filters::LevelFilter,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the API server alone
    ///
    /// Example: karve kube-apiserver --data-dir /tmp/one --secure-port 7443
    KubeApiserver(component::apiserver::ApiServerArgs),
    /// Run the controllers alone
    ///
    /// Example: karve kube-controller-manager --kubeconfig /tmp/one/kubeconfig
    KubeControllerManager(component::controllers::ControllersArgs),
    /// Run the scheduler alone
    ///
    /// Example: karve kube-scheduler --kubeconfig /tmp/one/kubeconfig
    KubeScheduler(component::scheduler::SchedulerArgs),
    /// Sleep until a signal comes, as containers of the built-in image do by default
    Pause,
    /// Answer HTTP requests with this machine's name, as the built-in image does in the quickstart
    ///
    /// Example: karve serve --port 8080
    Serve(builtin::ServeArgs),
    /// Show where the time went between `apply` and Ready
    ///
    /// Example: karve trace deployment/web
    Trace(TraceArgs),
    /// Run a whole cluster
    ///
    /// Example: karve up
    Up(up::UpArgs),
}

#[derive(clap::Args)]
struct TraceArgs {
    /// deployment/NAME or pod/NAME
    target: String,
    /// The namespace of the object
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// How to reach the API server [default: the cluster's own kubeconfig]
    #[arg(long)]
    kubeconfig: Option<std::path::PathBuf>,
    /// `json` for machines
    #[arg(long, short, value_parser = ["json"])]
    output: Option<String>,
}

fn main() -> ExitCode {
    let karve = Karve::parse();
    tracing_subscriber::fmt()
        .with_max_level(karve.log)
        .with_writer(std::io::stderr)
        .with_target(true)
        .init();
    match run(karve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("karve: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(karve: Karve) -> Result<()> {
    let layout = karve.cluster.layout()?;
    if let Command::Pause = karve.command {
        return builtin::pause();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async move {
        match karve.command {
            Command::KubeApiserver(args) => {
                let running = component::apiserver::start(&layout, &args).await?;
                eprintln!(
                    "serving {}; kubeconfig in {}",
                    running.url,
                    layout.kubeconfig().display()
                );
                let stop = stop::on_signal();
                apiserver::serve(running.server.clone(), running.listener, running.tls, stop).await?;
                running.server.stop().await;
                Ok(())
            }
            Command::KubeControllerManager(args) => component::controllers::run(layout.kubeconfig(), args).await,
            Command::KubeScheduler(args) => component::scheduler::run(layout.kubeconfig(), args).await,
            Command::Pause => Ok(()),
            Command::Serve(args) => builtin::serve(args).await,
            Command::Trace(args) => trace(&layout, &args).await,
            Command::Up(args) => up::run(layout, args).await,
        }
    })
}

async fn trace(layout: &layout::Layout, args: &TraceArgs) -> Result<()> {
    let path = args.kubeconfig.clone().unwrap_or_else(|| layout.kubeconfig());
    let client = component::connect(&path)?;
    let marks = cli::trace::collect(&client, &args.namespace, &args.target).await?;
    match args.output {
        Some(_) => println!("{}", cli::trace::render_json(&args.target, &marks)),
        None => print!("{}", cli::trace::render(&args.target, &marks)),
    }
    Ok(())
}
