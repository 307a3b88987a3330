//! Who runs a cluster right now: written by `up`, read by every other command.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::layout::{Layout, write_private};
use crate::node::{ClusterNetwork, NodeFootprint};

/// How long a process that was killed may take to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(10);
const END_POLL: Duration = Duration::from_millis(10);
/// How many looks it takes until a process counts as running.
const SIGNAL_GRACE: u32 = 3;

/// The kernel's mark of a process that is ending, in the flags of its `stat`.
const EXITING: u64 = 0x4;
/// SIGKILL in a mask of signals.
const KILL_BIT: u64 = 1 << 8;

/// The unit in which file systems give out space.
const BLOCK: usize = 4096;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunFile {
    pub pid: u32,
    /// When the process started, by which a reused pid is told from ours.
    pub started: u64,
    pub url: String,
    pub node: Option<NodeFootprint>,
    /// What other nodes have to know to join; none when this is a node of another server's cluster.
    #[serde(default)]
    pub join: Option<JoinFacts>,
}

/// Where the server is for other machines, and what all nodes agree on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinFacts {
    pub server: String,
    pub network: ClusterNetwork,
}

impl RunFile {
    pub fn new(url: &str, node: Option<NodeFootprint>) -> RunFile {
        let pid = std::process::id();
        RunFile {
            pid,
            started: start_time(pid).unwrap_or(0),
            url: url.to_owned(),
            node,
            join: None,
        }
    }

    /// Refuses to start what runs already. A process that was just killed holds its ports until it is gone; that is waited
    /// for.
    pub async fn ensure_stopped(layout: &Layout) -> Result<()> {
        let Some(run) = RunFile::read(layout)? else {
            return Ok(());
        };
        let deadline = Instant::now() + END_TIMEOUT;
        // A signal is on its way for a moment in which nothing can be seen of it.
        let mut grace = SIGNAL_GRACE;
        loop {
            match process_state(run.pid, run.started) {
                ProcessState::Gone => return Ok(()),
                ProcessState::Running if grace == 0 => bail!(
                    "{} is already running as process {}; stop it with `karve down`",
                    layout.name,
                    run.pid
                ),
                ProcessState::Running => grace -= 1,
                ProcessState::Ending if Instant::now() > deadline => bail!(
                    "process {} of {} was killed but has not exited after {} s; its ports are still in use",
                    run.pid,
                    layout.name,
                    END_TIMEOUT.as_secs()
                ),
                ProcessState::Ending => (),
            }
            tokio::time::sleep(END_POLL).await;
        }
    }

    pub fn read(layout: &Layout) -> Result<Option<RunFile>> {
        let path = layout.run_file();
        match fs::read(&path) {
            Ok(bytes) => {
                let parsed = serde_json::from_slice(&bytes);
                parsed
                    .map(Some)
                    .with_context(|| format!("failed to parse {}", path.display()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("failed to read {}", path.display())),
        }
    }

    /// Writes the file in one step. On a full disk that has no space for a second one, the file that is there is
    /// overwritten: it is always as long as a block, so that this takes no space.
    pub fn write(&self, layout: &Layout) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.resize(text.len().next_multiple_of(BLOCK), b'\n');
        let path = layout.run_file();
        write_private(&path, &text).or_else(|error| {
            let is_full = error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == ErrorKind::StorageFull);
            match is_full && overwrite(&path, &text).is_ok() {
                true => Ok(()),
                false => Err(error),
            }
        })
    }

    /// Whether the process that wrote this still runs, or is not quite gone.
    pub fn is_running(&self) -> bool {
        process_state(self.pid, self.started) != ProcessState::Gone
    }
}

/// Replaces the content of a file that is at least as long.
fn overwrite(path: &Path, text: &[u8]) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.len() < text.len() as u64 {
        return Err(ErrorKind::StorageFull.into());
    }
    file.write_all_at(text, 0)?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}

/// How far a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessState {
    Running,
    /// It was killed, but some of its threads are still there, and with them its ports.
    Ending,
    Gone,
}

/// The state of the process with that number, if it is the one that started then.
fn process_state(pid: u32, started: u64) -> ProcessState {
    let directory = Path::new("/proc").join(pid.to_string());
    let stat = fs::read_to_string(directory.join("stat")).unwrap_or_default();
    let Some(stat) = Stat::parse(&stat).filter(|stat| stat.started == started) else {
        return ProcessState::Gone;
    };
    let status = || fs::read_to_string(directory.join("status")).unwrap_or_default();
    match stat.state {
        // The first thread is a zombie while others end, and also until its parent has taken note of its end.
        'Z' | 'X' if threads(&directory) > 1 => ProcessState::Ending,
        'Z' | 'X' => ProcessState::Gone,
        _ if stat.flags & EXITING != 0 || is_kill_pending(&status()) => ProcessState::Ending,
        _ => ProcessState::Running,
    }
}

/// Threads that are not zombies; the first one of an ending process counts although it is one.
fn threads(directory: &Path) -> usize {
    fs::read_dir(directory.join("task")).map_or(0, Iterator::count)
}

/// Whether SIGKILL is on its way to the process or its first thread, by its `status` in /proc.
fn is_kill_pending(status: &str) -> bool {
    let pending = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    pending.fold(0, |all, mask| all | mask) & KILL_BIT != 0
}

/// What `/proc/PID/stat` says.
struct Stat {
    state: char,
    flags: u64,
    /// In clock ticks since boot.
    started: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The name in parentheses may hold anything; fields are counted after it.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        Some(Stat {
            state: fields.first()?.chars().next()?,
            flags: fields.get(6)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    Stat::parse(&stat).map(|stat| stat.started)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn cluster(directory: &Path) -> Layout {
        Layout {
            name: "test".into(),
            root: directory.to_owned(),
        }
    }

    #[test]
    fn a_process_is_known_by_its_start_and_gone_when_it_is_a_zombie() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        assert_eq!(process_state(child.id(), started), ProcessState::Running);
        assert_eq!(
            process_state(child.id(), started + 1),
            ProcessState::Gone,
            "another process"
        );
        child.kill().unwrap();
        // Nobody has waited for it, so it ends as a zombie.
        let deadline = Instant::now() + Duration::from_secs(30);
        while process_state(child.id(), started) != ProcessState::Gone {
            assert!(Instant::now() < deadline, "a zombie counts as running");
            std::thread::sleep(END_POLL);
        }
        child.wait().unwrap();
        assert_eq!(process_state(child.id(), started), ProcessState::Gone);
    }

    #[test]
    fn a_kill_that_is_on_its_way_is_seen() {
        let status = |own: &str, shared: &str| format!("Name:\tkarve\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0\n");
        assert!(is_kill_pending(&status("0000000000000100", "0000000000000000")));
        assert!(is_kill_pending(&status("0000000000000000", "0000000000000100")));
        assert!(!is_kill_pending(&status("0000000000004000", "0000000000000000")));
        assert!(!is_kill_pending(""));
    }

    #[tokio::test]
    async fn a_cluster_that_runs_is_not_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let layout = cluster(directory.path());
        RunFile::ensure_stopped(&layout).await.unwrap();
        RunFile::new("https://127.0.0.1:1", None).write(&layout).unwrap();
        let refused = RunFile::ensure_stopped(&layout).await.unwrap_err().to_string();
        assert!(refused.contains("is already running as process"), "{refused}");
    }

    #[test]
    fn the_run_file_can_be_overwritten_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let layout = cluster(directory.path());
        RunFile::new("https://127.0.0.1:1", None).write(&layout).unwrap();
        let length = fs::metadata(layout.run_file()).unwrap().len();
        assert_eq!(length % BLOCK as u64, 0);
        overwrite(&layout.run_file(), b"{}").unwrap();
        assert_eq!(fs::read(layout.run_file()).unwrap(), b"{}");
        assert!(overwrite(&layout.run_file(), b"longer").is_err(), "it would need space");
    }
}
