//! Where volumes of CSI drivers are, and what is written down of each, so that another kubelet can take it down: upstream's
//! directories and files, for upstream's kubelet may come after this one and before it.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::volume::{CsiVolume, attachment_name, sha256};
use crate::beneath;
use crate::paths::Paths;

/// Upstream's name of the type, in the names of directories.
pub const DIRECTORY: &str = "csi";
const DATA_FILE: &str = "vol_data.json";
const DATA_MODE: u32 = 0o600;
/// Nobody writes larger ones.
const MAX_DATA_BYTES: u64 = 64 << 10;
/// Where block volumes are, beside the drivers' directories.
const DEVICES: &str = "volumeDevices";

/// What upstream writes down of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeData {
    #[serde(rename = "specVolID", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(rename = "volumeHandle")]
    pub handle: String,
    #[serde(rename = "driverName")]
    pub driver: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    #[serde(rename = "attachmentID", skip_serializing_if = "String::is_empty")]
    pub attachment: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume_lifecycle_mode: String,
}

impl VolumeData {
    /// Of a volume that is published for a pod.
    pub fn published(volume: &CsiVolume, node: &str) -> VolumeData {
        VolumeData {
            name: volume.name.clone(),
            handle: volume.handle.clone(),
            driver: volume.driver.clone(),
            node_name: node.to_owned(),
            attachment: attachment_name(&volume.driver, &volume.handle, node),
            volume_lifecycle_mode: match volume.is_block {
                true => String::new(),
                false => volume.lifecycle_mode().to_owned(),
            },
        }
    }

    /// Of a volume that is staged for the node.
    pub fn staged(volume: &CsiVolume) -> VolumeData {
        VolumeData {
            handle: volume.handle.clone(),
            driver: volume.driver.clone(),
            ..VolumeData::default()
        }
    }

    pub fn is_of(&self, other: &VolumeData) -> bool {
        self.driver == other.driver && self.handle == other.handle
    }

    /// Reads what is written in a directory; none if nothing is.
    pub fn read(paths: &Paths, directory: &Path) -> io::Result<Option<VolumeData>> {
        let opened = beneath::open_dir(paths.root(), directory).and_then(|found| found.open_file(Path::new(DATA_FILE)));
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = Vec::new();
        file.take(MAX_DATA_BYTES).read_to_end(&mut text)?;
        // A file that was cut off by a crash says nothing; it is written whole before a driver is called.
        Ok(serde_json::from_slice(&text).ok())
    }

    pub fn write(&self, paths: &Paths, directory: &Path) -> io::Result<()> {
        if VolumeData::read(paths, directory)?.as_ref() == Some(self) {
            return Ok(());
        }
        let text = serde_json::to_vec(self)?;
        beneath::write_file(paths.root(), &directory.join(DATA_FILE), &text, DATA_MODE)
    }

    pub fn remove(paths: &Paths, directory: &Path) -> io::Result<()> {
        beneath::remove_below(paths.root(), &directory.join(DATA_FILE))
    }
}

/// The directories of everything that CSI drivers mount for this node.
pub fn plugin(paths: &Paths) -> PathBuf {
    paths.root().join("plugins/kubernetes.io").join(DIRECTORY)
}

pub fn is_driver_directory(name: &str) -> bool {
    name != DEVICES
}

/// What is written down of a staged volume, above where it is staged.
pub fn staged(paths: &Paths, driver: &str, handle: &str) -> PathBuf {
    plugin(paths).join(driver).join(sha256(handle))
}

/// Where a file system is staged.
pub fn global_mount(staged: &Path) -> PathBuf {
    staged.join("globalmount")
}

/// Where a pod has a volume that is a file system.
pub fn published(paths: &Paths, uid: &str, name: &str) -> PathBuf {
    paths.volume(uid, DIRECTORY, name)
}

pub fn mount(published: &Path) -> PathBuf {
    published.join("mount")
}

pub fn devices(paths: &Paths) -> PathBuf {
    plugin(paths).join(DEVICES)
}

/// What is written down of a block volume.
pub fn device_data(paths: &Paths, name: &str) -> PathBuf {
    devices(paths).join(name).join("data")
}

pub fn device_staging(paths: &Paths, name: &str) -> PathBuf {
    devices(paths).join("staging").join(name)
}

/// Where the devices of a block volume are, one for each pod.
pub fn device_publish(paths: &Paths, name: &str) -> PathBuf {
    devices(paths).join("publish").join(name)
}

/// The links in a pod's directory that say which block volumes it has.
pub fn pod_devices(paths: &Paths, uid: &str) -> PathBuf {
    paths.volume_devices(uid, DIRECTORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_upstreams() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::new(directory.path(), directory.path());
        let volume = CsiVolume {
            driver: "d.example".to_owned(),
            handle: "h1".to_owned(),
            name: "pv1".to_owned(),
            ..CsiVolume::default()
        };
        let place = published(&paths, "u1", "pv1");
        assert_eq!(VolumeData::read(&paths, &place).unwrap(), None);
        let data = VolumeData::published(&volume, "n1");
        data.write(&paths, &place).unwrap();
        let text = std::fs::read_to_string(place.join("vol_data.json")).unwrap();
        let attachment = attachment_name("d.example", "h1", "n1");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            serde_json::json!({
                "specVolID": "pv1", "volumeHandle": "h1", "driverName": "d.example", "nodeName": "n1",
                "attachmentID": attachment, "volumeLifecycleMode": "Persistent",
            })
        );
        assert_eq!(VolumeData::read(&paths, &place).unwrap(), Some(data));
        std::fs::write(place.join("vol_data.json"), "{\"specVol").unwrap();
        assert_eq!(VolumeData::read(&paths, &place).unwrap(), None, "cut off by a crash");
        let handle = sha256("h1");
        assert_eq!(
            global_mount(&staged(&paths, "d.example", "h1")),
            directory
                .path()
                .join(format!("plugins/kubernetes.io/csi/d.example/{handle}/globalmount"))
        );
    }

    #[test]
    fn a_link_in_place_of_what_is_written_down_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::new(directory.path().join("k"), directory.path());
        let place = published(&paths, "u1", "pv1");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(directory.path().join("other"), "{}").unwrap();
        std::os::unix::fs::symlink(directory.path().join("other"), place.join("vol_data.json")).unwrap();
        assert!(VolumeData::read(&paths, &place).is_err());
    }
}
