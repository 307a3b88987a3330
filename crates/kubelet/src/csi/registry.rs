//! The directory in which plugins put the sockets that they are registered by.
//!
//! A socket that appears is asked who it is; one that disappears takes its driver with it. Each is looked after by a task of
//! its own, so that one that hangs keeps nobody waiting. Whoever can write to the directory is not trusted: links lead
//! nowhere, what is no socket is left alone, and there is a bound to how many are looked after.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use csi::RegistrationClient;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{FileType, fstat};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::drivers::{self, Plugin, open_socket};
use super::error::RegistrationError;
use super::node_info::{self, NodeInfo};
use crate::beneath::{self, Dir};
use crate::shared::Shared;

const DIRECTORY: &str = "plugins_registry";
const MODE: u32 = 0o750;
const CSI_PLUGIN: &str = "CSIPlugin";
/// Sockets that are looked after at once.
const MAX_SOCKETS: usize = 64;
/// How often the directory is read although nothing is known to have changed in it.
const RESCAN: Duration = Duration::from_secs(30);
/// Waits between attempts to register one socket.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(120);
/// Room for what the kernel tells of changes at once.
const EVENT_BYTES: usize = 4096;

/// A socket file, told from others that had its name.
type Identity = (u64, i64, u64);

/// A socket that is looked after.
struct Known {
    identity: Identity,
    /// Dropped when the socket is gone.
    presence: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

/// Registers plugins for as long as it is not dropped.
pub async fn watch(shared: Arc<Shared>) {
    let path = shared.paths.root().join(DIRECTORY);
    let mut known = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        // Watched before it is read, so that nothing is missed between the two.
        let changes = match Changes::watch(shared.paths.root(), &path) {
            Ok(changes) => Some(changes),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "Failed to watch the directory of plugins; reading it now and then");
                None
            }
        };
        loop {
            while tasks.try_join_next().is_some() {}
            let sockets = match sockets(shared.paths.root(), &path) {
                Ok(sockets) => sockets,
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "Failed to read the directory of plugins");
                    BTreeMap::new()
                }
            };
            follow(&shared, &mut known, &mut tasks, sockets);
            let again = match &changes {
                Some(changes) => tokio::time::timeout(RESCAN, changes.next())
                    .await
                    .is_ok_and(|next| next.is_err()),
                None => {
                    tokio::time::sleep(RESCAN).await;
                    true
                }
            };
            // Whoever removed the directory gets a new one.
            if again || !path.is_dir() {
                break;
            }
        }
    }
}

/// Starts looking after sockets that appeared, and stops for those that are gone or were replaced.
fn follow(
    shared: &Arc<Shared>,
    known: &mut BTreeMap<String, Known>,
    tasks: &mut JoinSet<()>,
    sockets: BTreeMap<String, Identity>,
) {
    known.retain(|name, socket| sockets.contains_key(name) || !socket.ended.is_finished());
    for (name, socket) in known.iter_mut() {
        if !sockets.contains_key(name) {
            let (gone, _) = oneshot::channel();
            drop(std::mem::replace(&mut socket.presence, gone));
            socket.identity = Identity::default();
        }
    }
    for (name, identity) in sockets {
        let before = match known.remove(&name) {
            Some(same) if same.identity == identity => {
                known.insert(name, same);
                continue;
            }
            before => before.map(|before| before.ended),
        };
        if known.len() >= MAX_SOCKETS {
            tracing::warn!(
                socket = name,
                "Ignoring a plugin socket: the limit of plugin sockets is reached; remove unused ones"
            );
            continue;
        }
        let (presence, gone) = oneshot::channel();
        let (finished, ended) = oneshot::channel::<()>();
        tasks.spawn(look_after(shared.clone(), name.clone(), before, gone, finished));
        // The task belongs to the set, so that it ends with the kubelet; its end is told by what it drops.
        let ended = tokio::spawn(async move { _ = ended.await });
        let socket = Known {
            identity,
            presence,
            ended,
        };
        known.insert(name, socket);
    }
}

/// Registers what is behind a socket, and takes it back when the socket is gone. `before` is the end of the task for a
/// socket that had this name.
async fn look_after(
    shared: Arc<Shared>,
    name: String,
    before: Option<JoinHandle<()>>,
    mut gone: oneshot::Receiver<()>,
    _finished: oneshot::Sender<()>,
) {
    if let Some(before) = before {
        let _ = before.await;
    }
    let is_registered = tokio::select! {
        _ = &mut gone => false,
        () = register_patiently(&shared, &name) => true,
    };
    if is_registered {
        let _ = gone.await;
    }
    withdraw(&shared, &name).await;
}

/// Takes back what was registered by a socket.
async fn withdraw(shared: &Arc<Shared>, name: &str) {
    for driver in shared.csi.drivers.forget(name) {
        tracing::info!(driver, socket = name, "Unregistered a CSI driver");
        if let Err(error) = node_info::uninstall(shared, &driver).await {
            tracing::warn!(driver, %error, "Failed to remove an unregistered CSI driver from the CSINode");
        }
    }
}

async fn register_patiently(shared: &Arc<Shared>, name: &str) {
    let mut pause = RETRY;
    loop {
        match register(shared, name).await {
            Ok(driver) => return tracing::info!(driver, socket = name, "Registered a CSI driver"),
            Err(error) => tracing::warn!(socket = name, %error, "Failed to register a plugin; retrying"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// Registers what is behind a socket, and tells it how that went.
async fn register(shared: &Arc<Shared>, name: &str) -> Result<String, RegistrationError> {
    let path = shared.paths.root().join(DIRECTORY).join(name);
    let socket = path.display().to_string();
    let opened = open_socket(shared.paths.root(), &path).map_err(|source| RegistrationError::Open {
        socket: socket.clone(),
        source,
    })?;
    let client = RegistrationClient::connect(opened)
        .await
        .map_err(|source| RegistrationError::Dial {
            socket: socket.clone(),
            source,
        })?;
    let info = client.info().await.map_err(|source| RegistrationError::Info {
        socket: socket.clone(),
        source,
    })?;
    let registered = register_plugin(shared, name, &path, info).await;
    let refused = registered.as_ref().err().map(ToString::to_string);
    let told = client.notify(refused).await;
    match (registered, told) {
        (Ok(driver), Ok(())) => Ok(driver),
        // Upstream does not keep a plugin that cannot be told that it is one.
        (Ok(_), Err(source)) => {
            withdraw(shared, name).await;
            Err(RegistrationError::Notify { socket, source })
        }
        (Err(error), _) => {
            withdraw(shared, name).await;
            Err(error)
        }
    }
}

async fn register_plugin(
    shared: &Arc<Shared>,
    name: &str,
    path: &Path,
    info: csi::registration::PluginInfo,
) -> Result<String, RegistrationError> {
    if info.r#type != CSI_PLUGIN {
        return Err(RegistrationError::UnknownType {
            kind: info.r#type.chars().take(64).collect(),
            socket: path.display().to_string(),
        });
    }
    let plugin = Plugin::checked(info, path)?;
    shared.csi.drivers.take(&plugin, name)?;
    let driver = drivers::connect(shared.paths.root(), &plugin.name, &plugin.endpoint).await?;
    let node = NodeInfo::checked(driver.info().await?)?;
    node_info::install(shared, &plugin.name, &node).await?;
    shared.csi.drivers.set_ready(&plugin.name, name);
    Ok(plugin.name)
}

/// The sockets in the directory, which is made if it is not there. Names that begin with a dot are being written.
fn sockets(root: &Path, path: &Path) -> io::Result<BTreeMap<String, Identity>> {
    let directory = beneath::make_dir(root, path, MODE)?;
    let mut sockets = BTreeMap::new();
    for (name, _) in directory.entries()? {
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
            continue;
        };
        if let Ok(found) = directory.find(Path::new(name))
            && let Ok(stat) = fstat(&found)
            && FileType::from_raw_mode(stat.st_mode) == FileType::Socket
        {
            sockets.insert(name.to_owned(), (stat.st_ino, stat.st_ctime, stat.st_ctime_nsec));
        }
    }
    Ok(sockets)
}

/// Changes of a directory's entries, as the kernel tells of them.
struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    fn watch(root: &Path, path: &Path) -> io::Result<Changes> {
        let directory: Dir = beneath::make_dir(root, path, MODE)?;
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let wanted = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::DELETE_SELF;
        inotify::add_watch(&events, beneath::path_of(directory.as_fd()), wanted)?;
        // SAFETY: the descriptor is owned by what it is registered in, and stays open for as long.
        let registered = unsafe { AsyncFd::register(events) };
        Ok(Changes(registered.map_err(io::Error::from)?))
    }

    /// Waits for a change. An error, when the directory itself is gone.
    async fn next(&self) -> io::Result<()> {
        let mut room = [std::mem::MaybeUninit::uninit(); EVENT_BYTES];
        loop {
            let mut ready = self.0.readable().await?;
            let mut reader = inotify::Reader::new(self.0.get_ref(), &mut room);
            let mut seen = false;
            loop {
                match reader.next() {
                    Ok(event) if event.events().intersects(ReadFlags::DELETE_SELF | ReadFlags::IGNORED) => {
                        return Err(io::Error::from(io::ErrorKind::NotFound));
                    }
                    Ok(_) => seen = true,
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            ready.clear_ready();
            if seen {
                return Ok(());
            }
        }
    }
}
