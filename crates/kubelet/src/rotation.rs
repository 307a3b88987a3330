//! Containers' logs do not grow for ever: a full one is put aside, the older ones compressed, the oldest removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::v1;
use flate2::Compression;
use flate2::write::GzEncoder;

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
    let is_full = fs::metadata(log).is_ok_and(|metadata| metadata.len() >= options.max_bytes);
    if !is_full {
        return Ok(());
    }
    let path = log.to_owned();
    let aside = tokio::task::spawn_blocking(move || put_aside(&path, options.max_files, Moment::now()));
    let aside = aside.await.map_err(io::Error::other)??;
    let request = v1::ReopenContainerLogRequest {
        container_id: id.to_owned(),
    };
    if let Err(error) = shared.runtime.reopen_container_log(request).await {
        // The runtime still writes to the file it has open; it gets its name back.
        fs::rename(&aside, log)?;
        return Err(io::Error::other(error));
    }
    Ok(())
}

/// Makes room and renames the log; the result is its new name. Blocks on the file system.
fn put_aside(log: &Path, max_files: usize, now: Moment) -> io::Result<PathBuf> {
    let rotated = rotated(log)?;
    let (removed, kept) = rotated.split_at(rotated.len().saturating_sub(max_files.saturating_sub(2)));
    for path in removed {
        fs::remove_file(path)?;
    }
    for path in kept.iter().filter(|path| !is_compressed(path)) {
        compress(path)?;
    }
    let stamp = now.seconds().replace(['-', ':'], "").replace('T', "-").replace('Z', "");
    let mut name = log.as_os_str().to_owned();
    name.push(format!(".{stamp}"));
    let aside = PathBuf::from(name);
    fs::rename(log, &aside)?;
    Ok(aside)
}

/// The logs that were put aside, the oldest first. What a compression that broke off left behind is removed.
fn rotated(log: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(directory), Some(name)) = (log.parent(), log.file_name()) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        match name.starts_with(&prefix) {
            true if name.ends_with(PARTIAL) => fs::remove_file(entry.path())?,
            true => found.push(entry.path()),
            false => {}
        }
    }
    found.sort();
    Ok(found)
}

fn is_compressed(path: &Path) -> bool {
    path.to_string_lossy().ends_with(COMPRESSED)
}

fn compress(path: &Path) -> io::Result<()> {
    let with = |suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    let partial = with(PARTIAL);
    let mut encoder = GzEncoder::new(File::create(&partial)?, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&partial, with(COMPRESSED))?;
    fs::remove_file(path)
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
        let found = rotated(&dir.path().join("0.log")).unwrap();
        assert_eq!(found, [dir.path().join("0.log.20231114-221323")]);
        assert!(!dir.path().join("0.log.20231114-221323.tmp").exists());
        assert!(dir.path().join("10.log").exists());
    }
}
