//! A pod's volumes: directories on the host that containers are given.

pub mod atomic;
pub mod mount;
pub mod mounts;
pub mod payload;
pub mod subpath;

use std::path::PathBuf;

use crate::beneath;
use crate::moment::Moment;
use crate::paths::Paths;
use crate::pod::{Pod, Volume};
use payload::Sources;

/// Makes a volume be as it should; called again, it brings it up to date. Blocks on the file system. The result is its
/// name and where it is; the error is for the user and names the volume.
pub fn set_up(paths: &Paths, volume: &Volume, sources: &Sources<'_>, now: Moment) -> Result<(String, PathBuf), String> {
    let name = &volume.name;
    match one(paths, volume, sources, now) {
        Ok(path) => Ok((name.clone(), path)),
        Err(error) => Err(format!("MountVolume.SetUp failed for volume {name:?} : {error}")),
    }
}

/// Where a volume is, whether it is set up or not.
pub fn path_of(paths: &Paths, pod: &Pod, volume: &Volume) -> Option<PathBuf> {
    if let Some(source) = &volume.host_path {
        return Some(PathBuf::from(&source.path));
    }
    Some(paths.volume(&pod.metadata.uid, plugin(volume)?, &volume.name))
}

/// Unmounts what was mounted for a pod and removes its volumes. Blocks on the file system.
pub fn tear_down(paths: &Paths, uid: &str) -> Result<(), String> {
    let pod = paths.pod(uid);
    mounts::unmount_below(paths.root(), &pod)
        .map_err(|error| format!("cannot unmount what is below {}: {error}", pod.display()))?;
    for directory in [paths.subpaths(uid), paths.volumes(uid)] {
        beneath::remove_below(paths.root(), &directory)
            .map_err(|error| format!("cannot remove {}: {error}", directory.display()))?;
    }
    Ok(())
}

fn one(paths: &Paths, volume: &Volume, sources: &Sources<'_>, now: Moment) -> Result<PathBuf, String> {
    let pod = sources.pod;
    let group = pod
        .spec
        .security_context
        .fs_group
        .and_then(|group| u32::try_from(group).ok());
    let path = path_of(paths, pod, volume).ok_or_else(|| unsupported(volume))?;
    if let Some(files) = payload::payload(volume, sources) {
        let files = files?;
        let directory = mount::payload_dir(paths.root(), &path, volume.may_be_secret())?;
        let stamp = format!("{}_{}", now.seconds().replace(['-', ':', 'T', 'Z'], ""), now.0 % 1000);
        let written = atomic::write(&directory, &files, group, &stamp);
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    } else if let Some(source) = &volume.host_path {
        mount::host_path(source)?;
    } else {
        let source = volume.empty_dir.clone().unwrap_or_default();
        mount::empty_dir(paths.root(), &path, &source, group)?;
    }
    Ok(path)
}

/// Upstream's name of the volume's type.
fn plugin(volume: &Volume) -> Option<&'static str> {
    Some(match volume {
        volume if volume.empty_dir.is_some() => "empty-dir",
        volume if volume.config_map.is_some() => "configmap",
        volume if volume.secret.is_some() => "secret",
        volume if volume.downward_api.is_some() => "downward-api",
        volume if volume.projected.is_some() => "projected",
        volume if volume.image.is_some() => return None,
        // A volume without a source is an empty directory.
        volume if volume.other.is_empty() => "empty-dir",
        _ => return None,
    })
}

fn unsupported(volume: &Volume) -> String {
    let kinds: Vec<&str> = volume.other.keys().map(String::as_str).collect();
    format!("volumes of type {} are not supported by this node", kinds.join(", "))
}
