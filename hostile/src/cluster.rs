//! The cluster under attack: the release binary, in a directory of its own.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::client::Client;
use crate::identity::Authority;
use crate::network::NODE;
use crate::signals::wait_for;

/// How long a cluster may take to come up in the slowest of machines.
const START: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(30);

pub const API_PORT: u16 = 6443;
pub const KUBELET_PORT: u16 = 10250;
/// Where images are pulled from.
pub const REGISTRY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5000);
pub const NODE_NAME: &str = "victim";

/// How containers' logs are kept, so that few bytes are a flood.
pub const LOG_MAX_BYTES: u64 = 1 << 20;
pub const LOG_MAX_FILES: u64 = 2;

/// The processes that one pod may have.
pub const POD_MAX_PIDS: u64 = 2000;

/// So low that what is found never depends on how full the machine is.
const NO_PRESSURE: &str = "memory.available<10Mi,nodefs.available<10Mi,imagefs.available<10Mi";

pub struct Cluster {
    dir: PathBuf,
    binary: PathBuf,
    process: Mutex<Option<Child>>,
}

impl Cluster {
    /// Starts a cluster of one node that is Ready.
    pub fn start(binary: &Path, dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        // Local users shall be kept out by the cluster, not by the place where this one happens to be.
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
        // A copy, for some attacks aim at the program itself.
        let copy = dir.join("karve");
        fs::copy(binary, &copy).with_context(|| format!("cannot copy {}", binary.display()))?;
        let cluster = Self {
            dir: dir.to_owned(),
            binary: copy,
            process: Mutex::new(None),
        };
        cluster.up()?;
        Ok(cluster)
    }

    /// Kills Karve and starts it again; containers go on meanwhile.
    pub fn restart(&self) -> Result<()> {
        if let Some(mut process) = self.process().take() {
            process.kill()?;
            process.wait()?;
        }
        self.up()
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts Karve.
    fn up(&self) -> Result<()> {
        let mut command = self.command(&["up", "--secure-port", &API_PORT.to_string()]);
        command
            .args(["--hostname-override", NODE_NAME, "--eviction-hard", NO_PRESSURE])
            .args([
                "--container-log-max-size",
                &LOG_MAX_BYTES.to_string(),
                "--container-log-max-files",
                &LOG_MAX_FILES.to_string(),
            ])
            .args([
                "--pod-max-pids",
                &POD_MAX_PIDS.to_string(),
                "--image-gc-high-threshold",
                "100",
                "--registry-mirror",
                &format!("*=http://{REGISTRY}"),
            ])
            .env("KARVE_LOG", "info");
        *self.process() = Some(spawn(&mut command, &self.log())?);
        self.wait_ready()
    }

    fn wait_ready(&self) -> Result<()> {
        let (pki, address) = (self.data_dir().join("pki"), self.api());
        let path = format!("/api/v1/nodes/{NODE_NAME}");
        wait_for("the cluster", START, || {
            if !self.is_alive() {
                bail!("karve ended while it was starting: {}", self.last_words());
            }
            // Its files appear one after the other.
            let Ok(client) = administrator(&pki, address) else {
                return Ok(None);
            };
            let Ok(node) = client.get(&path) else { return Ok(None) };
            Ok(is_ready(&node.json()).then_some(()))
        })
        .with_context(|| self.last_words())
    }

    /// A command of the binary about this cluster.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_at(&self.data_dir(), arguments)
    }

    /// The same about another cluster.
    pub fn command_at(&self, data_dir: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .arg("--data-dir")
            .arg(data_dir)
            .args(["--name", &self.name()]);
        command.stdin(Stdio::null());
        command
    }

    /// Takes in an archive of images, as an administrator does.
    pub fn import(&self, archive: &Path) -> Result<()> {
        let output = self.command(&["image", "import"]).arg(archive).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "karve image import: {}", said.trim());
        Ok(())
    }

    pub fn is_alive(&self) -> bool {
        self.process()
            .as_mut()
            .is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    pub fn api(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, API_PORT).into()
    }

    /// It listens at the node's address alone.
    pub fn kubelet(&self) -> SocketAddr {
        (NODE, KUBELET_PORT).into()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub fn binary(&self) -> &Path {
        &self.binary
    }

    pub fn log(&self) -> PathBuf {
        self.dir.join("karve.log")
    }

    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Child::id)
    }

    /// Different for each cluster, since cgroups carry it.
    fn name(&self) -> String {
        format!("hostile-{}", std::process::id())
    }

    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        format!(
            "karve's log ends: {}",
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        )
    }

    /// The peak of memory of the process, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        let pid = self.pid().context("karve does not run")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line
            .and_then(|line| line.split_whitespace().next())
            .context("no VmHWM")?;
        Ok(kilobytes.parse::<u64>()? * 1024)
    }

    fn stop(&self) {
        if let Some(process) = self.process().take() {
            stop(process);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
        match self.command(&["reset"]).stdout(Stdio::null()).status() {
            Ok(status) if status.success() => {}
            other => eprintln!("karve reset: {other:?}"),
        }
        for mount in mounts_below(&self.dir) {
            let _ = unmount(&mount, UnmountFlags::DETACH);
        }
    }
}

/// Starts a program that ends with this one.
pub fn spawn(command: &mut Command, log: &Path) -> Result<Child> {
    let file = File::options().create(true).append(true).open(log)?;
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0);
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(|| {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            Ok(())
        });
    }
    command.spawn().with_context(|| format!("cannot run {command:?}"))
}

/// Asks a process to end and insists after a while.
pub fn stop(mut process: Child) {
    // One that has ended already needs no signal.
    if let Some(pid) = Pid::from_raw(process.id() as i32) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let ended = wait_for("the process to end", STOP, || Ok(process.try_wait()?));
    if ended.is_err() {
        let _ = process.kill();
        let _ = process.wait();
    }
}

pub fn administrator(pki: &Path, address: SocketAddr) -> Result<Client> {
    let identity = Authority::open(pki)?.client("administrator", &["system:masters"])?;
    Ok(Client::with_certificate(address, identity))
}

fn is_ready(node: &serde_json::Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// What is mounted below a directory, the innermost first.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut mounts: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4).map(PathBuf::from))
        .filter(|path| path.starts_with(dir) && path != dir)
        .collect();
    mounts.sort();
    mounts.reverse();
    mounts
}
