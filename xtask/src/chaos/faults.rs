//! What can go wrong, one row each. A fault ends with everything running again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::link::Link;
use super::random::Random;
use crate::cluster::{Karve, Kubectl, Store};
use crate::signals::{self, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);
/// A watch and its lists still get through, slowly.
const SLOW_BYTES_PER_SECOND: u64 = 64 << 10;
const DISK_MEGABYTES: usize = 64;

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
    pub run: fn(&mut World<'_>) -> Result<()>,
}

pub const FAULTS: &[Fault] = &[
    any("kill the server", kill_server),
    any("kill the other node's agent", kill_node),
    any("kill a container", kill_container),
    any("cut all connections", cut_connections),
    any("slow all connections", slow_connections),
    any("stall the server", stall_server),
    any("kill the server during a rollout", kill_during_rollout),
    Fault {
        name: "fill the store's disk",
        store: Some(Store::Embedded),
        run: fill_disk,
    },
    Fault {
        name: "kill etcd",
        store: Some(Store::Etcd),
        run: kill_etcd,
    },
];

const fn any(name: &'static str, run: fn(&mut World<'_>) -> Result<()>) -> Fault {
    Fault { name, store: None, run }
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
    let mut found = processes_in(&world.cluster.name(), "serve");
    world.random.shuffle(&mut found);
    if let Some(pid) = found.first() {
        // It may have ended by itself just now.
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    Ok(())
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

/// A store that could not write stops taking writes; it is for whoever makes room to start it again.
fn fill_disk(world: &mut World<'_>) -> Result<()> {
    let disk = world.disk.context("the store is not on a disk of its own")?;
    disk.fill()?;
    let waited = world.wait(500, 2500);
    disk.make_room()?;
    waited?;
    world.crash_server()?;
    world.start_server()
}

/// Processes of a cluster's containers whose arguments contain a word.
fn processes_in(cluster: &str, word: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_wanted = |path: &Path| {
        let read = |name: &str| fs::read(path.join(name)).unwrap_or_default();
        let is_inside = String::from_utf8_lossy(&read("cgroup")).contains(cluster);
        is_inside
            && read("cmdline")
                .split(|byte| *byte == 0)
                .any(|argument| argument == word.as_bytes())
    };
    let mut found: Vec<i32> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .filter(|(_, path)| is_wanted(path))
        .map(|(pid, _)| pid)
        .collect();
    found.sort_unstable();
    found
}

/// A small disk below the store, released when dropped.
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    pub fn mount(path: &Path) -> Result<Self> {
        fs::create_dir_all(path)?;
        let size = format!("size={DISK_MEGABYTES}m,mode=0700");
        mount(
            Some("tmpfs"),
            path,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(size.as_str()),
        )
        .with_context(|| format!("cannot mount at {}", path.display()))?;
        Ok(Self { path: path.to_owned() })
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    fn fill(&self) -> Result<()> {
        let mut file = fs::File::create(self.ballast())?;
        let block = vec![1; 1 << 16];
        loop {
            if let Err(error) = std::io::Write::write_all(&mut file, &block) {
                return match error.kind() {
                    std::io::ErrorKind::StorageFull => Ok(()),
                    _ => Err(error.into()),
                };
            }
        }
    }

    fn make_room(&self) -> Result<()> {
        Ok(fs::remove_file(self.ballast())?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let freed = wait_for("the store's disk to be free", Duration::from_secs(10), || {
            umount2(&self.path, MntFlags::empty()).ok()
        });
        if freed.is_err() {
            let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        }
    }
}
