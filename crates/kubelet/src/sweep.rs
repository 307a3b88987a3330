//! What is left of pods that are gone: directories, mounted Secrets, logs and cgroups of a kubelet that was killed while it
//! removed them.
//!
//! A pod's directory is made first and removed last, so it stands for everything else. It is left over when neither the API
//! nor a worker nor the runtime knows its pod.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FileType;

use crate::cgroup::Cgroups;
use crate::paths::Paths;
use crate::pods::Pods;
use crate::static_pods::NodePods;
use crate::volumes::VolumeError;
use crate::{beneath, csi, volumes};

/// How often it is looked for what is left.
const INTERVAL: Duration = Duration::from_secs(60);
/// No UID is longer.
const UID_LENGTH: usize = 63;

/// Sweeps at once and then now and then. To be called when all pods have been listed.
pub async fn run(cache: NodePods, pods: Arc<Pods>) {
    loop {
        let (cache, pods) = (cache.clone(), pods.clone());
        // It ends early only when the process does.
        let _ = tokio::task::spawn_blocking(move || {
            let is_known = |uid: &str| {
                let in_api = || cache.all().iter().any(|object| object.pod.metadata.uid == uid);
                pods.knows(uid) || in_api()
            };
            let shared = pods.shared();
            let here = tokio::runtime::Handle::current();
            let tear_down = |uid: &str| here.block_on(csi::tear_down(shared, uid));
            sweep(&shared.paths, &shared.cgroups, &is_known, &tear_down);
        })
        .await;
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Removes what is left of pods that are not known. Directories are listed before it is asked who is known, and workers
/// are known before they make one. Blocks on the file system.
fn sweep(
    paths: &Paths,
    cgroups: &Cgroups,
    is_known: &dyn Fn(&str) -> bool,
    tear_down: &dyn Fn(&str) -> Result<(), VolumeError>,
) {
    let mut left = match volumes::pods_on_disk(paths) {
        Ok(on_disk) => on_disk,
        Err(error) => return tracing::warn!(%error, "Failed to look for directories of deleted pods; retrying"),
    };
    left.retain(|uid| is_uid(uid) && !is_known(uid));
    // What was mounted first, for all of them: Secrets must not stay because something else cannot be removed. A pod whose
    // volumes could not be torn down keeps its directory, for it may still have data mounted below it that is not its own.
    left.retain(|uid| match tear_down(uid) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(
                uid,
                %error,
                "Failed to tear down the volumes of a deleted pod; retrying"
            );
            false
        }
    });
    for uid in &left {
        match remove(paths, cgroups, uid) {
            Ok(()) => tracing::info!(uid, "Removed the directories and cgroups of a deleted pod"),
            Err(error) => {
                tracing::warn!(uid, %error, "Failed to remove the directories and cgroups of a deleted pod; retrying")
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum RemoveError {
    #[error("failed to remove the log directory {path}: {source}")]
    Logs { path: PathBuf, source: io::Error },
    #[error("failed to remove the pod's cgroup: {0}")]
    Cgroup(#[source] io::Error),
    #[error(transparent)]
    Directory(#[from] VolumeError),
}

/// Removes logs and cgroups of a pod, then its directory.
fn remove(paths: &Paths, cgroups: &Cgroups, uid: &str) -> Result<(), RemoveError> {
    let suffix = format!("_{uid}");
    for name in names(paths.logs()).filter(|name| name.ends_with(&suffix)) {
        let path = paths.logs().join(&name);
        beneath::remove_below(paths.logs(), &path).map_err(|source| RemoveError::Logs { path, source })?;
    }
    cgroups.remove(uid).map_err(RemoveError::Cgroup)?;
    Ok(volumes::remove_pod(paths, uid)?)
}

/// Whether a directory can be that of a pod. What is not named like one is not ours.
fn is_uid(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= UID_LENGTH && name.bytes().all(plain)
}

/// Some file systems tell only when asked again; a removal does that, and follows no link.
fn may_be_directory(kind: FileType) -> bool {
    matches!(kind, FileType::Directory | FileType::Unknown)
}

/// The directories in a directory, if it is there.
fn names(directory: &Path) -> impl Iterator<Item = String> {
    let entries = beneath::Dir::open(directory).and_then(|directory| directory.entries());
    let directories = entries
        .unwrap_or_default()
        .into_iter()
        .filter(|(_, kind)| may_be_directory(*kind));
    let name = |(name, _): (std::ffi::OsString, _)| OsStr::to_str(&name).map(str::to_owned);
    directories.filter_map(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_what_nobody_knows_is_removed_with_its_logs() {
        let directory = tempfile::tempdir().unwrap();
        let (root, logs) = (directory.path().join("kubelet"), directory.path().join("logs"));
        let paths = Paths::new(&root, &logs);
        let cgroups = Cgroups::detect("/karve-test-sweep", None);
        for uid in ["gone-1", "known-1", "not a uid"] {
            let secret = paths.volume(uid, "secret", "token");
            fs::create_dir_all(&secret).unwrap();
            fs::write(secret.join("password"), "x").unwrap();
            fs::create_dir_all(logs.join(format!("default_web_{uid}")).join("web")).unwrap();
        }
        fs::create_dir_all(logs.join("default_web_another-gone-1")).unwrap();
        sweep(&paths, &cgroups, &|uid| uid == "known-1", &|uid| {
            volumes::tear_down(&paths, uid)
        });
        assert_eq!(
            left(&paths.pods()),
            ["known-1", "not a uid"],
            "and nothing else was touched"
        );
        assert_eq!(
            left(&logs),
            [
                "default_web_another-gone-1",
                "default_web_known-1",
                "default_web_not a uid"
            ]
        );
        sweep(&paths, &cgroups, &|_| false, &|uid| volumes::tear_down(&paths, uid));
        assert_eq!(left(&paths.pods()), ["not a uid"]);
    }

    #[test]
    fn a_link_in_place_of_a_pod_leads_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let (root, logs) = (directory.path().join("kubelet"), directory.path().join("logs"));
        let outside = directory.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("file"), "x").unwrap();
        fs::create_dir_all(root.join("pods")).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("pods/gone-1")).unwrap();
        let paths = Paths::new(&root, &logs);
        sweep(
            &paths,
            &Cgroups::detect("/karve-test-sweep", None),
            &|_| false,
            &|uid| volumes::tear_down(&paths, uid),
        );
        assert!(outside.join("file").exists());
    }

    #[test]
    fn a_pod_whose_volumes_cannot_be_torn_down_keeps_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let (root, logs) = (directory.path().join("kubelet"), directory.path().join("logs"));
        let paths = Paths::new(&root, &logs);
        // A directory that was to be a mount point is only ever removed empty, so that this one cannot be torn down.
        let data = paths.volume("gone-1", "local-volume", "pv1").join("data");
        fs::create_dir_all(&data).unwrap();
        fs::create_dir_all(logs.join("default_web_gone-1")).unwrap();
        fs::create_dir_all(paths.volume("gone-2", "secret", "token")).unwrap();
        sweep(
            &paths,
            &Cgroups::detect("/karve-test-sweep", None),
            &|_| false,
            &|uid| volumes::tear_down(&paths, uid),
        );
        assert_eq!(left(&paths.pods()), ["gone-1"], "the other one is removed all the same");
        assert!(data.exists());
        assert_eq!(left(&logs), ["default_web_gone-1"]);
    }

    fn left(directory: &Path) -> Vec<String> {
        let mut left: Vec<String> = names(directory).collect();
        left.sort();
        left
    }
}
