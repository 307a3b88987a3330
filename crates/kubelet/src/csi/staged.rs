//! Volumes that are staged for the node: unstaged when no pod has them any more, also those of a kubelet before this one.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use csi::v1::NodeUnstageVolumeRequest;
use rustix::fs::FileType;

use super::layout::{self, VolumeData};
use super::publish::{blocking, connect};
use super::tear_down::{names, published};
use super::volume::unique_name;
use crate::beneath;
use crate::paths::Paths;
use crate::shared::Shared;
use crate::volumes::{self, DriverError, VolumeError};

/// Waits before what could not be unstaged is tried again.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How often to look although no pod has let go of anything.
const IDLE: Duration = Duration::from_secs(300);

/// A volume that is written down as staged.
#[derive(Clone, Debug)]
struct Staged {
    data: VolumeData,
    /// Where it is staged.
    place: PathBuf,
    /// The directories that are removed afterwards, the innermost first, and then the one with what is written down.
    empty: Vec<PathBuf>,
    written: PathBuf,
}

/// Unstages what nobody uses, and keeps the node's list of volumes in use, for as long as it is not dropped. To be called when
/// the pods of the node are known.
pub async fn keep(shared: Arc<Shared>) {
    let mut pause = RETRY;
    // Which volumes are attached to the node, a kubelet that starts does not know; it says of all that they are in use.
    if let Err(error) = restore_in_use(&shared).await {
        tracing::warn!(%error, "Failed to restore the volumes in use in the node's status");
    }
    loop {
        let wait = match look(&shared).await {
            Ok(()) => {
                pause = RETRY;
                IDLE
            }
            Err(error) => {
                tracing::warn!(%error, "Failed to unstage volumes that no pod uses; retrying");
                pause = (pause * 2).min(RETRY_MAX);
                pause
            }
        };
        let released = shared.csi.released.notified();
        let _ = tokio::time::timeout(wait, released).await;
    }
}

/// The pods on this node that have a volume.
pub fn users(paths: &Paths, volume: &VolumeData) -> Result<Vec<String>, VolumeError> {
    let mut users = volumes::pods_on_disk(paths)?;
    let mut failed = None;
    users.retain(|uid| match published(paths, uid) {
        Ok(found) => found
            .iter()
            .any(|one| one.data.as_ref().is_some_and(|data| data.is_of(volume))),
        Err(error) => {
            failed = Some(error);
            true
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(users),
    }
}

/// Unstages everything that nobody uses. The error is that of the last one that failed.
async fn look(shared: &Arc<Shared>) -> Result<(), DriverError> {
    let (staged, used_before) = {
        let shared = shared.clone();
        blocking(move || Ok((all(&shared.paths)?, used(&shared.paths)?))).await?
    };
    let mut result = Ok(());
    let mut kept = BTreeSet::new();
    for staged in staged {
        let name = unique_name(&staged.data.driver, &staged.data.handle);
        if used_before.contains(&name) {
            // It is staged, also if its last pod lets go of it right now.
            kept.insert(name);
            continue;
        }
        if let Err(error) = unstage(shared, &staged, &name).await {
            kept.insert(name);
            result = Err(error);
        }
    }
    let used_now = {
        let shared = shared.clone();
        blocking(move || used(&shared.paths)).await?
    };
    // A pod that takes a volume after this look adds it again before it is mounted.
    let in_use = &shared.csi.in_use;
    if in_use.retain(|name| kept.contains(name) || used_now.contains(name)) {
        let reported = in_use.report(&shared.client, &shared.node_name).await;
        reported.map_err(DriverError::InUse)?;
    }
    result
}

async fn restore_in_use(shared: &Arc<Shared>) -> Result<(), DriverError> {
    let (staged, used) = {
        let shared = shared.clone();
        blocking(move || Ok((all(&shared.paths)?, used(&shared.paths)?))).await?
    };
    let staged = staged.iter().map(|one| unique_name(&one.data.driver, &one.data.handle));
    let names: BTreeSet<String> = staged.chain(used).collect();
    if names.is_empty() {
        return Ok(());
    }
    for name in names {
        shared.csi.in_use.add(name);
    }
    let reported = shared.csi.in_use.report(&shared.client, &shared.node_name).await;
    reported.map_err(DriverError::InUse)
}

/// The volumes that pods of this node have.
fn used(paths: &Paths) -> Result<BTreeSet<String>, DriverError> {
    let failed = |source| DriverError::Users(Box::new(source));
    let mut used = BTreeSet::new();
    for uid in volumes::pods_on_disk(paths).map_err(failed)? {
        for found in published(paths, &uid).map_err(failed)? {
            let data = found.data.filter(|data| data.volume_lifecycle_mode != "Ephemeral");
            used.extend(data.map(|data| unique_name(&data.driver, &data.handle)));
        }
    }
    Ok(used)
}

/// Everything that is written down as staged.
fn all(paths: &Paths) -> Result<Vec<Staged>, DriverError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| DriverError::Prepare { path, source }
    };
    let plugin = layout::plugin(paths);
    let mut staged = Vec::new();
    let drivers = names(paths, &plugin, FileType::Directory).map_err(failed(&plugin))?;
    for driver in drivers.iter().filter(|name| layout::is_driver_directory(name)) {
        let above = plugin.join(driver);
        for name in names(paths, &above, FileType::Directory).map_err(failed(&above))? {
            let written = above.join(name);
            let place = layout::global_mount(&written);
            let Some(data) = VolumeData::read(paths, &written).map_err(failed(&written))? else {
                continue;
            };
            staged.push(Staged {
                data,
                empty: vec![place.clone()],
                place,
                written,
            });
        }
    }
    let devices = layout::devices(paths);
    for name in names(paths, &devices, FileType::Directory).map_err(failed(&devices))? {
        let written = layout::device_data(paths, &name);
        let Some(data) = VolumeData::read(paths, &written).map_err(failed(&written))? else {
            continue;
        };
        let place = layout::device_staging(paths, &name);
        staged.push(Staged {
            data,
            empty: vec![
                place.clone(),
                layout::device_publish(paths, &name),
                devices.join(&name).join("dev"),
            ],
            place,
            written,
        });
    }
    Ok(staged)
}

async fn unstage(shared: &Arc<Shared>, staged: &Staged, name: &str) -> Result<(), DriverError> {
    let _alone = shared.csi.locks.lock(name).await;
    let is_used = {
        let (shared, data) = (shared.clone(), staged.data.clone());
        blocking(move || users(&shared.paths, &data).map_err(|source| DriverError::Users(Box::new(source)))).await?
    };
    if !is_used.is_empty() {
        return Ok(());
    }
    shared.csi.staged.lock().remove(name);
    let client = connect(shared, &staged.data.driver).await?;
    if client.capabilities().await?.stage_unstage {
        let place = staged
            .place
            .to_str()
            .ok_or_else(|| DriverError::Path(staged.place.clone()))?;
        let request = NodeUnstageVolumeRequest {
            volume_id: staged.data.handle.clone(),
            staging_target_path: place.to_owned(),
        };
        client.unstage(request).await?;
    }
    let (shared, staged) = (shared.clone(), staged.clone());
    blocking(move || remove(&shared.paths, &staged)).await
}

/// Removes what is left of a volume that is not staged any more; directories only if they are empty.
fn remove(paths: &Paths, staged: &Staged) -> Result<(), DriverError> {
    volumes::unmount(paths, &staged.place).map_err(|error| DriverError::Unmount(Box::new(error)))?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DriverError::Remove { path, source }
    };
    for path in &staged.empty {
        beneath::remove_empty_dir(paths.root(), path).map_err(failed(path))?;
    }
    VolumeData::remove(paths, &staged.written).map_err(failed(&staged.written))?;
    beneath::remove_empty_dir(paths.root(), &staged.written).map_err(failed(&staged.written))?;
    // The directory above is another volume's too, where it is a driver's.
    let above = staged.written.parent().unwrap_or(&staged.written);
    let _ = beneath::remove_empty_dir(paths.root(), above);
    Ok(())
}
