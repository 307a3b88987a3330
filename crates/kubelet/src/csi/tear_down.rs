//! Having drivers unmount the volumes of a pod that has ended, by what is written down of them.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csi::v1::NodeUnpublishVolumeRequest;
use rustix::fs::FileType;

use super::layout::{self, VolumeData};
use super::publish::{blocking, connect};
use crate::beneath;
use crate::paths::Paths;
use crate::shared::Shared;
use crate::volumes::{self, DriverError, DriverStep, VolumeError};

/// A volume that is written down as published for a pod.
#[derive(Clone, Debug)]
pub struct Found {
    /// Nothing, if the kubelet was killed before it called a driver.
    pub data: Option<VolumeData>,
    /// Upstream's name of its directory.
    pub name: String,
    pub is_block: bool,
}

/// Tears down all volumes of a pod: those of drivers by their drivers, then the others.
pub async fn tear_down(shared: &Arc<Shared>, uid: &str) -> Result<(), VolumeError> {
    shared.csi.published.lock().retain(|(of, _), one| {
        if of == uid {
            shared.volumes.forget_driver_of(&one.target);
        }
        of != uid
    });
    let listed = {
        let (shared, uid) = (shared.clone(), uid.to_owned());
        tokio::task::spawn_blocking(move || {
            let found = published(&shared.paths, &uid)?;
            if !found.is_empty() {
                volumes::tear_down_subpaths(&shared.paths, &uid)?;
            }
            Ok::<_, VolumeError>(found)
        })
        .await??
    };
    let were_any = !listed.is_empty();
    // All of them are tried: one driver that hangs or is gone keeps no other volume mounted.
    let mut failed = None;
    for found in listed {
        if let Err(source) = unpublish(shared, uid, &found).await {
            let step = DriverStep::unpublish(found.is_block);
            let (volume, source) = (found.name, Box::new(source));
            failed.get_or_insert(VolumeError::Driver { step, volume, source });
        }
    }
    if were_any {
        shared.csi.released.notify_one();
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let (shared, uid) = (shared.clone(), uid.to_owned());
    tokio::task::spawn_blocking(move || {
        volumes::tear_down(&shared.paths, &uid)?;
        shared.csi.endings.remove(&uid);
        Ok::<(), VolumeError>(())
    })
    .await?
}

/// What is written down as published for a pod.
pub fn published(paths: &Paths, uid: &str) -> Result<Vec<Found>, VolumeError> {
    let failed = |path: PathBuf| move |source: io::Error| VolumeError::Read { path, source };
    let mut found = Vec::new();
    let above = layout::published(paths, uid, "");
    for name in names(paths, &above, FileType::Directory).map_err(failed(above.clone()))? {
        let place = layout::published(paths, uid, &name);
        found.push(Found {
            data: VolumeData::read(paths, &place).map_err(failed(place))?,
            name,
            is_block: false,
        });
    }
    let links = layout::pod_devices(paths, uid);
    for name in names(paths, &links, FileType::Symlink).map_err(failed(links.clone()))? {
        let place = layout::device_data(paths, &name);
        found.push(Found {
            data: VolumeData::read(paths, &place).map_err(failed(place))?,
            name,
            is_block: true,
        });
    }
    Ok(found)
}

/// The entries of a directory of the kubelet's that are of one type; none if it does not exist.
pub fn names(paths: &Paths, directory: &Path, kind: FileType) -> io::Result<Vec<String>> {
    let entries = beneath::open_dir(paths.root(), directory).and_then(|found| found.entries());
    let entries = match entries {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries?,
    };
    let wanted = entries.into_iter().filter(|(_, found)| *found == kind);
    Ok(wanted
        .filter_map(|(name, _)| OsStr::to_str(&name).map(str::to_owned))
        .collect())
}

async fn unpublish(shared: &Arc<Shared>, uid: &str, found: &Found) -> Result<(), DriverError> {
    let target = match found.is_block {
        true => layout::device_publish(&shared.paths, &found.name).join(uid),
        false => layout::mount(&layout::published(&shared.paths, uid, &found.name)),
    };
    let name = found
        .data
        .as_ref()
        .map(|data| super::volume::unique_name(&data.driver, &data.handle))
        .unwrap_or_default();
    let _alone = shared.csi.locks.lock(&name).await;
    if let Some(data) = &found.data {
        let target_path = target.to_str().ok_or_else(|| DriverError::Path(target.clone()))?;
        let request = NodeUnpublishVolumeRequest {
            volume_id: data.handle.clone(),
            target_path: target_path.to_owned(),
        };
        connect(shared, &data.driver).await?.unpublish(request).await?;
    }
    let (shared, uid, found) = (shared.clone(), uid.to_owned(), found.clone());
    blocking(move || remove(&shared.paths, &uid, &found, &target)).await
}

/// Removes what is left of a volume that is not published any more. What a driver left mounted is unmounted, and a directory is
/// removed only if it is empty: what is in it may be data.
fn remove(paths: &Paths, uid: &str, found: &Found, target: &Path) -> Result<(), DriverError> {
    volumes::unmount(paths, target).map_err(|error| DriverError::Unmount(Box::new(error)))?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DriverError::Remove { path, source }
    };
    if found.is_block {
        remove_device(paths, target).map_err(failed(target))?;
        // Upstream binds the device to a place of its own, too.
        let bound = layout::devices(paths).join(&found.name).join("dev").join(uid);
        volumes::unmount(paths, &bound).map_err(|error| DriverError::Unmount(Box::new(error)))?;
        remove_device(paths, &bound).map_err(failed(&bound))?;
        let link = layout::pod_devices(paths, uid).join(&found.name);
        return beneath::remove_below(paths.root(), &link).map_err(failed(&link));
    }
    let place = layout::published(paths, uid, &found.name);
    beneath::remove_empty_dir(paths.root(), target).map_err(failed(target))?;
    VolumeData::remove(paths, &place).map_err(failed(&place))?;
    beneath::remove_empty_dir(paths.root(), &place).map_err(failed(&place))
}

/// Removes the file that a device was bound to, or an empty directory; never a directory with something in it.
fn remove_device(paths: &Paths, path: &Path) -> io::Result<()> {
    match beneath::open_dir(paths.root(), path) {
        Ok(_) => beneath::remove_empty_dir(paths.root(), path),
        Err(_) => beneath::remove_below(paths.root(), path),
    }
}
