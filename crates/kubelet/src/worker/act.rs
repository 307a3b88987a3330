//! Carrying out what was planned: each action becomes a task that reports its end to the worker.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::DeleteOptions;
use cri::v1;

use super::error::TaskError;
use super::kill::{self, Kill};
use super::start::{self, Start};
use super::{Done, Message, Worker, image, volumes};
use crate::beneath;
use crate::container::sandbox;
use crate::csi;
use crate::inspect;
use crate::moment::Moment;
use crate::observed::Sandbox;
use crate::owners::RuntimeObject;
use crate::plan::{Action, Backoff, Busy, KillReason, Task};
use crate::pod::Pod;
use crate::pod::resources::{container_compute, pod_compute};
use crate::rotation;
use crate::shared::Shared;

impl Worker {
    pub(super) fn act(&mut self, action: Action, now: Moment) {
        tracing::debug!(pod = self.pod.key(), %action, "next");
        match action {
            Action::Stop(stop) => self.progress.stop = Some(stop),
            Action::CancelPull { container } => self.cancel(Task::Image(container)),
            Action::MountVolumes => self.mount(),
            Action::UnmountVolumes => self.unmount(),
            Action::CreateSandbox { attempt } => self.create_sandbox(attempt),
            Action::StopSandbox { id } => self.stop_sandbox(id),
            Action::RemoveSandbox { id } => self.remove_sandbox(id),
            Action::EnsureImage { container } => self.ensure_image(container),
            Action::StartContainer { container, attempt } => self.start(container, attempt, now),
            Action::KillContainer {
                id,
                container,
                grace,
                reason,
            } => {
                if reason == KillReason::Resize {
                    self.progress.container_mut(&container).replaced = Some(id.clone());
                }
                let instance = self.observed.instance(&id);
                let kill = Kill {
                    running: instance.is_some_and(|instance| instance.is_running()),
                    address: self.address(),
                    id,
                    container,
                    grace,
                    reason,
                };
                self.kill(kill, now);
            }
            Action::RemoveContainer { id } => self.remove_container(id),
            Action::Resize => self.resize(),
            // After the report, for the last word about a pod is written before its object is deleted.
            Action::DeletePod => self.delete_wanted = true,
            Action::Cleanup => self.clean_up(),
        }
    }

    /// Runs a task, in place of one like it.
    pub(super) fn spawn(&mut self, task: Task, busy: Busy, work: impl Future<Output = Done> + Send + 'static) {
        self.progress.busy.insert(task.clone(), busy);
        self.tasks.start(task, work);
    }

    fn cancel(&mut self, task: Task) {
        self.tasks.cancel(&task);
        self.progress.busy.remove(&task);
    }

    fn mount(&mut self) {
        let (shared, pod, tokens) = (self.shared.clone(), self.pod.clone(), self.volumes.tokens.clone());
        let (pod_ips, before) = (self.pod_ips(), self.volumes.mounted.clone());
        self.spawn(Task::Volumes, Busy::default(), async move {
            Done::Mounted(volumes::set_up(&shared, &pod, &tokens, pod_ips, before).await)
        });
    }

    fn unmount(&mut self) {
        let (shared, uid) = (self.shared.clone(), self.pod.metadata.uid.clone());
        self.spawn(Task::Volumes, Busy::default(), async move {
            Done::Unmounted(csi::tear_down(&shared, &uid).await.map_err(TaskError::from))
        });
    }

    fn create_sandbox(&mut self, attempt: u32) {
        if attempt > 0 {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            self.shared.normal(&self.pod, "", "SandboxChanged", message);
        }
        let (shared, pod) = (self.shared.clone(), self.pod.clone());
        let stale: Vec<String> = self
            .observed
            .sandboxes
            .iter()
            .map(|sandbox| sandbox.id.clone())
            .collect();
        self.progress.pod_applied = Some(pod_compute(&self.pod));
        self.spawn(Task::Sandbox, Busy::default(), async move {
            Done::SandboxCreated(create_sandbox(&shared, &pod, attempt, stale).await)
        });
    }

    fn stop_sandbox(&mut self, id: String) {
        let (shared, sender) = (self.shared.clone(), self.tasks.sender());
        self.spawn(Task::Kill(id.clone()), Busy::default(), async move {
            let request = v1::StopPodSandboxRequest {
                pod_sandbox_id: id.clone(),
            };
            let stopped = shared.runtime.stop_pod_sandbox(request).await;
            if let Err(error) = stopped {
                return Done::Plain(Err(TaskError::StopSandbox { id, source: error }));
            }
            report_sandbox(&shared, &sender, &id).await;
            Done::Plain(Ok(()))
        });
    }

    fn remove_sandbox(&mut self, id: String) {
        let (shared, sender) = (self.shared.clone(), self.tasks.sender());
        self.spawn(Task::Remove(id.clone()), Busy::default(), async move {
            let request = v1::RemovePodSandboxRequest {
                pod_sandbox_id: id.clone(),
            };
            match shared.runtime.remove_pod_sandbox(request).await {
                Err(source) if !source.is_not_found() => Done::Plain(Err(TaskError::RemoveSandbox { id, source })),
                _ => {
                    let _ = sender.send(Message::Vanished(id)).await;
                    Done::Plain(Ok(()))
                }
            }
        });
    }

    fn ensure_image(&mut self, container: String) {
        let (shared, pod) = (self.shared.clone(), self.pod.clone());
        self.spawn(Task::Image(container.clone()), Busy::default(), async move {
            let Some((_, spec)) = pod.container(&container) else {
                return Done::Plain(Ok(()));
            };
            let image = image::ensure(&shared, &pod, spec).await;
            Done::Image(container, image)
        });
    }

    fn start(&mut self, container: String, attempt: u32, now: Moment) {
        let sandbox = self.observed.current_sandbox().cloned();
        let (Some(sandbox), Some(image)) = (sandbox, self.images.get(&container).cloned()) else {
            return;
        };
        let replaced = self.view().is_replaced(&container);
        let latest = self.observed.latest(&container).filter(|_| !replaced);
        let ended = latest.and_then(|latest| {
            let exit = latest.exit()?;
            Some(exit.finished_at.unwrap_or(latest.created_at))
        });
        let compute = self
            .pod
            .container(&container)
            .map(|(_, spec)| container_compute(&self.pod, spec));
        let progress = self.progress.container_mut(&container);
        progress.starting_with = compute;
        if let Some(finished_at) = ended {
            progress.backoff = Some(Backoff::next(progress.backoff, finished_at, now));
        }
        let target = self
            .pod
            .container(&container)
            .map(|(_, spec)| spec.target_container_name.clone());
        let target = target.and_then(|target| self.observed.current(&target));
        let start = Start {
            container: container.clone(),
            attempt,
            image,
            sandbox,
            pod_ips: self.pod_ips(),
            volumes: self.volumes.mounted.clone(),
            target_id: target.map(|instance| instance.id.clone()).unwrap_or_default(),
        };
        let (shared, pod, sender) = (self.shared.clone(), self.pod.clone(), self.tasks.sender());
        self.spawn(Task::Start(container.clone()), Busy::default(), async move {
            Done::Started(container, start::run(&shared, &pod, start, sender).await)
        });
    }

    fn kill(&mut self, kill: Kill, now: Moment) {
        let busy = Busy {
            until: Some(now.plus(kill.grace)),
            ..Busy::default()
        };
        let (shared, pod, sender) = (self.shared.clone(), self.pod.clone(), self.tasks.sender());
        let sandbox_id = self
            .observed
            .instance(&kill.id)
            .map(|instance| instance.sandbox_id.clone());
        self.spawn(Task::Kill(kill.id.clone()), busy, async move {
            if let Err(source) = kill::run(&shared, &pod, &kill).await {
                return Done::Plain(Err(TaskError::StopContainer { id: kill.id, source }));
            }
            report_container(&shared, &sender, &kill.id, &sandbox_id.unwrap_or_default()).await;
            Done::Plain(Ok(()))
        });
    }

    fn remove_container(&mut self, id: String) {
        let (shared, sender) = (self.shared.clone(), self.tasks.sender());
        let instance = self.observed.instance(&id);
        let log = instance.and_then(|instance| {
            let (_, container) = self.pod.container(&instance.name)?;
            Some(shared.paths.container_log(&self.pod, container, instance.attempt))
        });
        self.spawn(Task::Remove(id.clone()), Busy::default(), async move {
            let request = v1::RemoveContainerRequest {
                container_id: id.clone(),
            };
            match shared.runtime.remove_container(request).await {
                Err(source) if !source.is_not_found() => Done::Plain(Err(TaskError::RemoveContainer { id, source })),
                _ => {
                    if let Some(log) = log {
                        let _ = tokio::task::spawn_blocking(move || remove_logs(&log)).await;
                    }
                    let _ = sender.send(Message::Vanished(id)).await;
                    Done::Plain(Ok(()))
                }
            }
        });
    }

    pub(super) fn delete_pod(&mut self) {
        if !std::mem::take(&mut self.delete_wanted) || !self.reporter.is_settled() {
            return;
        }
        let (shared, pod) = (self.shared.clone(), self.pod.clone());
        self.spawn(Task::Delete, Busy::default(), async move {
            let pods = shared.client.resource(&api::kinds::pod::POD);
            let api = pods.in_namespace(pod.metadata.namespace.clone());
            let options = DeleteOptions {
                grace_period_seconds: Some(0),
                uid: Some(pod.metadata.uid.clone()),
                ..DeleteOptions::default()
            };
            match api.delete(&pod.metadata.name, &options).await {
                // Finalizers may keep the object, and then there is nothing left for us to do but to see it go.
                Ok(_) => std::future::pending().await,
                Err(error) if error.is_not_found() || error.is_conflict() => std::future::pending().await,
                Err(error) => Done::Plain(Err(TaskError::DeletePod(error))),
            }
        });
    }

    fn clean_up(&mut self) {
        self.cancel(Task::Delete);
        let (shared, pod) = (self.shared.clone(), self.pod.clone());
        self.spawn(Task::Cleanup, Busy::default(), async move {
            Done::Cleaned(clean_up(&shared, &pod).await)
        });
    }

    pub(super) fn inspect(&mut self, id: String, object: RuntimeObject) {
        let (shared, sender) = (self.shared.clone(), self.tasks.sender());
        tokio::spawn(async move {
            match object {
                RuntimeObject::Sandbox => report_sandbox(&shared, &sender, &id).await,
                RuntimeObject::ContainerIn(sandbox) => report_container(&shared, &sender, &id, &sandbox).await,
            }
        });
    }
}

async fn create_sandbox(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    attempt: u32,
    stale: Vec<String>,
) -> Result<Sandbox, TaskError> {
    for id in stale {
        // Its addresses must be free before the next one asks for some.
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id };
        shared.runtime.stop_pod_sandbox(request).await?;
    }
    {
        let (shared, pod) = (shared.clone(), pod.clone());
        blocking(move || prepare(&shared, &pod)).await?;
    }
    let handler = runtime_handler(shared, pod).await?;
    let config = sandbox::config(pod, attempt, &shared.sandbox_context(pod))?;
    // The semaphore is never closed.
    let _permit = shared.starts.acquire().await;
    let request = v1::RunPodSandboxRequest {
        config: Some(config),
        runtime_handler: handler,
    };
    let answer = shared.runtime.run_pod_sandbox(request).await?;
    let id = answer.pod_sandbox_id;
    shared.owners.put(&id, &pod.metadata.uid, RuntimeObject::Sandbox);
    let sandbox = inspect::sandbox(&*shared.runtime, &id).await?;
    trace::mark("kubelet/sandbox-ready", pod.mark_name(), pod.metadata.uid.clone());
    sandbox.ok_or(TaskError::SandboxVanished(id))
}

/// The handler that the pod's RuntimeClass names; the runtime's default without one.
async fn runtime_handler(shared: &Shared, pod: &Pod) -> Result<String, TaskError> {
    #[derive(serde::Deserialize)]
    struct RuntimeClass {
        handler: String,
    }
    let Some(name) = pod.spec.runtime_class_name.as_deref().filter(|name| !name.is_empty()) else {
        return Ok(String::new());
    };
    let classes = shared.client.resource(&api::kinds::runtime_class::RUNTIME_CLASS);
    let found: Result<RuntimeClass, client::Error> = classes.get(name).await;
    match found {
        Ok(class) => Ok(class.handler),
        Err(source) => Err(TaskError::RuntimeClass {
            name: name.to_owned(),
            source,
        }),
    }
}

/// What a sandbox needs on the host. Blocks on the file system.
fn prepare(shared: &Shared, pod: &Pod) -> Result<(), TaskError> {
    let paths = &shared.paths;
    let (files, logs) = (paths.pod(&pod.metadata.uid), paths.pod_logs(pod));
    // Programs that collect logs may not be root's.
    for (root, directory, mode) in [(paths.root(), files, 0o750), (paths.logs(), logs, 0o755)] {
        beneath::make_dir(root, &directory, mode).map_err(TaskError::make(&directory))?;
    }
    shared.assign_users(pod)?;
    // A new sandbox has new addresses.
    let hosts = paths.hosts_file(&pod.metadata.uid);
    beneath::remove_below(paths.root(), &hosts).map_err(TaskError::remove(&hosts))?;
    shared.cgroups.create(pod).map_err(TaskError::MakeCgroup)
}

/// Removes what is left of a pod.
async fn clean_up(shared: &Arc<Shared>, pod: &Arc<Pod>) -> Result<(), TaskError> {
    csi::tear_down(shared, &pod.metadata.uid).await?;
    let (shared, pod) = (shared.clone(), pod.clone());
    blocking(move || remove_pod(&shared, &pod)).await
}

/// Removes what is left of a pod whose volumes are torn down. Blocks on the file system.
fn remove_pod(shared: &Shared, pod: &Pod) -> Result<(), TaskError> {
    let uid = &pod.metadata.uid;
    let paths = &shared.paths;
    let remove = |root: &Path, directory: PathBuf| {
        beneath::remove_below(root, &directory).map_err(TaskError::remove(&directory))
    };
    remove(paths.logs(), paths.pod_logs(pod))?;
    shared.owners.forget_pod(uid);
    shared.cgroups.remove(uid).map_err(TaskError::RemoveCgroup)?;
    // The last one, so that a sweep finds all of the others by it.
    remove(paths.root(), paths.pod(uid))?;
    shared.user_namespaces.release(uid);
    Ok(())
}

/// Removes a container's log and what was put aside of it: without the container they are of no use. That there are none
/// is just as well.
fn remove_logs(log: &Path) {
    if let Err(error) = rotation::remove(log) {
        tracing::warn!(%error, log = %log.display(), "Failed to remove the logs of a removed container");
    }
}

async fn report_container(shared: &Shared, sender: &tokio::sync::mpsc::Sender<Message>, id: &str, sandbox_id: &str) {
    let message = match inspect::container(&*shared.runtime, id, sandbox_id).await {
        Ok(Some(instance)) => Message::Container(instance),
        Ok(None) => Message::Vanished(id.to_owned()),
        Err(error) => {
            tracing::warn!(%error, container = id, "Failed to read a container's status from the runtime");
            return;
        }
    };
    let _ = sender.send(message).await;
}

async fn report_sandbox(shared: &Shared, sender: &tokio::sync::mpsc::Sender<Message>, id: &str) {
    let message = match inspect::sandbox(&*shared.runtime, id).await {
        Ok(Some(sandbox)) => Message::Sandbox(sandbox),
        Ok(None) => Message::Vanished(id.to_owned()),
        Err(error) => {
            tracing::warn!(%error, sandbox = id, "Failed to read a sandbox's status from the runtime");
            return;
        }
    };
    let _ = sender.send(message).await;
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
) -> Result<T, TaskError> {
    tokio::task::spawn_blocking(work).await?
}
