//! The users of pods with `hostUsers: false`: each such pod has a range of the host's ids to itself.
//!
//! A range is recorded in the pod's directory, in upstream's file and format, before the runtime hears of it, and is
//! free again when that directory is removed. So no two pods ever share a user of the host, whatever was restarted
//! meanwhile.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::v1;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::beneath;
use crate::paths::Paths;

/// How many ids a pod has, and where the first pod's begin: upstream's defaults. Those below are the host's own.
pub const IDS_PER_POD: u32 = 1 << 16;
const FIRST_ID: u32 = IDS_PER_POD;

/// The largest record that is read. A whole one has less than 200 bytes.
const MAX_RECORD_BYTES: u64 = 4096;

/// The ids of one pod: `IDS_PER_POD` of the host's, for users and for groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostIds {
    pub first: u32,
}

impl HostIds {
    pub fn mapping(self) -> Vec<v1::IdMapping> {
        vec![v1::IdMapping {
            host_id: self.first,
            container_id: 0,
            length: IDS_PER_POD,
        }]
    }

    /// The user namespace as the CRI takes it.
    pub fn options(self) -> v1::UserNamespace {
        v1::UserNamespace {
            mode: v1::NamespaceMode::Pod.into(),
            uids: self.mapping(),
            gids: self.mapping(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum UserNamespaceError {
    /// In upstream's words.
    #[error("can't set `spec.hostUsers: false`, runtime does not support user namespaces")]
    Unsupported,
    #[error("could not find an empty slot to allocate a user namespace: all {0} are taken")]
    Exhausted(usize),
    #[error("failed to record the user namespace of the pod: {0}")]
    Record(#[source] io::Error),
    #[error("cannot assign user namespaces, because it is not known which ids are taken: {0}")]
    Unknown(#[source] Arc<LoadError>),
}

/// A record that was not understood.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("failed to list {path}: {source}")]
    List { path: PathBuf, source: io::Error },
    #[error("failed to read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} gives its pod the ids that pod {other} has")]
    Shared { path: PathBuf, other: String },
}

/// Who has which ids.
pub struct UserNamespaces {
    /// By UID of the pod. An error when a record could not be read: its ids may be in use.
    taken: Mutex<Result<BTreeMap<String, HostIds>, Arc<LoadError>>>,
    max_pods: usize,
}

impl UserNamespaces {
    /// Reads the records of the pods that are here. Blocks on the file system.
    pub fn load(paths: &Paths, max_pods: usize) -> Self {
        let taken = load(paths).inspect_err(|error| {
            tracing::error!(%error, "Failed to read the user namespaces of pods; pods with hostUsers: false cannot start");
        });
        Self {
            taken: Mutex::new(taken.map_err(Arc::new)),
            max_pods,
        }
    }

    /// The ids that a pod was given.
    pub fn ids_of(&self, uid: &str) -> Option<HostIds> {
        self.taken.lock().as_ref().ok()?.get(uid).copied()
    }

    /// Gives a pod, whose directory exists, the first ids that no other has. Those it has already stay. Blocks on the file
    /// system.
    pub fn assign(&self, paths: &Paths, uid: &str) -> Result<HostIds, UserNamespaceError> {
        let mut taken = self.taken.lock();
        let taken = taken
            .as_mut()
            .map_err(|error| UserNamespaceError::Unknown(error.clone()))?;
        if let Some(ids) = taken.get(uid) {
            return Ok(*ids);
        }
        // Whoever removed a pod's directory, its ids are free.
        taken.retain(|uid, _| !matches!(read_record(&paths.user_namespace(uid)), Ok(None)));
        let slots = (0..self.max_pods)
            .map_while(first_id_of_slot)
            .map(|first| HostIds { first });
        let mut free = slots.filter(|ids| !taken.values().any(|other| other == ids));
        let ids = free.next().ok_or(UserNamespaceError::Exhausted(self.max_pods))?;
        write_record(paths, uid, ids).map_err(UserNamespaceError::Record)?;
        taken.insert(uid.to_owned(), ids);
        Ok(ids)
    }

    /// Takes the ids of a pod back whose directory is gone.
    pub fn release(&self, uid: &str) {
        if let Ok(taken) = self.taken.lock().as_mut() {
            taken.remove(uid);
        }
    }
}

/// None for a slot whose ids the kernel does not have: the last is no id.
fn first_id_of_slot(slot: usize) -> Option<u32> {
    let first = u32::try_from(slot)
        .ok()?
        .checked_mul(IDS_PER_POD)?
        .checked_add(FIRST_ID)?;
    first.checked_add(IDS_PER_POD).map(|_| first)
}

/// The file's contents, in upstream's words.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

impl Record {
    fn new(ids: HostIds) -> Self {
        let mapping = || {
            vec![Mapping {
                host_id: ids.first,
                container_id: 0,
                length: IDS_PER_POD,
            }]
        };
        Self {
            uid_mappings: mapping(),
            gid_mappings: mapping(),
        }
    }

    /// The ids it stands for; none if it is not a record that this kubelet or upstream's would have written.
    fn ids(&self) -> Option<HostIds> {
        let ids = HostIds {
            first: self.uid_mappings.first()?.host_id,
        };
        let aligned = ids.first >= FIRST_ID && ids.first.is_multiple_of(IDS_PER_POD);
        (aligned && *self == Record::new(ids)).then_some(ids)
    }
}

fn load(paths: &Paths) -> Result<BTreeMap<String, HostIds>, LoadError> {
    let list = |source| LoadError::List {
        path: paths.pods(),
        source,
    };
    let entries = match std::fs::read_dir(paths.pods()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(list(error)),
    };
    let mut taken: BTreeMap<String, HostIds> = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(list)?;
        let uid = entry.file_name().to_string_lossy().into_owned();
        let path = paths.user_namespace(&uid);
        let ids = match read_record(&path) {
            Ok(Some(ids)) => ids,
            Ok(None) => continue,
            Err(source) => return Err(LoadError::Read { path, source }),
        };
        if let Some((other, _)) = taken.iter().find(|(_, other)| **other == ids) {
            let other = other.clone();
            return Err(LoadError::Shared { path, other });
        }
        taken.insert(uid, ids);
    }
    Ok(taken)
}

/// None for a pod that has no ids of its own.
fn read_record(path: &Path) -> io::Result<Option<HostIds>> {
    let file = match beneath::open_file(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes)?;
    let record: Record = serde_json::from_slice(&bytes)?;
    let ids = record.ids().ok_or_else(|| io::Error::other("not the ids of a pod"))?;
    Ok(Some(ids))
}

/// Writes a record whole or not at all, and to the disk: after a power cut the pod's files still have these owners.
fn write_record(paths: &Paths, uid: &str, ids: HostIds) -> io::Result<()> {
    let pod = beneath::open_dir(paths.root(), &paths.pod(uid))?;
    let (name, temporary) = ("userns", ".userns.new");
    pod.remove(temporary.as_ref())?;
    let mut file = pod.create_file(temporary.as_ref())?;
    file.write_all(&serde_json::to_vec(&Record::new(ids))?)?;
    beneath::set_owner_and_mode(&file, None, None, 0o600)?;
    file.sync_all()?;
    rustix::fs::renameat(&pod, temporary, &pod, name)?;
    Ok(rustix::fs::fsync(rustix::fs::openat(
        &pod,
        ".",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    struct Node {
        paths: Paths,
        _dir: tempfile::TempDir,
    }

    fn node(pods: &[&str]) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path(), dir.path().join("logs"));
        for uid in pods {
            std::fs::create_dir_all(paths.pod(uid)).unwrap();
        }
        Node { paths, _dir: dir }
    }

    impl Node {
        fn open(&self, max_pods: usize) -> UserNamespaces {
            UserNamespaces::load(&self.paths, max_pods)
        }
    }

    #[test]
    fn ranges_never_overlap_and_survive_a_restart() {
        let node = node(&["a", "b", "c"]);
        let namespaces = node.open(2);
        let assign = |namespaces: &UserNamespaces, uid: &str| namespaces.assign(&node.paths, uid).map(|ids| ids.first);
        assert_eq!(assign(&namespaces, "a").unwrap(), 65536);
        assert_eq!(assign(&namespaces, "b").unwrap(), 131_072);
        assert_eq!(assign(&namespaces, "a").unwrap(), 65536, "a pod keeps its ids");
        assert!(matches!(
            assign(&namespaces, "c"),
            Err(UserNamespaceError::Exhausted(2))
        ));
        assert!(!node.paths.user_namespace("c").exists());
        // A restarted kubelet finds them, and gives out what was given back.
        std::fs::remove_dir_all(node.paths.pod("a")).unwrap();
        let namespaces = node.open(2);
        assert_eq!(namespaces.ids_of("b"), Some(HostIds { first: 131_072 }));
        assert_eq!(assign(&namespaces, "c").unwrap(), 65536);
        namespaces.release("b");
        assert_eq!(namespaces.ids_of("b"), None);
    }

    /// A sweep removes the directories of pods that no worker knows.
    #[test]
    fn ids_whose_record_is_gone_are_free_again() {
        let node = node(&["a", "b", "c"]);
        let namespaces = node.open(2);
        namespaces.assign(&node.paths, "a").unwrap();
        namespaces.assign(&node.paths, "b").unwrap();
        std::fs::remove_dir_all(node.paths.pod("a")).unwrap();
        // A record that is there keeps its ids, whether or not it can be read.
        std::fs::write(node.paths.user_namespace("b"), "{").unwrap();
        assert_eq!(namespaces.assign(&node.paths, "c").unwrap().first, 65536);
        assert_eq!(namespaces.ids_of("a"), None);
        assert_eq!(namespaces.ids_of("b"), Some(HostIds { first: 131_072 }));
    }

    #[test]
    fn the_record_is_upstreams() {
        let node = node(&["a"]);
        node.open(110).assign(&node.paths, "a").unwrap();
        expect![[
            r#"{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}"#
        ]]
        .assert_eq(&std::fs::read_to_string(node.paths.user_namespace("a")).unwrap());
    }

    /// Ids that may be in use are not given to another pod: better none than two with the same.
    #[test]
    fn a_record_that_cannot_be_read_stops_assigning() {
        let record = |host_id: u32, length: u32| {
            let mapping = format!(r#"[{{"hostId":{host_id},"containerId":0,"length":{length}}}]"#);
            format!(r#"{{"uidMappings":{mapping},"gidMappings":{mapping}}}"#)
        };
        for bad in [
            "{".to_owned(),
            r#"{"uidMappings":[],"gidMappings":[]}"#.to_owned(),
            record(0, 65536),
            record(70000, 65536),
            record(65536, 10),
        ] {
            let node = node(&["a", "b"]);
            std::fs::write(node.paths.user_namespace("a"), &bad).unwrap();
            let error = node.open(110).assign(&node.paths, "b").unwrap_err();
            assert!(matches!(error, UserNamespaceError::Unknown(_)), "{bad}: {error}");
        }
        let node = node(&["a", "b", "c"]);
        for uid in ["a", "b"] {
            std::fs::write(node.paths.user_namespace(uid), record(65536, 65536)).unwrap();
        }
        let error = node.open(110).assign(&node.paths, "c").unwrap_err().to_string();
        assert!(
            error.ends_with("gives its pod the ids that pod a has")
                || error.ends_with("gives its pod the ids that pod b has"),
            "{error}"
        );
    }

    #[test]
    fn ids_end_before_the_last_of_the_kernels() {
        assert_eq!(first_id_of_slot(0), Some(65536));
        assert_eq!(first_id_of_slot(65533), Some(65534 * 65536));
        assert_eq!(first_id_of_slot(65534), None);
    }
}
