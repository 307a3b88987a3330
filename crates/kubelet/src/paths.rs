//! Where the kubelet keeps a pod's files. The layout is upstream's, because other programs read it.

use std::path::{Path, PathBuf};

use crate::pod::{Container, Pod};

#[derive(Clone, Debug)]
pub struct Paths {
    /// Upstream's `/var/lib/kubelet`.
    root: PathBuf,
    /// Upstream's `/var/log/pods`.
    logs: PathBuf,
    /// The directories of provisioned PersistentVolumes.
    local_volumes: PathBuf,
}

impl Paths {
    pub fn new(root: impl Into<PathBuf>, logs: impl Into<PathBuf>) -> Paths {
        let root = root.into();
        Paths {
            local_volumes: root.join("local-volumes"),
            root,
            logs: logs.into(),
        }
    }

    /// Keeps provisioned PersistentVolumes elsewhere than in the kubelet's directory.
    pub fn with_local_volumes(self, local_volumes: impl Into<PathBuf>) -> Paths {
        Paths {
            local_volumes: local_volumes.into(),
            ..self
        }
    }

    pub fn local_volumes(&self) -> &Path {
        &self.local_volumes
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn logs(&self) -> &Path {
        &self.logs
    }

    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    pub fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }

    pub fn volumes(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    /// `plugin` is upstream's name of the volume's type, such as `empty-dir`.
    pub fn volume(&self, uid: &str, plugin: &str, name: &str) -> PathBuf {
        self.volumes(uid).join(format!("kubernetes.io~{plugin}")).join(name)
    }

    /// The links in a pod's directory that say which block volumes of a type it has.
    pub fn volume_devices(&self, uid: &str, plugin: &str) -> PathBuf {
        let devices = self.pod(uid).join("volumeDevices");
        devices.join(format!("kubernetes.io~{plugin}"))
    }

    /// Where one mount's subpath is bound to.
    pub fn subpath(&self, uid: &str, volume: &str, container: &str, index: usize) -> PathBuf {
        let subpaths = self.subpaths(uid);
        subpaths.join(volume).join(container).join(index.to_string())
    }

    pub fn subpaths(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volume-subpaths")
    }

    pub fn hosts_file(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("etc-hosts")
    }

    /// Which users of the host the pod's are; upstream's file.
    pub fn user_namespace(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("userns")
    }

    /// Where administrators put seccomp profiles that pods may name.
    pub fn seccomp(&self) -> PathBuf {
        self.root.join("seccomp")
    }

    /// The file in which an instance leaves its termination message.
    pub fn message_file(&self, uid: &str, container: &str, attempt: u32) -> PathBuf {
        let containers = self.pod(uid).join("containers");
        containers.join(container).join(format!("message-{attempt}"))
    }

    pub fn pod_logs(&self, pod: &Pod) -> PathBuf {
        let metadata = &pod.metadata;
        self.logs
            .join(format!("{}_{}_{}", metadata.namespace, metadata.name, metadata.uid))
    }

    /// Relative to the pod's log directory, as the CRI wants it.
    pub fn relative_log(container: &str, attempt: u32) -> String {
        format!("{container}/{attempt}.log")
    }

    pub fn container_log(&self, pod: &Pod, container: &Container, attempt: u32) -> PathBuf {
        self.pod_logs(pod).join(Paths::relative_log(&container.name, attempt))
    }
}
