//! The runtime itself: sandboxes, containers and images, and what the CRI asks of them.
//!
//! [`open`] finds what an earlier Karve left running. `sandbox` and `container` hold the state and the life cycles,
//! `streams` exec, attach and port forwarding, `images` and `stats` what their names say; `methods` is the CRI's
//! trait, one line per call. Records on disk are enough to start anew, because supervisors know the rest.

mod container;
mod events;
mod images;
mod inspect;
mod methods;
mod metrics;
mod names;
mod records;
mod recovery;
mod sandbox;
mod stats;
mod status;
mod streams;
mod terminal;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use network::PodNetwork;
use parking_lot::{Mutex, RwLock};
use ring::rand::SecureRandom;
use tokio::sync::{Semaphore, broadcast};

use crate::apparmor::AppArmor;
use crate::cgroup::Layout;
use crate::image::limits::UNPACKERS_AT_ONCE;
use crate::image::registry::{Mirror, Registries};
use crate::image::{ImageError, ImageStore, Launcher};
use crate::link::LinkError;
use crate::program::Program;
use crate::protocol::FailureKind;
use crate::zygote::{NoUserNamespaces, Zygote};
use container::Container;
use sandbox::Sandbox;

/// How many events may wait for a kubelet that does not read; then it is told to list.
const MAX_EVENTS: usize = 1024;

/// How the runtime is set up.
pub struct Options {
    /// What must survive a reboot: images, records, the containers' writable layers.
    pub root_dir: PathBuf,
    /// What must not: the supervisors' sockets. On a tmpfs.
    pub state_dir: PathBuf,
    /// The cgroup of pods for which the kubelet names none.
    pub cgroup_parent: PathBuf,
    /// The binary to run as supervisors, with [`crate::supervisor::SUBCOMMAND`] as its first argument. It also
    /// becomes the built-in image.
    pub supervisor_exe: PathBuf,
    pub network: Arc<dyn PodNetwork>,
    /// Where images are looked for before their own registries are asked.
    pub mirrors: Vec<Mirror>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("failed to access {path:?}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0:?} is in use by another runtime")]
    InUse(PathBuf),
    #[error("failed to detect the cgroup layout of the host: {0}")]
    Cgroups(io::Error),
    #[error("failed to prepare {path:?} to run as supervisor: {source}")]
    Program { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Images(#[from] ImageError),
}

/// The embedded runtime. [`cri::Runtime`] is its interface; what is beside it has no place in the CRI.
pub struct Embedded {
    /// Tasks that outlive a call hold the runtime by this, and so do not keep it alive.
    itself: Weak<Embedded>,
    root_dir: PathBuf,
    state_dir: PathBuf,
    cgroup_parent: PathBuf,
    layout: Layout,
    /// The kernel's version.
    kernel: (u32, u32),
    apparmor: AppArmor,
    /// Whether pods can have user namespaces, or why not. Found out when it is first asked for.
    user_namespaces: OnceLock<Result<(), NoUserNamespaces>>,
    zygote: Zygote,
    network: Arc<dyn PodNetwork>,
    images: Arc<ImageStore>,
    registries: Registries,
    pulls: images::Pulls,
    /// Bounds how many processes unpack images.
    unpackers: Arc<Semaphore>,
    sandboxes: RwLock<BTreeMap<String, Arc<Sandbox>>>,
    containers: RwLock<BTreeMap<String, Arc<Container>>>,
    events: broadcast::Sender<cri::v1::ContainerEventResponse>,
    cpu_samples: stats::Samples,
    names: names::Names,
    /// How many inodes each layer of the images takes, as far as it was asked.
    layer_inodes: Mutex<BTreeMap<String, u64>>,
    /// Held for as long as the directories are ours.
    _lock: File,
}

/// A full disk is no reason to leave the pods that are there without a runtime, be it to stop them; only the image is missing.
fn install_builtin(images: &ImageStore, binary: &Path) -> Result<(), OpenError> {
    match images.install_builtin(binary) {
        Err(error) if error.is_storage_full() => {
            tracing::warn!(%error, image = crate::BUILTIN_IMAGE, "Failed to install the built-in image; free space and restart to use it");
            Ok(())
        }
        installed => Ok(installed?),
    }
}

/// Opens the runtime: takes up the pods that are still running, and records the end of those that are not.
pub async fn open(options: Options) -> Result<Arc<Embedded>, OpenError> {
    for dir in [&options.root_dir, &options.state_dir] {
        make_private_dir(dir)?;
    }
    let lock = lock(&options.root_dir)?;
    let no_program = |source| OpenError::Program {
        path: options.supervisor_exe.clone(),
        source,
    };
    let program = Arc::new(Program::open(&options.supervisor_exe, &options.state_dir).map_err(no_program)?);
    let launcher = Launcher::Process(program.clone());
    let images = ImageStore::open(&images::images_dir(&options.root_dir), launcher)?;
    install_builtin(&images, &options.supervisor_exe)?;
    let zygote = Zygote::start(program, &options.state_dir).map_err(no_program)?;
    let layout = Layout::detect().map_err(OpenError::Cgroups)?;
    let runtime = Arc::new_cyclic(|itself| Embedded {
        itself: itself.clone(),
        root_dir: options.root_dir,
        state_dir: options.state_dir,
        cgroup_parent: options.cgroup_parent,
        layout,
        kernel: kernel_version(),
        apparmor: AppArmor::detect(),
        user_namespaces: OnceLock::new(),
        zygote,
        network: options.network,
        images: Arc::new(images),
        registries: Registries::new(options.mirrors),
        pulls: images::Pulls::default(),
        unpackers: Arc::new(Semaphore::new(UNPACKERS_AT_ONCE)),
        sandboxes: RwLock::default(),
        containers: RwLock::default(),
        events: broadcast::channel(MAX_EVENTS).0,
        cpu_samples: stats::Samples::default(),
        names: names::Names::default(),
        layer_inodes: Mutex::default(),
        _lock: lock,
    });
    runtime.prepare_apparmor();
    runtime.prepare_user_namespaces();
    runtime.recover().await?;
    Ok(runtime)
}

fn make_private_dir(dir: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o711).create(dir);
    made.map_err(|source| OpenError::Io {
        path: dir.to_owned(),
        source,
    })
}

fn lock(root_dir: &Path) -> Result<File, OpenError> {
    let path = root_dir.join("lock");
    let file = File::create(&path).map_err(|source| OpenError::Io {
        path: path.clone(),
        source,
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::InUse(root_dir.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(OpenError::Io { path, source }),
    }
}

impl Embedded {
    /// Ends every pod and forgets it: for a node that is being taken down, or reset.
    pub async fn remove_all_pods(&self) -> cri::Result<()> {
        let sandboxes: Vec<_> = self.sandboxes.read().values().cloned().collect();
        let removals = sandboxes.iter().map(|sandbox| self.remove_sandbox(sandbox));
        futures_util::future::join_all(removals).await.into_iter().collect()
    }

    /// Has the default AppArmor profile loaded beside everything else, so that the first container need not wait for it.
    fn prepare_apparmor(self: &Arc<Self>) {
        if self.apparmor.is_enabled() {
            let runtime = self.clone();
            tokio::task::spawn_blocking(move || {
                if let Err(error) = runtime.apparmor.load_default() {
                    tracing::warn!(%error, "Failed to load the default AppArmor profile; containers run without it unless they ask for it");
                }
            });
        }
    }

    /// Looks beside everything else whether pods can have user namespaces, so that nobody need wait for it.
    fn prepare_user_namespaces(self: &Arc<Self>) {
        let runtime = self.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(reason) = runtime.user_namespaces() {
                tracing::info!(%reason, "User namespaces are not supported on this host; pods with hostUsers: false cannot start");
            }
        });
    }

    /// Whether this host can run a pod in a user namespace of its own, or why not.
    fn user_namespaces(&self) -> Result<(), &NoUserNamespaces> {
        let found = self
            .user_namespaces
            .get_or_init(|| self.zygote.probe_user_namespaces(&self.root_dir));
        found.as_ref().copied()
    }

    /// Does something to its end even if whoever asked stops waiting: a kubelet gives up after two minutes, but half a
    /// sandbox is of use to nobody.
    async fn to_end<T, F>(&self, work: impl FnOnce(Arc<Embedded>) -> F) -> cri::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = cri::Result<T>> + Send + 'static,
    {
        let runtime = self.itself.upgrade().ok_or_else(gone)?;
        tokio::spawn(work(runtime))
            .await
            .map_err(|error| cri::Error::internal(error.to_string()))?
    }

    fn sandbox_record(&self, id: &str) -> PathBuf {
        self.root_dir.join("sandboxes").join(id)
    }

    /// What a sandbox needs only while it runs: its supervisor's socket.
    fn sandbox_dir(&self, id: &str) -> PathBuf {
        self.state_dir.join("sandboxes").join(id)
    }

    /// A container's record, its writable layer, and how it ended.
    fn container_dir(&self, id: &str) -> PathBuf {
        self.root_dir.join("containers").join(id)
    }

    /// Finds a sandbox by its id, or the beginning of one.
    fn sandbox(&self, id: &str) -> cri::Result<Arc<Sandbox>> {
        find(&self.sandboxes.read(), id).ok_or_else(|| {
            cri::Error::not_found(format!("an error occurred when try to find sandbox: {id}: not found"))
        })
    }

    fn container(&self, id: &str) -> cri::Result<Arc<Container>> {
        find(&self.containers.read(), id).ok_or_else(|| {
            cri::Error::not_found(format!(
                "an error occurred when try to find container {id:?}: not found"
            ))
        })
    }

    fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        let containers = self.containers.read();
        containers
            .values()
            .filter(|container| container.record.sandbox_id == sandbox)
            .cloned()
            .collect()
    }
}

/// People copy ids from tables that cut them, so an unambiguous beginning does.
fn find<T>(map: &BTreeMap<String, Arc<T>>, id: &str) -> Option<Arc<T>> {
    if id.is_empty() {
        return None;
    }
    let mut matching = map.range(id.to_owned()..).take_while(|(key, _)| key.starts_with(id));
    let (first, second) = (matching.next(), matching.next());
    match (first, second) {
        (Some((key, found)), None) => Some(found).filter(|_| !key.is_empty()).cloned(),
        (Some((key, found)), Some(_)) if key == id => Some(found.clone()),
        _ => None,
    }
}

fn gone() -> cri::Error {
    cri::Error::new(cri::Code::Unavailable, "the runtime is shutting down")
}

fn new_id() -> cri::Result<String> {
    let mut bytes = [0; 32];
    let random = ring::rand::SystemRandom::new();
    random
        .fill(&mut bytes)
        .map_err(|_| cri::Error::internal("the system has no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The first two numbers of the kernel's version; zeros for one that has none.
fn kernel_version() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn now_ns() -> i64 {
    i64::try_from(clock::since_epoch().as_nanos()).unwrap_or(i64::MAX)
}

/// Adds what was being done to an IO error.
fn doing(what: &str) -> impl Fn(io::Error) -> cri::Error {
    move |error| cri::Error::internal(format!("{what}: {error}"))
}

impl From<LinkError> for cri::Error {
    fn from(error: LinkError) -> Self {
        let code = match &error {
            LinkError::Failed(failure) => match failure.kind {
                FailureKind::NotFound => cri::Code::NotFound,
                FailureKind::Precondition => cri::Code::FailedPrecondition,
                FailureKind::Start | FailureKind::Internal => cri::Code::Internal,
            },
            LinkError::Timeout => cri::Code::DeadlineExceeded,
            _ => cri::Code::Internal,
        };
        cri::Error::new(code, error.to_string())
    }
}

impl From<ImageError> for cri::Error {
    fn from(error: ImageError) -> Self {
        let code = match &error {
            ImageError::Name(_) | ImageError::ReservedName(_) => cri::Code::InvalidArgument,
            ImageError::InUse(_) | ImageError::Pinned(_) => cri::Code::FailedPrecondition,
            _ => cri::Code::Internal,
        };
        cri::Error::new(code, error.to_string())
    }
}
