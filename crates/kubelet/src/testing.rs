//! Scenes for tests: a pod as YAML and, in few words, what the runtime and the kubelet know of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::moment::Moment;
use crate::observed::{Exit, Instance, Observed, Sandbox, State};
use crate::plan::{Backoff, Busy, Failure, Image, PodView, Progress, Stop, Task, Unhealthy, Verdicts, Volumes};
use crate::pod::Pod;

/// The present of every scene.
pub const NOW: Moment = Moment(1_700_000_000_000);

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Scene {
    pub pod: Pod,
    sandboxes: Vec<SandboxFact>,
    containers: Vec<ContainerFact>,
    /// `mounted` or `failed`.
    volumes: String,
    /// The containers whose images are there.
    images: Vec<String>,
    /// Container to `reason: message`.
    image_failures: BTreeMap<String, String>,
    failures: BTreeMap<String, String>,
    /// Container to seconds.
    backoff: BTreeMap<String, u64>,
    started: Vec<String>,
    ready: Vec<String>,
    unhealthy: BTreeMap<String, String>,
    /// `gone`, `deadline`.
    stop: String,
    starting: Vec<String>,
    /// Container ID to seconds until the kill is over.
    killing: BTreeMap<String, u64>,
    #[serde(skip)]
    pub observed: Observed,
    #[serde(skip)]
    pub progress: Progress,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SandboxFact {
    id: String,
    #[serde(default)]
    lost: bool,
    #[serde(default)]
    attempt: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContainerFact {
    name: String,
    /// `created`, `running`, `unknown`, or the exit code.
    state: serde_json::Value,
    #[serde(default)]
    attempt: u32,
    #[serde(default)]
    sandbox: Option<String>,
    /// Seconds since it ended, or since it started.
    #[serde(default)]
    ago: u64,
}

impl Scene {
    pub fn parse(yaml: &str) -> Scene {
        let mut scene: Scene = serde_saphyr::from_str(yaml).expect("the scene is YAML");
        scene.fill_pod();
        scene.fill_observed();
        scene.fill_progress();
        scene
    }

    pub fn view(&self) -> PodView<'_> {
        PodView {
            pod: &self.pod,
            observed: &self.observed,
            progress: &self.progress,
        }
    }

    fn fill_pod(&mut self) {
        let metadata = &mut self.pod.metadata;
        for (field, default) in [
            (&mut metadata.name, "web"),
            (&mut metadata.namespace, "default"),
            (&mut metadata.uid, "uid-1"),
        ] {
            if field.is_empty() {
                *field = default.to_owned();
            }
        }
    }

    fn fill_observed(&mut self) {
        for fact in &self.sandboxes {
            self.observed.put_sandbox(Sandbox {
                id: fact.id.clone(),
                attempt: fact.attempt,
                ready: !fact.lost,
                created_at: NOW,
                ips: vec!["10.0.0.5".to_owned()],
            });
        }
        let newest = self.observed.sandboxes.first().map(|sandbox| sandbox.id.clone());
        for fact in &self.containers {
            let at = Moment(NOW.0 - fact.ago as i64 * 1000);
            let state = match fact.state.as_str() {
                Some("created") => State::Created,
                Some("running") => State::Running,
                Some("unknown") => State::Unknown,
                Some(other) => panic!("no such state: {other}"),
                None => State::Exited(exit(fact.state.as_i64().expect("an exit code") as i32, at)),
            };
            self.observed.put_container(Instance {
                id: format!("{}-{}", fact.name, fact.attempt),
                name: fact.name.clone(),
                sandbox_id: fact.sandbox.clone().or(newest.clone()).unwrap_or_default(),
                attempt: fact.attempt,
                state,
                created_at: Moment(at.0 - 1000),
                started_at: Some(Moment(at.0 - 1000)),
                image_ref: "sha256:1234".to_owned(),
                ..Instance::default()
            });
        }
    }

    fn fill_progress(&mut self) {
        let progress = &mut self.progress;
        progress.volumes = match self.volumes.as_str() {
            "mounted" => Volumes::Mounted,
            "unmounted" => Volumes::Unmounted,
            "failed" => Volumes::Failed(failure("FailedMount: no such secret")),
            _ => Volumes::Unknown,
        };
        progress.stop = match self.stop.as_str() {
            "gone" => Some(Stop::Gone),
            "deadline" => Some(Stop::Deadline),
            _ => None,
        };
        for name in &self.images {
            progress.container_mut(name).image = Image::Ready("sha256:1234".to_owned());
        }
        for (name, why) in &self.image_failures {
            progress.container_mut(name).image = Image::Failed(failure(why));
        }
        for (name, why) in &self.failures {
            progress.container_mut(name).failure = Some(failure(why));
        }
        for (name, seconds) in &self.backoff {
            progress.container_mut(name).backoff = Some(Backoff {
                delay: Duration::from_secs(*seconds),
                updated_at: Moment(NOW.0 - 60_000),
            });
        }
        for container in &self.observed.containers {
            let name = &container.name;
            let verdicts = &mut progress.container_mut(name).verdicts;
            if !verdicts.container_id.is_empty() {
                continue;
            }
            *verdicts = Verdicts {
                container_id: container.id.clone(),
                started: self.started.contains(name),
                ready: self.ready.contains(name),
                unhealthy: self.unhealthy.get(name).map(|kind| match kind.as_str() {
                    "startup" => Unhealthy::Startup,
                    _ => Unhealthy::Liveness,
                }),
            };
        }
        for name in &self.starting {
            progress.busy.insert(Task::Start(name.clone()), Busy::default());
        }
        for (id, seconds) in &self.killing {
            let until = Some(NOW.plus(Duration::from_secs(*seconds)));
            let busy = Busy {
                until,
                ..Busy::default()
            };
            progress.busy.insert(Task::Kill(id.clone()), busy);
        }
    }
}

fn exit(code: i32, at: Moment) -> Exit {
    Exit {
        code,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        finished_at: Some(at),
        ..Exit::default()
    }
}

fn failure(text: &str) -> Failure {
    let (reason, message) = text.split_once(": ").unwrap_or((text, ""));
    Failure {
        reason: reason.to_owned(),
        message: message.to_owned(),
        failed_at: Moment(NOW.0 - 2_000),
        delay: Duration::from_secs(10),
    }
}

/// Runs a test in a mount namespace of its own, with a directory to mount in. What it mounts is gone afterwards.
pub fn in_mount_namespace(test: impl FnOnce(&std::path::Path) + Send) {
    use rustix::mount::{MountPropagationFlags, mount_change};
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "this test needs root");
        eprintln!("SKIPPED: this test needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    std::thread::scope(|scope| {
        let tested = scope.spawn(|| {
            // SAFETY: the thread shares nothing with others that depends on its mount namespace.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            test(&path);
        });
        if let Err(panic) = tested.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Tells threads that disturb a test to end, also when the test fails.
pub struct EndOnDrop<'a>(pub &'a std::sync::atomic::AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
