//! What can go wrong, one row each. A fault ends with everything running again.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::disk::Disk;
use super::link::Link;
use crate::cluster::{Karve, Kubectl, Store};
use crate::random::Random;
use crate::signals;

const PATIENCE: Duration = Duration::from_secs(60);
/// A watch and its lists still get through, slowly.
const SLOW_BYTES_PER_SECOND: u64 = 64 << 10;
/// How long a slow disk does not answer at a time, and how long it then does.
const DISK_PAUSE: Duration = Duration::from_millis(300);
const DISK_BREATH: Duration = Duration::from_millis(30);
/// A machine counts as lost after fifty seconds without a word, and its pods are moved then.
const MOVING: Duration = Duration::from_secs(150);

pub struct World<'a> {
    pub cluster: &'a mut Karve,
    pub kubectl: &'a Kubectl,
    pub link: &'a Link,
    pub disk: Option<&'a Disk>,
    pub random: Random,
    pub rollouts: usize,
}

pub struct Fault {
    pub name: &'static str,
    /// The store that it is about; any if there is none.
    pub store: Option<Store>,
    /// Whether it takes so long that runs of a minute leave it out.
    pub is_long: bool,
    pub run: fn(&mut World<'_>) -> Result<()>,
}

pub const FAULTS: &[Fault] = &[
    any("kill the server", kill_server),
    any("kill the other node's agent", kill_node),
    any("kill a container", kill_container),
    any("kill a pod's pause process", kill_pause),
    any("kill a pod's supervisor", kill_supervisor),
    any("cut all connections", cut_connections),
    any("slow all connections", slow_connections),
    any("stall the server", stall_server),
    any("kill the server during a rollout", kill_during_rollout),
    any("lose the other machine for a moment", lose_machine),
    Fault {
        is_long: true,
        ..any("lose the other machine until its work has moved", lose_machine_for_long)
    },
    about(Store::Embedded, "fill the store's disk", fill_disk),
    about(Store::Embedded, "kill the server on a full disk", kill_on_full_disk),
    about(Store::Embedded, "slow the store's disk", slow_disk),
    about(Store::Etcd, "kill etcd", kill_etcd),
];

const fn any(name: &'static str, run: fn(&mut World<'_>) -> Result<()>) -> Fault {
    Fault {
        name,
        store: None,
        is_long: false,
        run,
    }
}

const fn about(store: Store, name: &'static str, run: fn(&mut World<'_>) -> Result<()>) -> Fault {
    Fault {
        store: Some(store),
        ..any(name, run)
    }
}

impl World<'_> {
    fn wait(&mut self, least_ms: u64, most_ms: u64) -> Result<()> {
        signals::sleep(self.random.between(least_ms, most_ms))
    }

    fn crash_server(&mut self) -> Result<()> {
        self.cluster.process().context("karve does not run")?.crash();
        Ok(())
    }

    fn start_server(&mut self) -> Result<()> {
        self.cluster.up()?;
        self.serving()
    }

    /// Waits until the server answers; nodes take their own time.
    fn serving(&mut self) -> Result<()> {
        let query = ["get", "--raw", "/readyz"];
        let ready = self.kubectl.until("the server", PATIENCE, &query, |ok| ok == "ok");
        ready.map(drop).with_context(|| self.cluster.last_words())
    }
}

fn kill_server(world: &mut World<'_>) -> Result<()> {
    world.crash_server()?;
    world.wait(0, 2000)?;
    world.start_server()
}

fn kill_node(world: &mut World<'_>) -> Result<()> {
    for worker in world.cluster.workers() {
        worker.process().context("the node does not run")?.crash();
    }
    world.wait(0, 3000)?;
    world.cluster.workers().iter_mut().try_for_each(|worker| worker.up())
}

/// The kubelet starts it again.
fn kill_container(world: &mut World<'_>) -> Result<()> {
    let cluster = world.cluster.name();
    kill_one(world, processes_where(|path| is_container_of(path, &cluster, "serve")));
    Ok(())
}

/// The pod's namespaces go with it, so the kubelet makes the pod a new sandbox.
fn kill_pause(world: &mut World<'_>) -> Result<()> {
    let cluster = world.cluster.name();
    kill_one(
        world,
        processes_where(|path| is_supervision_of(path, &cluster, "pause")),
    );
    Ok(())
}

/// What it supervised ends with it; the kubelet makes the pod a new sandbox.
fn kill_supervisor(world: &mut World<'_>) -> Result<()> {
    let cluster = world.cluster.name();
    kill_one(
        world,
        processes_where(|path| is_supervision_of(path, &cluster, "karve-pod")),
    );
    Ok(())
}

/// Kills any of them, if there is one.
fn kill_one(world: &mut World<'_>, mut found: Vec<i32>) {
    world.random.shuffle(&mut found);
    if let Some(pid) = found.first() {
        // It may have ended by itself just now.
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
}

fn cut_connections(world: &mut World<'_>) -> Result<()> {
    world.link.cut();
    let waited = world.wait(500, 6000);
    world.link.mend();
    waited
}

fn slow_connections(world: &mut World<'_>) -> Result<()> {
    world.link.slow(SLOW_BYTES_PER_SECOND);
    let waited = world.wait(2000, 6000);
    world.link.mend();
    waited
}

/// As a virtual machine that is moved, or a disk that does not answer.
fn stall_server(world: &mut World<'_>) -> Result<()> {
    let pid = world.cluster.process().context("karve does not run")?.pid();
    let pid = Pid::from_raw(i32::try_from(pid)?);
    kill(pid, Signal::SIGSTOP)?;
    let waited = world.wait(500, 4000);
    kill(pid, Signal::SIGCONT)?;
    waited
}

fn kill_during_rollout(world: &mut World<'_>) -> Result<()> {
    world.rollouts += 1;
    let value = format!("ROLLOUT={}", world.rollouts);
    world.kubectl.run(&["set", "env", "deployment/web", &value])?;
    world.wait(0, 1500)?;
    kill_server(world)
}

fn kill_etcd(world: &mut World<'_>) -> Result<()> {
    world.cluster.crash_etcd()?;
    world.serving()
}

/// Writes are refused until there is room; then the store goes on by itself.
fn fill_disk(world: &mut World<'_>) -> Result<()> {
    let disk = world.disk.context("the store is not on a disk of its own")?;
    let filled = disk.fill().and_then(|()| world.wait(500, 2500));
    disk.make_room()?;
    filled?;
    world.serving()
}

/// As [`fill_disk`], but the server is killed and started while nothing can be written.
fn kill_on_full_disk(world: &mut World<'_>) -> Result<()> {
    let disk = world.disk.context("the store is not on a disk of its own")?;
    let restarted = disk.fill().and_then(|()| {
        world.wait(500, 2500)?;
        world.crash_server()?;
        world.cluster.up()
    });
    disk.make_room()?;
    restarted?;
    world.serving()
}

/// Whatever is written waits most of the time; nothing fails.
fn slow_disk(world: &mut World<'_>) -> Result<()> {
    let disk = world.disk.context("the store is not on a disk of its own")?;
    let until = Instant::now() + world.random.between(2000, 6000);
    while Instant::now() < until {
        let frozen = disk.freeze()?;
        let waited = signals::sleep(DISK_PAUSE);
        drop(frozen);
        waited?;
        signals::sleep(DISK_BREATH)?;
    }
    Ok(())
}

/// Without power: its wire is dead, and so is every process on it, containers and their supervisors included.
fn lose_machine(world: &mut World<'_>) -> Result<()> {
    take_power(world)?;
    world.wait(1000, 5000)?;
    give_power(world)
}

fn lose_machine_for_long(world: &mut World<'_>) -> Result<()> {
    take_power(world)?;
    let moved = all_on_first_node(world);
    give_power(world)?;
    moved
}

fn take_power(world: &mut World<'_>) -> Result<()> {
    for number in 0..world.cluster.workers().len() {
        world.cluster.plug(number, false)?;
        world.cluster.workers()[number].kill_everything()?;
    }
    Ok(())
}

fn give_power(world: &mut World<'_>) -> Result<()> {
    for number in 0..world.cluster.workers().len() {
        world.cluster.plug(number, true)?;
        world.cluster.workers()[number].up()?;
    }
    Ok(())
}

/// Endpoints that take traffic are all on the node that is left, and as many as there were.
fn all_on_first_node(world: &World<'_>) -> Result<()> {
    let path = r#"jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].nodeName}"#;
    let slices = [
        "get",
        "endpointslices",
        "-l",
        "kubernetes.io/service-name=web",
        "-o",
        path,
    ];
    let lost: Vec<String> = (2..=super::NODES).map(|number| format!("node-{number}")).collect();
    let moved = world.kubectl.until("all work to move", MOVING, &slices, |nodes| {
        let nodes: Vec<&str> = nodes.split_whitespace().collect();
        nodes.len() == super::REPLICAS && !nodes.iter().any(|node| lost.iter().any(|gone| gone == node))
    });
    moved.map(drop)
}

/// Whether a process is in a cluster's container and has this argument.
fn is_container_of(process: &Path, cluster: &str, argument: &str) -> bool {
    let cgroups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    cgroups.contains(cluster) && arguments(process).iter().any(|found| found == argument)
}

/// Whether a process is a supervisor of a cluster's pods, or one that such a one keeps beside the containers, of this name.
fn is_supervision_of(process: &Path, cluster: &str, name: &str) -> bool {
    let own_name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    own_name.trim_end() == name && arguments(process).iter().any(|found| found.contains(cluster))
}

fn arguments(process: &Path) -> Vec<String> {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let arguments = line.split(|byte| *byte == 0);
    arguments
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

fn processes_where(is_wanted: impl Fn(&Path) -> bool) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<i32> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .filter(|(_, path)| is_wanted(path))
        .map(|(pid, _)| pid)
        .collect();
    found.sort_unstable();
    found
}
