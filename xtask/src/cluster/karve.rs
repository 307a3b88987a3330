//! A Karve of its own: own directory, own ports, own network namespace.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use super::kubectl::Kubectl;
use super::workdir::WorkDir;
use super::worker::Worker;
use crate::namespace::NetworkNamespace;
use crate::peers;
use crate::process::{self, Process};
use crate::signals::wait_for;
use crate::tools::{self, is_root, root, run};

/// How long a cluster may take to come up on a busy machine.
const START: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Runtime {
    Embedded,
    Containerd,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Store {
    Embedded,
    Etcd,
}

/// What to start.
#[derive(Clone)]
pub struct Setup {
    pub binary: PathBuf,
    pub runtime: Runtime,
    pub store: Store,
    /// Without any, a control plane only.
    pub nodes: usize,
    /// Archives of images that the first node can pull as well, in place of a registry that is out of reach.
    pub pullable: Vec<PathBuf>,
    /// Where the logs go, which outlive the cluster.
    pub logs: PathBuf,
}

/// A cluster that is taken down when dropped. The fields stand in the order of taking down.
pub struct Karve {
    workers: Vec<Worker>,
    process: Option<Process>,
    containerd: Option<Containerd>,
    etcd: Option<Process>,
    registry: Option<Process>,
    namespace: Option<NetworkNamespace>,
    setup: Setup,
    port: u16,
    dir: WorkDir,
}

impl Karve {
    /// Everything that Karve stands on, but not Karve yet.
    pub fn prepare(setup: &Setup) -> Result<Self> {
        ensure!(
            setup.nodes < 2 || setup.runtime == Runtime::Embedded,
            "several nodes need the embedded runtime"
        );
        let dir = WorkDir::create()?;
        fs::create_dir_all(&setup.logs).with_context(|| format!("cannot make {}", setup.logs.display()))?;
        let namespace = match is_root() {
            true => Some(NetworkNamespace::create(&dir.path().join("netns"))?),
            false if setup.nodes > 0 => bail!("a cluster with a node needs root"),
            false => None,
        };
        let port = if namespace.is_some() { 6443 } else { free_port()? };
        let mut cluster = Self {
            workers: Vec::new(),
            process: None,
            containerd: None,
            etcd: None,
            registry: None,
            namespace,
            setup: setup.clone(),
            port,
            dir,
        };
        if setup.store == Store::Etcd {
            cluster.etcd = Some(cluster.start_etcd()?);
        }
        if cluster.pulls() {
            cluster.registry = Some(cluster.start_registry()?);
        }
        if setup.nodes > 0 && setup.runtime == Runtime::Containerd {
            cluster.containerd = Some(Containerd::start(&cluster.dir.path().join("cri"), cluster.network())?);
        }
        Ok(cluster)
    }

    /// A cluster that answers and, when it has a node, runs pods.
    pub fn start(setup: &Setup) -> Result<Self> {
        let mut cluster = Self::prepare(setup)?;
        cluster.up()?;
        cluster.wait_ready()?;
        cluster.join(None)?;
        Ok(cluster)
    }

    /// Lets the other nodes join, at the server's own address unless they are told another, and waits for them.
    pub fn join(&mut self, server: Option<&str>) -> Result<()> {
        let Some(namespace) = self.namespace.as_ref() else {
            return Ok(());
        };
        for number in 2..=self.setup.nodes {
            let worker = Worker::start(self, namespace, number, server, &self.setup.logs)?;
            self.workers.push(worker);
        }
        self.wait_ready()
    }

    /// An API server and nothing else.
    pub fn start_server(setup: &Setup) -> Result<Self> {
        let mut cluster = Self::prepare(setup)?;
        cluster.launch_server()?;
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// Starts Karve itself, for the first time or again.
    pub fn up(&mut self) -> Result<()> {
        self.launch(&mut self.up_command())
    }

    /// Starts an API server and nothing else.
    pub fn launch_server(&mut self) -> Result<()> {
        self.launch(&mut self.server_command("kube-apiserver"))
    }

    fn launch(&mut self, command: &mut Command) -> Result<()> {
        let log = self.setup.logs.join("karve.log");
        self.process = Some(Process::start(command, &log)?);
        Ok(())
    }

    pub fn up_command(&self) -> Command {
        let mut command = self.server_command("up");
        if self.setup.nodes == 0 {
            command.arg("--no-node");
        }
        command.args(["--eviction-hard", NO_PRESSURE, "--image-gc-high-threshold", "100"]);
        if self.registry.is_some() {
            command.args(["--registry-mirror", &format!("*=http://{REGISTRY}")]);
        }
        if let Some(endpoint) = self.runtime_endpoint() {
            command.args(["--container-runtime-endpoint", &endpoint]);
        }
        command
    }

    /// Where containerd answers, if the cluster uses one.
    pub fn runtime_endpoint(&self) -> Option<String> {
        let containerd = self.containerd.as_ref()?;
        Some(format!("unix://{}", containerd.socket.display()))
    }

    fn server_command(&self, subcommand: &str) -> Command {
        let mut command = self.karve(&[subcommand, "--secure-port", &self.port.to_string()]);
        command.env("KARVE_LOG", std::env::var("KARVE_LOG").unwrap_or("info".into()));
        if self.etcd.is_some() {
            command.args(["--etcd-servers", "http://127.0.0.1:2379"]);
        }
        command
    }

    /// A command of the binary about this cluster.
    pub fn karve(&self, arguments: &[&str]) -> Command {
        let mut command = self.inside(&self.setup.binary);
        command
            .args(arguments)
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(["--name", &self.name()]);
        command
    }

    /// Any program, where it reaches the cluster's addresses.
    pub fn inside(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match &self.namespace {
            Some(namespace) => namespace.inside(program),
            None => Command::new(program),
        }
    }

    /// Waits until the API server is ready and so are the nodes that were started.
    pub fn wait_ready(&mut self) -> Result<()> {
        let kubectl = self.kubectl()?;
        let kubeconfig = self.kubeconfig();
        wait_for("the kubeconfig", START, || kubeconfig.exists().then_some(()))
            .and_then(|()| kubectl.until("the API server", START, &["get", "--raw", "/readyz"], |ok| ok == "ok"))
            .and_then(|ready| match self.setup.nodes {
                0 => Ok(ready),
                _ => kubectl.until("Ready nodes", START, READY_NODES, |ready| {
                    ready.split(' ').filter(|state| *state == "True").count() > self.workers.len()
                }),
            })
            .map(drop)
            .with_context(|| self.last_words())
    }

    /// Gives every node an archive of images.
    pub fn import(&self, archive: &Path) -> Result<()> {
        self.workers.iter().try_for_each(|worker| worker.import(archive))?;
        match &self.containerd {
            Some(containerd) => containerd.import(archive),
            None => tools::output(self.karve(&["image", "import"]).arg(archive)).map(drop),
        }
    }

    pub fn kubectl(&self) -> Result<Kubectl> {
        Kubectl::new(&self.kubeconfig(), self.network())
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.data_dir().join("kubeconfig")
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Different for each cluster, since cgroups carry it.
    pub fn name(&self) -> String {
        let dir = self.dir.path().file_name().unwrap_or_default().to_string_lossy();
        dir.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    }

    /// The port of the API server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A file that goes with the cluster.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn network(&self) -> Option<&Path> {
        self.namespace.as_ref().map(NetworkNamespace::file)
    }

    pub fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// The nodes beside the server's own.
    pub fn workers(&mut self) -> &mut [Worker] {
        &mut self.workers
    }

    /// Connects the worker of this number, counted from zero, with the others, or cuts it off.
    pub fn plug(&self, number: usize, connected: bool) -> Result<()> {
        let first = self
            .namespace
            .as_ref()
            .context("the cluster has no network of its own")?;
        first.plug(number + 2, connected)
    }

    /// Where each node remembers the addresses of its pods.
    pub fn address_journals(&self) -> Vec<PathBuf> {
        let workers = self.workers.iter().map(|worker| worker.data_dir().to_owned());
        let dirs = [self.data_dir()].into_iter().chain(workers);
        dirs.map(|dir| dir.join("node/network/addresses")).collect()
    }

    /// Ends etcd without warning and starts it again on what it stored.
    pub fn crash_etcd(&mut self) -> Result<()> {
        self.etcd.as_mut().context("etcd does not run")?.crash();
        self.etcd = Some(self.start_etcd()?);
        Ok(())
    }

    /// Ends all nodes and the server; their pods go on but for those of the other nodes.
    pub fn end(&mut self) {
        self.workers.clear();
        drop(self.process.take());
    }

    /// Removes what they made, as their users would.
    pub fn remove(&mut self) -> Result<()> {
        self.end();
        tools::output(&mut self.karve(&["reset"])).map(drop)
    }

    pub fn binary(&self) -> &Path {
        &self.setup.binary
    }

    /// The end of the log, for a message about what went wrong.
    pub fn last_words(&self) -> String {
        let tail = tools::last_lines(&self.setup.logs.join("karve.log"), 5);
        format!("karve's log in {} ends:\n{tail}", self.setup.logs.display())
    }

    /// Whether there is something to pull, and a namespace in which the registry's port is free.
    fn pulls(&self) -> bool {
        let embedded = self.setup.nodes > 0 && self.setup.runtime == Runtime::Embedded;
        embedded && self.namespace.is_some() && !self.setup.pullable.is_empty()
    }

    fn start_registry(&self) -> Result<Process> {
        let built = peers::build(&["registry".to_owned()])?;
        let program = built.first().context("the registry was not built")?;
        let mut command = self.inside(program);
        command.args(["-listen", REGISTRY]).args(&self.setup.pullable);
        Process::start(&mut command, &self.setup.logs.join("registry.log"))
    }

    fn start_etcd(&self) -> Result<Process> {
        let dir = self.dir.path().join("etcd");
        let mut command = self.inside("etcd");
        command.arg("--data-dir").arg(dir).args([
            "--listen-client-urls",
            "http://127.0.0.1:2379",
            "--advertise-client-urls",
            "http://127.0.0.1:2379",
            "--listen-peer-urls",
            "http://127.0.0.1:2380",
        ]);
        Process::start(&mut command, &self.setup.logs.join("etcd.log"))
    }
}

/// Where images can be pulled from, in the cluster's own network.
const REGISTRY: &str = "127.0.0.1:5000";

/// So low that what a test finds never depends on how full the machine is.
pub const NO_PRESSURE: &str = "memory.available<10Mi,nodefs.available<10Mi,imagefs.available<10Mi";

/// The conditions "Ready" of all nodes.
const READY_NODES: &[&str] = &[
    "get",
    "nodes",
    "-o",
    r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}"#,
];

impl Drop for Karve {
    fn drop(&mut self) {
        self.end();
        if self.setup.nodes > 0
            && self.data_dir().exists()
            && let Err(error) = run(self.karve(&["reset"]).stdout(Stdio::null()).process_group(0))
        {
            eprintln!("{error:#}");
        }
    }
}

/// The addresses that Karve gives its pods by default, for its proxy to know them as pods.
const POD_SUBNET: &str = "10.244.0.0/24";

/// A containerd apart from the machine's.
struct Containerd {
    dir: PathBuf,
    socket: PathBuf,
    network: Option<PathBuf>,
}

impl Containerd {
    fn start(dir: &Path, network: Option<&Path>) -> Result<Self> {
        let mut containerd = Self {
            dir: dir.to_owned(),
            socket: PathBuf::new(),
            network: network.map(Path::to_owned),
        };
        containerd.socket = process::output(&mut containerd.script("start"))?.trim().into();
        Ok(containerd)
    }

    fn import(&self, archive: &Path) -> Result<()> {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(&self.socket);
        command.args(["--namespace", "k8s.io", "images", "import"]).arg(archive);
        tools::output(&mut command).map(drop)
    }

    fn script(&self, verb: &str) -> Command {
        let script = root().join("interop/containerd.sh");
        let mut command = match &self.network {
            Some(network) => crate::namespace::enter(network, script),
            None => Command::new(script),
        };
        command.arg(verb).arg(&self.dir).env("POD_SUBNET", POD_SUBNET);
        command.process_group(0);
        command
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if let Err(error) = run(&mut self.script("stop")) {
            eprintln!("{error:#}");
        }
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port of loopback is free")?;
    Ok(listener.local_addr()?.port())
}
