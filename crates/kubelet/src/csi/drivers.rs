//! The CSI drivers of this node, and connections to them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use csi::NodeClient;
use parking_lot::Mutex;
use rustix::fs::{FileType, Mode, OFlags, fstat};

use super::error::{EndpointError, InvalidPlugin};
use crate::beneath::Dir;

/// No name of a CSI driver is longer.
const MAX_NAME_LENGTH: usize = 63;

/// Drivers by name.
#[derive(Default)]
pub struct Drivers(Mutex<BTreeMap<String, Driver>>);

#[derive(Clone, Debug)]
struct Driver {
    /// The socket in the kubelet's registry that it was registered by.
    socket: String,
    endpoint: PathBuf,
    version: Version,
    /// The API knows of it; until then only its name is taken.
    is_ready: bool,
}

/// What a registration socket says.
#[derive(Debug)]
pub struct Plugin {
    pub name: String,
    pub endpoint: PathBuf,
    version: Version,
}

type Version = (u32, u32, u32);

impl Plugin {
    pub fn checked(info: csi::registration::PluginInfo, socket: &Path) -> Result<Plugin, InvalidPlugin> {
        // Names of drivers become names of directories, and keys of annotations.
        let is_name = info.name.len() <= MAX_NAME_LENGTH
            && api::names::dns1123_subdomain(&info.name.to_lowercase(), false).is_empty();
        if !is_name {
            return Err(InvalidPlugin::Name(info.name.chars().take(MAX_NAME_LENGTH).collect()));
        }
        let endpoint = match info.endpoint.as_str() {
            "" => socket.to_owned(),
            given => PathBuf::from(given),
        };
        let is_plain = endpoint.is_absolute() && endpoint.components().all(|part| part != Component::ParentDir);
        if !is_plain {
            return Err(InvalidPlugin::Endpoint(info.endpoint));
        }
        Ok(Plugin {
            version: highest_version(&info.supported_versions)?,
            name: info.name,
            endpoint,
        })
    }
}

impl Drivers {
    /// Takes the name for a plugin. Of two plugins of one name the first keeps it, unless the other one is newer.
    pub fn take(&self, plugin: &Plugin, socket: &str) -> Result<(), InvalidPlugin> {
        let mut drivers = self.0.lock();
        if let Some(known) = drivers.get(&plugin.name)
            && known.socket != socket
            && known.version >= plugin.version
        {
            let (major, minor, patch) = known.version;
            return Err(InvalidPlugin::Taken(format!("{major}.{minor}.{patch}")));
        }
        let driver = Driver {
            socket: socket.to_owned(),
            endpoint: plugin.endpoint.clone(),
            version: plugin.version,
            is_ready: false,
        };
        drivers.insert(plugin.name.clone(), driver);
        Ok(())
    }

    /// Lets volumes use the driver.
    pub fn set_ready(&self, name: &str, socket: &str) {
        let mut drivers = self.0.lock();
        if let Some(driver) = drivers.get_mut(name).filter(|driver| driver.socket == socket) {
            driver.is_ready = true;
        }
    }

    /// Forgets what was registered by a socket, and says which drivers that were.
    pub fn forget(&self, socket: &str) -> Vec<String> {
        let mut forgotten = Vec::new();
        self.0.lock().retain(|name, driver| {
            if driver.socket == socket {
                forgotten.push(name.clone());
            }
            driver.socket != socket
        });
        forgotten
    }

    /// Connects to a driver that can be used. Each use is a connection of its own, for a restarted driver has another socket.
    pub async fn connect(&self, root: &Path, name: &str) -> Result<NodeClient, EndpointError> {
        let known = self.0.lock().get(name).filter(|driver| driver.is_ready).cloned();
        let driver = known.ok_or_else(|| EndpointError::Unknown(name.to_owned()))?;
        connect(root, name, &driver.endpoint).await
    }
}

/// Connects to the socket at which a driver serves.
pub async fn connect(root: &Path, name: &str, endpoint: &Path) -> Result<NodeClient, EndpointError> {
    let socket = open_socket(root, endpoint).map_err(|source| EndpointError::Open {
        driver: name.to_owned(),
        path: endpoint.display().to_string(),
        source,
    })?;
    Ok(NodeClient::connect(socket).await?)
}

/// Opens a socket as a place only. Within the kubelet's directory, parts of which pods can write to, no link is followed.
pub fn open_socket(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    let found = match path.strip_prefix(root) {
        Ok(inner) => Dir::open(root)?.find(inner)?,
        Err(_) => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())?
        }
    };
    match FileType::from_raw_mode(fstat(&found)?.st_mode) {
        FileType::Socket => Ok(found),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a socket")),
    }
}

/// The newest version that this kubelet speaks, which is CSI 1.
fn highest_version(versions: &[String]) -> Result<Version, InvalidPlugin> {
    if versions.is_empty() {
        return Err(InvalidPlugin::NoVersions);
    }
    let parse = |text: &String| -> Option<Version> {
        let mut numbers = text.trim_start_matches('v').splitn(3, '.');
        let mut next = || numbers.next().map_or(Some(0), |number| number.parse().ok());
        Some((next()?, next()?, next()?))
    };
    let supported = versions.iter().filter_map(parse).filter(|version| version.0 == 1);
    supported
        .max()
        .ok_or_else(|| InvalidPlugin::Versions(versions.iter().take(8).cloned().collect()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use csi::registration::PluginInfo;

    use super::*;

    fn info(name: &str, endpoint: &str, versions: &[&str]) -> PluginInfo {
        PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: name.to_owned(),
            endpoint: endpoint.to_owned(),
            supported_versions: versions.iter().map(ToString::to_string).collect(),
        }
    }

    fn checked(name: &str, endpoint: &str, versions: &[&str]) -> Result<Plugin, InvalidPlugin> {
        Plugin::checked(info(name, endpoint, versions), Path::new("/k/plugins_registry/d.sock"))
    }

    #[test]
    fn what_a_plugin_says_of_itself_is_checked() {
        for name in ["", "../x", "a/b", ".", "a b", "d.example\n", &"x".repeat(64)] {
            assert!(
                matches!(checked(name, "/s", &["1.0.0"]), Err(InvalidPlugin::Name(_))),
                "{name:?}"
            );
        }
        for endpoint in ["relative", "/a/../b", "unix:///x"] {
            let found = checked("d.example", endpoint, &["1.0.0"]);
            assert!(matches!(found, Err(InvalidPlugin::Endpoint(_))), "{endpoint:?}");
        }
        assert_eq!(checked("d", "", &[]).unwrap_err(), InvalidPlugin::NoVersions);
        for versions in [&["0.3.0"][..], &["2.0.0", "x"], &["1.x"], &["99999999999999"]] {
            let found = checked("d", "", versions);
            assert!(matches!(found, Err(InvalidPlugin::Versions(_))), "{versions:?}");
        }
        let plugin = checked("D.example", "", &["0.9.0", "1.0.0", "v1.2", "2.0.0"]).unwrap();
        assert_eq!(plugin.version, (1, 2, 0));
        assert_eq!(plugin.endpoint, Path::new("/k/plugins_registry/d.sock"));
    }

    #[test]
    fn a_name_stays_with_the_first_socket_unless_the_other_is_newer() {
        let drivers = Drivers::default();
        let plugin = |version: &str| checked("d", "/s", &[version]).unwrap();
        drivers.take(&plugin("1.1.0"), "a.sock").unwrap();
        for version in ["1.0.0", "1.1.0"] {
            let taken = drivers.take(&plugin(version), "b.sock").unwrap_err();
            assert_eq!(taken, InvalidPlugin::Taken("1.1.0".to_owned()), "{version}");
        }
        drivers.take(&plugin("1.1.0"), "a.sock").unwrap();
        drivers.take(&plugin("1.2.0"), "b.sock").unwrap();
        assert!(drivers.forget("a.sock").is_empty(), "the name is another's by now");
        assert_eq!(drivers.forget("b.sock"), ["d"]);
        drivers.take(&plugin("1.0.0"), "a.sock").unwrap();
    }

    #[test]
    fn only_sockets_are_opened_and_no_link_is_followed_in_the_kubelets_directory() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("k");
        std::fs::create_dir_all(root.join("plugins")).unwrap();
        let outside = directory.path().join("outside.sock");
        let _outside = UnixListener::bind(&outside).unwrap();
        let _inside = UnixListener::bind(root.join("plugins/d.sock")).unwrap();
        symlink(&outside, root.join("plugins/link.sock")).unwrap();
        symlink(directory.path(), root.join("plugins/dir")).unwrap();
        std::fs::write(root.join("plugins/file.sock"), "").unwrap();
        assert!(open_socket(&root, &root.join("plugins/d.sock")).is_ok());
        assert!(
            open_socket(&root, &outside).is_ok(),
            "drivers may serve elsewhere on the host"
        );
        for path in ["link.sock", "dir/outside.sock", "file.sock", "none.sock"] {
            let opened = open_socket(&root, &root.join("plugins").join(path));
            assert!(opened.is_err(), "{path} was opened");
        }
    }
}
