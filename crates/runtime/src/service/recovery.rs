//! Taking up what an earlier Karve left: running pods go on, ended ones keep their status.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::v1;
use network::SandboxNetwork;
use serde::de::DeserializeOwned;

use super::container::{Container, Phase, RECORD};
use super::names::{Reserved, container_name, sandbox_name};
use super::records::{self, ContainerRecord, SandboxRecord};
use super::sandbox::{Running, Sandbox};
use super::{Embedded, OpenError};
use crate::link::Link;
use crate::protocol::{Call, ContainerState, State};
use crate::tree;

impl Embedded {
    pub(super) async fn recover(&self) -> Result<(), OpenError> {
        let kept = [
            ("sandboxes", &self.root_dir),
            ("containers", &self.root_dir),
            ("sandboxes", &self.state_dir),
        ];
        for (part, dir) in kept {
            let dir = dir.join(part);
            std::fs::create_dir_all(&dir).map_err(|source| OpenError::Io { path: dir, source })?;
        }
        let containers = load::<ContainerRecord, v1::ContainerConfig>(&self.root_dir.join("containers"), Some(RECORD));
        for (record, config) in containers {
            let container = Container::new(record, config, Phase::Created);
            self.containers
                .write()
                .insert(container.record.id.clone(), Arc::new(container));
        }
        for (record, config) in load::<SandboxRecord, v1::PodSandboxConfig>(&self.root_dir.join("sandboxes"), None) {
            self.recover_sandbox(record, config).await;
        }
        self.drop_strays();
        self.reserve_names();
        self.stop_orphans().await;
        let live: Vec<SandboxNetwork> = self
            .sandboxes
            .read()
            .values()
            .filter(|sandbox| sandbox.running().is_some())
            .map(|sandbox| sandbox.network())
            .collect();
        if let Err(error) = self.network.reconcile(&live).await {
            tracing::warn!(%error, "Failed to reconcile the pod network after a restart");
        }
        Ok(())
    }

    async fn recover_sandbox(&self, record: SandboxRecord, config: v1::PodSandboxConfig) {
        let id = record.id.clone();
        // The sandbox must be known before its supervisor is heard.
        let sandbox = Arc::new(Sandbox::new(record, config, None));
        self.sandboxes.write().insert(id.clone(), sandbox.clone());
        let state = match Link::connect(&self.sandbox_dir(&id), self.reporter(&id)).await {
            Ok(link) => match link.hello().await {
                Ok(state) => Some((link, state)),
                Err(error) => {
                    tracing::warn!(sandbox = id, %error, "Pod supervisor does not answer after a restart; treating the sandbox as ended");
                    None
                }
            },
            Err(_) => None,
        };
        match state {
            Some((
                link,
                State {
                    pause_pid: Some(pause_pid),
                    containers,
                    ..
                },
            )) => {
                sandbox.set_running(Running {
                    link: Arc::new(link),
                    pause_pid,
                });
                for container in self.containers_of(&id) {
                    if let Some(state) = containers.get(&container.record.id) {
                        adopt(&container, state);
                    }
                }
                self.check_supervisor(&sandbox);
            }
            _ => {
                self.kill_leftovers(&id, self.recorded_pause(&id));
                for container in self.containers_of(&id) {
                    self.presume_ended(&container);
                }
            }
        }
    }

    /// The pause process of a supervisor that cannot be asked any more.
    fn recorded_pause(&self, id: &str) -> i32 {
        let text = std::fs::read_to_string(self.sandbox_dir(id).join("pause")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Stops supervisors without a sandbox: Karve was killed before it had recorded what it was starting.
    async fn stop_orphans(&self) {
        let dir = self.state_dir.join("sandboxes");
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let id = entry.file_name().to_string_lossy().into_owned();
            if self.sandboxes.read().contains_key(&id) {
                continue;
            }
            if let Ok(link) = Link::connect(&entry.path(), |_| {}).await {
                let _ = link.call(Call::Stop).await;
            }
            self.remove_sandbox_files(&id);
        }
    }

    /// Those that an earlier version gave away twice stay as they are.
    fn reserve_names(&self) {
        let sandboxes = self.sandboxes.read();
        for (id, sandbox) in sandboxes.iter() {
            let _ = self
                .names
                .reserve("sandbox", sandbox_name(&sandbox.config), id)
                .map(Reserved::keep);
        }
        for (id, container) in self.containers.read().iter() {
            if let Some(sandbox) = sandboxes.get(&container.record.sandbox_id) {
                let name = container_name(&container.config, &sandbox.config);
                let _ = self.names.reserve("container", name, id).map(Reserved::keep);
            }
        }
    }

    /// Removes containers without a sandbox: what is left of a removal that was cut short.
    fn drop_strays(&self) {
        let sandboxes = self.sandboxes.read();
        self.containers.write().retain(|id, container| {
            let known = sandboxes.contains_key(&container.record.sandbox_id);
            if !known {
                self.layout.kill(&container.record.spec.cgroup.path);
                let _ = self.layout.remove(&container.record.spec.cgroup.path);
                let _ = tree::remove(&self.container_dir(id));
            }
            known
        });
    }
}

/// Takes over what a supervisor knows of a container. One that was started but is not mentioned was forgotten.
fn adopt(container: &Container, state: &ContainerState) {
    let phase = match state {
        ContainerState::Starting => return,
        ContainerState::Running { started_at_ns, .. } => Phase::Running {
            started_at_ns: *started_at_ns,
        },
        ContainerState::Ended(exit) => Phase::Exited(exit.clone()),
    };
    container.advance(phase);
}

/// Reads all records below a directory: its entries, or those of the given name in them. What is not whole was never finished, and is removed.
fn load<R: DeserializeOwned, C: prost::Message + Default>(dir: &Path, name: Option<&str>) -> Vec<(R, C)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    // What was being written when its writer was killed.
    let entries = entries.filter(|entry| {
        let unfinished = entry.path().extension().is_some_and(|extension| extension == "new");
        if unfinished {
            let _ = tree::remove(&entry.path());
        }
        !unfinished
    });
    let place = |path: PathBuf| name.map_or(path.clone(), |name| path.join(name));
    let read = entries.filter_map(|entry| match records::read::<R, C>(&place(entry.path())) {
        Ok(found) => Some(found),
        Err(error) => {
            tracing::warn!(dir = %entry.path().display(), %error, "dropping an unfinished record");
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::InvalidData | ErrorKind::UnexpectedEof
            ) {
                let _ = tree::remove(&entry.path());
            }
            None
        }
    });
    read.collect()
}
