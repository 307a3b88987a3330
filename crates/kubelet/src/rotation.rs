//! Containers' logs do not grow for ever: a full one is put aside, the older ones compressed, the oldest removed.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::v1;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use rustix::fs::{RenameFlags, renameat, renameat_with};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::beneath::{self, Dir};
use crate::limits;
use crate::moment::Moment;
use crate::options::LogOptions;
use crate::shared::Shared;

const COMPRESSED: &str = ".gz";
const PARTIAL: &str = ".tmp";

/// The logs of containers that run, by container.
#[derive(Default)]
pub struct Logs(Mutex<HashMap<String, Log>>);

#[derive(Clone)]
struct Log {
    path: PathBuf,
    /// As it was last seen.
    bytes: u64,
}

/// What one look at the logs found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    full: Vec<(String, PathBuf)>,
    /// Some container writes so much that the next look must not wait.
    flooded: bool,
}

impl Logs {
    /// A container writes here from now on.
    pub fn put(&self, container_id: &str, path: PathBuf) {
        self.0.lock().insert(container_id.to_owned(), Log { path, bytes: 0 });
    }

    /// Keeps those of containers that run, and names those of them that are not known.
    fn retain(&self, running: &HashSet<String>, asked_at: &HashSet<String>) -> Vec<String> {
        let mut logs = self.0.lock();
        // One that was started after the runtime was asked is not in its answer.
        logs.retain(|id, _| running.contains(id) || !asked_at.contains(id));
        running.iter().filter(|id| !logs.contains_key(*id)).cloned().collect()
    }

    fn known(&self) -> HashSet<String> {
        self.0.lock().keys().cloned().collect()
    }

    /// The container writes to a new file; what it has is written since.
    fn start_over(&self, container_id: &str) {
        if let Some(known) = self.0.lock().get_mut(container_id) {
            known.bytes = 0;
        }
    }

    /// Looks at all of them. Blocks on the file system.
    fn look(&self, max_bytes: u64) -> Found {
        let mut found = Found::default();
        let logs = self.0.lock().clone();
        for (id, log) in logs {
            let bytes = fs::symlink_metadata(&log.path).map_or(0, |metadata| metadata.len());
            found.flooded |= bytes.saturating_sub(log.bytes) >= max_bytes / 4;
            if let Some(known) = self.0.lock().get_mut(&id) {
                known.bytes = bytes;
            }
            if bytes >= max_bytes {
                found.full.push((id, log.path));
            }
        }
        found
    }
}

/// Looks at the logs several times a second, for as long as it is not dropped.
pub async fn keep(shared: Arc<Shared>, options: LogOptions) {
    let compressing = Arc::new(Semaphore::new(1));
    let mut listed_at: Option<Instant> = None;
    loop {
        if listed_at.is_none_or(|at| at.elapsed() >= limits::LOG_RELIST) {
            listed_at = Some(Instant::now());
            if let Err(error) = list(&shared).await {
                tracing::warn!(%error, "Failed to list containers for log rotation; retrying");
            }
        }
        let logs = shared.clone();
        let found = tokio::task::spawn_blocking(move || logs.logs.look(options.max_bytes)).await;
        let found = found.unwrap_or_default();
        for (id, log) in found.full {
            match rotate(&shared, &id, &log, options).await {
                Ok(()) => {
                    shared.logs.start_over(&id);
                    drop(tokio::spawn(compress_old(log, compressing.clone())));
                }
                Err(error) => tracing::warn!(%error, log = %log.display(), "a log could not be rotated"),
            }
        }
        let pause = if found.flooded {
            limits::LOG_CHECK_FLOODED
        } else {
            limits::LOG_CHECK
        };
        tokio::time::sleep(pause).await;
    }
}

/// Finds the logs of containers that another kubelet started.
async fn list(shared: &Shared) -> cri::Result<()> {
    let filter = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue {
            state: v1::ContainerState::ContainerRunning.into(),
        }),
        ..v1::ContainerFilter::default()
    };
    let known = shared.logs.known();
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let running = shared.runtime.list_containers(request).await?.containers;
    let running = running.into_iter().map(|container| container.id).collect();
    for id in shared.logs.retain(&running, &known) {
        let request = v1::ContainerStatusRequest {
            container_id: id.clone(),
            verbose: false,
        };
        // One that has just gone has no log to look after.
        let Ok(status) = shared.runtime.container_status(request).await else {
            continue;
        };
        shared.logs.put(&id, status.status.unwrap_or_default().log_path.into());
    }
    Ok(())
}

async fn rotate(shared: &Shared, id: &str, log: &Path, options: LogOptions) -> io::Result<()> {
    let path = log.to_owned();
    let aside = tokio::task::spawn_blocking(move || put_aside(&path, options.max_files, Moment::now()));
    let (directory, aside) = aside.await.map_err(io::Error::other)??;
    let request = v1::ReopenContainerLogRequest {
        container_id: id.to_owned(),
    };
    if let Err(error) = shared.runtime.reopen_container_log(request).await {
        // The runtime still writes to the file it has open; it gets its name back.
        renameat(&directory, &aside, &directory, log.file_name().unwrap_or_default())?;
        return Err(io::Error::other(error));
    }
    Ok(())
}

/// One log at a time, on the whole node: that takes a processor, and the container writes on meanwhile.
async fn compress_old(log: PathBuf, compressing: Arc<Semaphore>) {
    // The semaphore is never closed.
    let _permit = compressing.acquire().await;
    let path = log.clone();
    let compressed = tokio::task::spawn_blocking(move || compress_all_but_newest(&path)).await;
    if let Ok(Err(error)) = compressed {
        tracing::warn!(log = %log.display(), %error, "Failed to compress rotated container logs");
    }
}

/// Removes a log and what was put aside of it. Blocks on the file system.
pub fn remove(log: &Path) -> io::Result<()> {
    let directory = beneath::open_log_dir(log)?;
    let prefix = with_suffix(log.file_name().unwrap_or_default(), ".");
    for (name, _) in directory.entries()? {
        if name.as_bytes().starts_with(prefix.as_bytes()) {
            directory.remove(&name)?;
        }
    }
    directory.remove(log.file_name().unwrap_or_default())
}

/// Makes room and renames the log; the result is its directory and its new name. Blocks on the file system.
fn put_aside(log: &Path, max_files: usize, now: Moment) -> io::Result<(Dir, OsString)> {
    let directory = beneath::open_log_dir(log)?;
    let rotated = rotated(&directory, log)?;
    let removed = rotated.len().saturating_sub(max_files.saturating_sub(2));
    for name in &rotated[..removed] {
        directory.remove(name)?;
    }
    let stamp = now.seconds().replace(['-', ':'], "").replace('T', "-").replace('Z', "");
    let name = log.file_name().unwrap_or_default();
    let mut aside = with_suffix(name, &format!(".{stamp}"));
    if rotated
        .iter()
        .any(|other| other.as_bytes().starts_with(aside.as_bytes()))
    {
        // It filled up within a second.
        aside = with_suffix(&aside, &format!(".{:03}", now.0.rem_euclid(1000)));
    }
    renameat_with(&directory, name, &directory, &aside, RenameFlags::NOREPLACE)?;
    Ok((directory, aside))
}

/// The newest is left as it is: somebody may be reading it to its end.
fn compress_all_but_newest(log: &Path) -> io::Result<()> {
    let directory = beneath::open_log_dir(log)?;
    let rotated = rotated(&directory, log)?;
    let old = rotated.split_last().map(|(_, old)| old).unwrap_or_default();
    old.iter()
        .filter(|name| !is_compressed(name))
        .try_for_each(|name| compress(&directory, name))
}

/// The logs that were put aside, the oldest first.
fn rotated(directory: &Dir, log: &Path) -> io::Result<Vec<OsString>> {
    let prefix = with_suffix(log.file_name().unwrap_or_default(), ".");
    let mut found = Vec::new();
    for (name, _) in directory.entries()? {
        match name.as_bytes().starts_with(prefix.as_bytes()) {
            // One that is being made, or was when the kubelet ended.
            true if name.as_bytes().ends_with(PARTIAL.as_bytes()) => {}
            true => found.push(name),
            false => {}
        }
    }
    // Compressed or not, they were put aside in the order of their names.
    found.sort_by(|a, b| uncompressed(a).cmp(uncompressed(b)));
    Ok(found)
}

fn uncompressed(name: &OsStr) -> &[u8] {
    let bytes = name.as_bytes();
    bytes.strip_suffix(COMPRESSED.as_bytes()).unwrap_or(bytes)
}

fn is_compressed(name: &OsStr) -> bool {
    name.as_bytes().ends_with(COMPRESSED.as_bytes())
}

fn with_suffix(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

/// What is no regular file is no log, and goes.
fn compress(directory: &Dir, name: &OsStr) -> io::Result<()> {
    let Ok(mut log) = directory.open_file(Path::new(name)) else {
        return directory.remove(name);
    };
    let partial = with_suffix(name, PARTIAL);
    // What a compression that broke off left behind.
    directory.remove(&partial)?;
    let mut encoder = GzEncoder::new(directory.create_file(&partial)?, Compression::default());
    io::copy(&mut log, &mut encoder)?;
    let compressed = encoder.finish()?;
    beneath::set_owner_and_mode(&compressed, None, None, 0o640)?;
    compressed.sync_all()?;
    // It may have been removed meanwhile to make room, and must not come back.
    if directory.find(Path::new(name)).is_err() {
        return directory.remove(&partial);
    }
    renameat(directory, &partial, directory, with_suffix(name, COMPRESSED))?;
    directory.remove(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_logs_stay_and_all_but_the_last_are_compressed() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for round in 0..6 {
            fs::write(&log, format!("round {round}\n")).unwrap();
            put_aside(&log, 4, Moment(1_700_000_000_000 + round * 1000)).unwrap();
            compress_all_but_newest(&log).unwrap();
            assert!(!log.exists());
        }
        let mut names: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "0.log.20231114-221323.gz",
                "0.log.20231114-221324.gz",
                "0.log.20231114-221325"
            ]
        );
    }

    #[test]
    fn another_containers_logs_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["10.log", "0.log.20231114-221323.tmp", "0.log.20231114-221323"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        let log = dir.path().join("0.log");
        let found = rotated(&Dir::open(dir.path()).unwrap(), &log).unwrap();
        assert_eq!(found, ["0.log.20231114-221323"]);
        fs::write(&log, "x").unwrap();
        remove(&log).unwrap();
        let left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(left, ["10.log"]);
    }

    #[test]
    fn logs_that_fill_within_a_second_are_kept_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for round in 0..8 {
            fs::write(&log, round.to_string()).unwrap();
            put_aside(&log, 5, Moment(1_700_000_000_000 + round * 100)).unwrap();
            if round == 6 {
                compress_all_but_newest(&log).unwrap();
            }
        }
        let kept = rotated(&Dir::open(dir.path()).unwrap(), &log).unwrap();
        let expected = ["400.gz", "500.gz", "600", "700"].map(|end| format!("0.log.20231114-221320.{end}"));
        assert_eq!(kept, expected.map(OsString::from));
    }

    #[test]
    fn the_logs_of_running_containers_are_looked_after() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::default();
        for (name, size) in [("small", 1), ("large", 100)] {
            fs::write(dir.path().join(name), vec![1; size]).unwrap();
            logs.put(name, dir.path().join(name));
        }
        let full = vec![("large".to_owned(), dir.path().join("large"))];
        assert_eq!(
            logs.look(100),
            Found {
                full: full.clone(),
                flooded: true
            }
        );
        assert_eq!(logs.look(100), Found { full, flooded: false }, "it does not grow");
        fs::write(dir.path().join("small"), vec![1; 25]).unwrap();
        assert!(!logs.look(200).flooded);
        fs::write(dir.path().join("small"), vec![1; 75]).unwrap();
        assert!(logs.look(200).flooded);
        let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<HashSet<_>>();
        logs.put("late", dir.path().join("late"));
        let unknown = logs.retain(&set(&["large", "foreign"]), &set(&["small", "large"]));
        assert_eq!(unknown, ["foreign"]);
        assert_eq!(logs.known(), set(&["large", "late"]));
    }

    /// A pod that was given the machine's logs puts links and FIFOs in the place of logs.
    #[test]
    fn links_in_the_place_of_logs_lead_nowhere() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("logs/pod/container");
        fs::create_dir_all(&logs).unwrap();
        let host = dir.path().join("host");
        fs::write(&host, "of the host").unwrap();
        let log = logs.join("0.log");
        fs::write(&log, "x").unwrap();
        std::os::unix::fs::symlink(&host, logs.join("0.log.20231114-221323")).unwrap();
        mknodat(
            CWD,
            logs.join("0.log.20231114-221324"),
            FileType::Fifo,
            Mode::from_raw_mode(0o666),
            0,
        )
        .unwrap();
        std::os::unix::fs::symlink(&host, logs.join("0.log.20231114-221325.tmp")).unwrap();
        fs::write(logs.join("0.log.20231114-221325"), "y").unwrap();
        put_aside(&log, 5, Moment(1_700_000_010_000)).unwrap();
        compress_all_but_newest(&log).unwrap();
        assert_eq!(fs::read_to_string(&host).unwrap(), "of the host");
        let mut left: Vec<_> = fs::read_dir(&logs)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["0.log.20231114-221325.gz", "0.log.20231114-221330"]);
        // The directory itself is a link now.
        fs::rename(&logs, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &logs).unwrap();
        assert!(put_aside(&log, 2, Moment(1_700_000_000_000)).is_err());
        assert!(remove(&log).is_err() && beneath::open_log(&log).is_err());
        assert!(dir.path().join("elsewhere/0.log.20231114-221325.gz").exists());
    }
}
