//! Containers' logs do not grow for ever: a full one is put aside, the older ones compressed, the oldest removed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::v1;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::renameat;

use crate::beneath::{self, Dir};
use crate::limits;
use crate::moment::Moment;
use crate::options::LogOptions;
use crate::shared::Shared;

const COMPRESSED: &str = ".gz";
const PARTIAL: &str = ".tmp";

/// Looks at the logs every ten seconds, for as long as it is not dropped.
pub async fn keep(shared: Arc<Shared>, options: LogOptions) {
    let mut look = tokio::time::interval(limits::LOG_CHECK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if let Err(error) = rotate_all(&shared, options).await {
            tracing::warn!(%error, "the runtime does not tell its containers");
        }
    }
}

async fn rotate_all(shared: &Shared, options: LogOptions) -> cri::Result<()> {
    let filter = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue {
            state: v1::ContainerState::ContainerRunning.into(),
        }),
        ..v1::ContainerFilter::default()
    };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    for container in shared.runtime.list_containers(request).await?.containers {
        let request = v1::ContainerStatusRequest {
            container_id: container.id.clone(),
            verbose: false,
        };
        // One that has just gone has no log to look after.
        let Ok(status) = shared.runtime.container_status(request).await else {
            continue;
        };
        let log = PathBuf::from(status.status.unwrap_or_default().log_path);
        if let Err(error) = rotate(shared, &container.id, &log, options).await {
            tracing::warn!(%error, log = %log.display(), "a log could not be rotated");
        }
    }
    Ok(())
}

async fn rotate(shared: &Shared, id: &str, log: &Path, options: LogOptions) -> io::Result<()> {
    let is_full = fs::symlink_metadata(log).is_ok_and(|metadata| metadata.len() >= options.max_bytes);
    if !is_full {
        return Ok(());
    }
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

/// Removes a log and what was put aside of it. Blocks on the file system.
pub fn remove(log: &Path) -> io::Result<()> {
    let directory = beneath::open_log_dir(log)?;
    for name in rotated(&directory, log)? {
        directory.remove(&name)?;
    }
    directory.remove(log.file_name().unwrap_or_default())
}

/// Makes room and renames the log; the result is its directory and its new name. Blocks on the file system.
fn put_aside(log: &Path, max_files: usize, now: Moment) -> io::Result<(Dir, OsString)> {
    let directory = beneath::open_log_dir(log)?;
    let rotated = rotated(&directory, log)?;
    let (removed, kept) = rotated.split_at(rotated.len().saturating_sub(max_files.saturating_sub(2)));
    for name in removed {
        directory.remove(name)?;
    }
    for name in kept.iter().filter(|name| !is_compressed(name)) {
        compress(&directory, name)?;
    }
    let stamp = now.seconds().replace(['-', ':'], "").replace('T', "-").replace('Z', "");
    let name = log.file_name().unwrap_or_default();
    let aside = with_suffix(name, &format!(".{stamp}"));
    renameat(&directory, name, &directory, &aside)?;
    Ok((directory, aside))
}

/// The logs that were put aside, the oldest first. What a compression that broke off left behind is removed.
fn rotated(directory: &Dir, log: &Path) -> io::Result<Vec<OsString>> {
    let prefix = with_suffix(log.file_name().unwrap_or_default(), ".");
    let mut found = Vec::new();
    for (name, _) in directory.entries()? {
        match name.as_bytes().starts_with(prefix.as_bytes()) {
            true if name.as_bytes().ends_with(PARTIAL.as_bytes()) => directory.remove(&name)?,
            true => found.push(name),
            false => {}
        }
    }
    found.sort();
    Ok(found)
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
    let mut encoder = GzEncoder::new(directory.create_file(&partial)?, Compression::default());
    io::copy(&mut log, &mut encoder)?;
    let compressed = encoder.finish()?;
    beneath::set_owner_and_mode(&compressed, None, None, 0o640)?;
    compressed.sync_all()?;
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
        assert!(!dir.path().join("0.log.20231114-221323.tmp").exists());
        fs::write(&log, "x").unwrap();
        remove(&log).unwrap();
        let left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(left, ["10.log"]);
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
        put_aside(&log, 5, Moment(1_700_000_000_000)).unwrap();
        assert_eq!(fs::read_to_string(&host).unwrap(), "of the host");
        let mut left: Vec<_> = fs::read_dir(&logs)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["0.log.20231114-221320", "0.log.20231114-221325.gz"]);
        // The directory itself is a link now.
        fs::rename(&logs, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &logs).unwrap();
        assert!(put_aside(&log, 2, Moment(1_700_000_000_000)).is_err());
        assert!(remove(&log).is_err() && beneath::open_log(&log).is_err());
        assert!(dir.path().join("elsewhere/0.log.20231114-221325.gz").exists());
    }
}
