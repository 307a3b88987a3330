//! One worker per pod: it knows the pod, plans, has the plan carried out by tasks of their own, and tells the API.
//!
//! A worker never waits for anything but messages: whatever takes time is a task that reports back, so a pod can be
//! deleted while its image is pulled and a container killed while another starts.

mod act;
mod admit;
mod hook;
mod image;
mod inspect;
mod keyring;
mod kill;
mod probes;
mod refresh;
mod report;
mod resize;
mod start;
mod volumes;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::limits;
use crate::moment::Moment;
use crate::observed::{Instance, Observed, Sandbox};
use crate::plan::{self, Action, Applied, Failure, Image, Plan, PodView, Progress, Stop, Task, Volumes};
use crate::pod::Pod;
use crate::pod::resources::Compute;
use crate::probe::{ProbeKind, Report};
use crate::resize::Allocation;
use crate::shared::Shared;
use crate::{objects, status};
use admit::Admission;
use image::{NoImage, ReadyImage};
use report::Reporter;
use start::StartError;
use volumes::{Mounted, Tokens};

pub use inspect::{container as inspect_container, instance as instance_of, sandbox as inspect_sandbox};

/// A pod as the API has it, decoded and as bytes.
#[derive(Debug)]
pub struct PodObject {
    pub pod: Arc<Pod>,
    pub raw: Bytes,
}

/// What a worker is to work towards. Only the newest counts.
#[derive(Clone)]
pub struct Input {
    pub object: Arc<PodObject>,
    /// The API no longer has the pod.
    pub gone: bool,
}

/// What happened.
pub enum Message {
    Container(Instance),
    Sandbox(Sandbox),
    /// Something happened to this container or sandbox: ask the runtime.
    Look {
        id: String,
        place: Place,
    },
    /// The runtime no longer knows this container or sandbox.
    Vanished(String),
    Probe {
        container: String,
        container_id: String,
        kind: ProbeKind,
        report: Report,
    },
    /// The pod has to go, for what the message says.
    Evict(String),
    /// A ConfigMap or Secret of the pod changed.
    ObjectsChanged,
    Done(Task, Done),
    StatusWritten(Result<Bytes, client::Error>),
}

/// What an identifier of the runtime stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Sandbox,
    ContainerIn(String),
}

/// How a task ended.
pub enum Done {
    Mounted(Result<Mounted, String>),
    Unmounted(Result<(), String>),
    SandboxCreated(Result<Sandbox, String>),
    Image(String, Result<ReadyImage, NoImage>),
    Started(String, Result<(), StartError>),
    /// Anything whose effect is seen in the runtime or the API.
    Plain(Result<(), String>),
    Cleaned(Result<(), String>),
    /// What the pod as a whole and its containers have now.
    Resized(Result<(Compute, Vec<Applied>), String>),
}

/// How others reach a worker.
pub struct Handle {
    pub input: watch::Sender<Input>,
    pub mailbox: mpsc::Sender<Message>,
}

pub struct Worker {
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    observed: Observed,
    progress: Progress,
    images: BTreeMap<String, ReadyImage>,
    volumes: Mounted,
    admission: Admission,
    /// What the node has granted the pod; set with the first input.
    allocation: Option<Allocation>,
    /// When to ask again for what the node had no room for.
    reconsider_at: Option<Moment>,
    tokens: Arc<Tokens>,
    refresh_volumes_at: Option<Moment>,
    probes: probes::Probes,
    reporter: Reporter,
    /// What was last told about each container that waits, so that it is told once.
    announced: HashMap<String, Moment>,
    marked_ready: bool,
    first_seen: Moment,
    tasks: HashMap<Task, AbortHandle>,
    sender: mpsc::Sender<Message>,
    mailbox: mpsc::Receiver<Message>,
    input: watch::Receiver<Input>,
    delete_wanted: bool,
    finished: bool,
}

/// Starts a worker. `observed` is what the runtime had of the pod already; the future ends when nothing of the pod is
/// left.
pub fn spawn(shared: Arc<Shared>, input: Input, observed: Observed) -> (Handle, impl Future<Output = ()> + Send) {
    let now = Moment::now();
    let (mailbox, receiver) = mpsc::channel(limits::WORKER_MAILBOX);
    let (input_sender, mut input_receiver) = watch::channel(input.clone());
    input_receiver.mark_changed();
    let pod = input.object.pod.clone();
    let worker = Worker {
        reporter: Reporter::new(&pod, now),
        shared,
        pod,
        observed: Observed::default(),
        progress: Progress::default(),
        images: BTreeMap::new(),
        volumes: Mounted::default(),
        admission: Admission::default(),
        allocation: None,
        reconsider_at: None,
        tokens: Arc::default(),
        refresh_volumes_at: None,
        probes: probes::Probes::default(),
        announced: HashMap::new(),
        marked_ready: false,
        first_seen: now,
        tasks: HashMap::new(),
        sender: mailbox.clone(),
        mailbox: receiver,
        input: input_receiver,
        delete_wanted: false,
        finished: false,
    };
    let handle = Handle {
        input: input_sender,
        mailbox,
    };
    (handle, worker.run(observed))
}

impl Worker {
    async fn run(mut self, observed: Observed) {
        let metadata = &self.pod.metadata;
        trace::mark("kubelet/observed", self.pod.mark_name(), metadata.uid.clone());
        for sandbox in observed.sandboxes {
            self.take_sandbox(sandbox);
        }
        for instance in observed.containers {
            self.take_container(instance);
        }
        while !self.finished {
            if self.input.has_changed().unwrap_or(false) {
                self.take_input();
            }
            let wake_at = self.step();
            if !self.finished {
                self.wait(wake_at).await;
            }
        }
        self.shared.objects.forget(&self.pod.metadata.uid);
        self.shared.release(&self.pod.metadata.uid);
        self.shared.host_ports.release(&self.pod.metadata.uid);
    }

    /// Plans, acts and reports; returns when to do so again at the latest.
    fn step(&mut self) -> Option<Moment> {
        let now = Moment::now();
        if self.reconsider_at.is_some_and(|at| at <= now) {
            self.take_input();
        }
        let plan = self.plan(now);
        let mut wake_at = earliest(plan.wake_at, self.reconsider_at);
        for action in plan.actions {
            self.act(action, now);
        }
        wake_at = earliest(wake_at, self.refresh_volumes(now));
        let address = self.address();
        let view = PodView {
            pod: &self.pod,
            observed: &self.observed,
            progress: &self.progress,
        };
        self.probes.sync(&self.shared, view, &address, &self.sender);
        wake_at = earliest(wake_at, self.report(now));
        self.delete_pod();
        wake_at
    }

    /// Plans until nothing is decided about the pod as a whole any more.
    fn plan(&mut self, now: Moment) -> Plan {
        self.admit();
        self.hold_ports();
        self.require_features();
        loop {
            let plan = plan::plan(self.view(), now);
            match plan.actions.first() {
                Some(Action::Stop(stop)) => {
                    self.progress.stop = Some(stop.clone());
                    self.announce_stop(stop);
                }
                _ => {
                    if self.view().is_ending() {
                        self.progress.ending_since.get_or_insert(now);
                    }
                    return plan;
                }
            }
        }
    }

    /// Keeps the pod's ports of the machine for it, or turns the pod away when another one has them.
    fn hold_ports(&mut self) {
        if self.pod.is_terminal() {
            self.shared.host_ports.release(&self.pod.metadata.uid);
            return;
        }
        if self.view().is_ending() {
            return;
        }
        if let Err(refused) = self.shared.host_ports.claim(&self.pod, !self.observed.is_empty()) {
            let stop = Stop::Rejected {
                reason: "NodePorts".to_owned(),
                message: refused.to_string(),
            };
            self.announce_stop(&stop);
            self.progress.stop = Some(stop);
        }
    }

    /// Turns a pod away that asks the runtime for what it cannot give.
    fn require_features(&mut self) {
        let policy = self.pod.spec.security_context.supplemental_groups_policy.as_deref();
        let strict = policy == Some("Strict") && !self.shared.around.features.supplemental_groups_policy();
        if strict && self.observed.is_empty() && !self.view().is_ending() {
            let stop = Stop::Rejected {
                reason: "SupplementalGroupsPolicyNotSupported".to_owned(),
                message: "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
            };
            self.announce_stop(&stop);
            self.progress.stop = Some(stop);
        }
    }

    fn announce_stop(&self, stop: &Stop) {
        match stop {
            Stop::Gone => {}
            Stop::Deadline => {
                let message = "Pod was active on the node longer than the specified deadline";
                self.shared.normal(&self.pod, "", "DeadlineExceeded", message);
            }
            Stop::Evicted { message } => self.shared.warning(&self.pod, "", "Evicted", message.clone()),
            Stop::Rejected { reason, message } => self.shared.warning(&self.pod, "", reason, message.clone()),
        }
    }

    async fn wait(&mut self, wake_at: Option<Moment>) {
        let pause = wake_at.map_or(Duration::from_secs(3600), |at| at.since(Moment::now()));
        tokio::select! {
            biased;
            Some(message) = self.mailbox.recv() => self.take(message),
            Ok(()) = self.input.changed() => self.take_input(),
            () = tokio::time::sleep(pause) => {}
        }
        // Whatever else has happened meanwhile is taken in before the next plan.
        while let Ok(message) = self.mailbox.try_recv() {
            self.take(message);
        }
    }

    fn view(&self) -> PodView<'_> {
        PodView {
            pod: &self.pod,
            observed: &self.observed,
            progress: &self.progress,
        }
    }

    fn take_input(&mut self) {
        let input = self.input.borrow_and_update().clone();
        if input.gone {
            self.progress.stop = Some(Stop::Gone);
        }
        self.reporter.saw(&input.object.raw);
        let mut pod = input.object.pod.clone();
        if pod.status.start_time.is_none() {
            Arc::make_mut(&mut pod).status.start_time = Some(self.first_seen);
        }
        self.allocate(&mut pod);
        let (old, new) = (&self.pod.metadata, &pod.metadata);
        let changed =
            (old.generation, &old.labels, &old.annotations) != (new.generation, &new.labels, &new.annotations);
        self.pod = pod;
        if changed {
            // What failed may succeed now.
            self.progress.failed.clear();
            for container in self.progress.containers.values_mut() {
                container
                    .failure
                    .iter_mut()
                    .for_each(|failure| failure.delay = Duration::ZERO);
            }
            self.refresh_volumes_soon();
        }
        if self.progress.stop != Some(Stop::Gone) {
            let metadata = &self.pod.metadata;
            self.shared
                .objects
                .set(&metadata.uid, &metadata.namespace, objects::of_pod(&self.pod));
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Container(instance) => self.take_container(instance),
            Message::Sandbox(sandbox) => self.take_sandbox(sandbox),
            Message::Look { id, place } => self.look(id, place),
            Message::Vanished(id) => self.forget(&id),
            Message::Probe {
                container,
                container_id,
                kind,
                report,
            } => {
                match &report {
                    Report::Unhealthy(message) => {
                        self.shared.warning(&self.pod, &container, "Unhealthy", message.clone());
                    }
                    Report::Warned(message) => {
                        self.shared
                            .warning(&self.pod, &container, "ProbeWarning", message.clone());
                    }
                    Report::Verdict(_) => {}
                }
                probes::record(&mut self.progress, &container, &container_id, kind, &report);
            }
            Message::Evict(message) => self.evict(message),
            Message::ObjectsChanged => self.objects_changed(),
            Message::Done(task, done) => {
                self.tasks.remove(&task);
                let busy = self.progress.busy.remove(&task);
                self.done(task, done);
                if busy.is_some_and(|busy| busy.overtaken) {
                    self.objects_changed();
                }
            }
            Message::StatusWritten(result) => self.reporter.done(result, Moment::now()),
        }
    }

    fn evict(&mut self, message: String) {
        if self.view().is_ending() {
            return;
        }
        let stop = Stop::Evicted { message };
        self.announce_stop(&stop);
        self.progress.stop = Some(stop);
    }

    fn take_container(&mut self, instance: Instance) {
        let starting = self.progress.is_starting(&instance.name);
        let progress = self.progress.container_mut(&instance.name);
        let latest = self.observed.latest(&instance.name);
        let newest = latest.is_none_or(|latest| latest.attempt <= instance.attempt);
        if newest && progress.verdicts.container_id != instance.id {
            progress.verdicts = probes::first_verdicts(&self.pod, &instance);
        }
        // What has ended does not run again; an answer that says so was overtaken.
        let known = self.observed.instance(&instance.id);
        if known.is_some_and(|known| known.exit().is_some() && instance.exit().is_none()) {
            return;
        }
        if newest && progress.applied.as_ref().map(|applied| &applied.id) != Some(&instance.id) {
            let known = self.pod.known_container(&instance.name);
            let known = known.filter(|known| known.container_id.ends_with(&instance.id));
            let before = known.and_then(|known| known.resources.as_ref()).map(Compute::of);
            let compute = match starting {
                true => progress.starting_with,
                false => before,
            };
            progress.applied = compute.map(|compute| Applied {
                container: instance.name.clone(),
                id: instance.id.clone(),
                compute,
            });
        }
        self.observed.put_container(instance);
    }

    fn take_sandbox(&mut self, sandbox: Sandbox) {
        let known = self.observed.sandboxes.iter().find(|known| known.id == sandbox.id);
        // A stopped sandbox has lost its addresses; the pod still shows them.
        let ips = match known {
            Some(known) if sandbox.ips.is_empty() => known.ips.clone(),
            _ => sandbox.ips.clone(),
        };
        self.observed.put_sandbox(Sandbox { ips, ..sandbox });
    }

    fn forget(&mut self, id: &str) {
        self.observed
            .containers
            .retain(|instance| instance.id != id && instance.sandbox_id != id);
        self.observed.sandboxes.retain(|sandbox| sandbox.id != id);
    }

    fn done(&mut self, task: Task, done: Done) {
        let now = Moment::now();
        let retry = |before: Option<&Failure>| Failure::after(before, limits::RETRY, limits::RETRY_MAX, now);
        match done {
            Done::Mounted(Ok(volumes)) => {
                self.volumes = volumes;
                self.progress.volumes = Volumes::Mounted;
                self.refresh_volumes_at = Some(self.next_refresh(now));
            }
            Done::Mounted(Err(error)) => {
                self.shared.warning(&self.pod, "", "FailedMount", error.clone());
                if self.progress.volumes == Volumes::Mounted {
                    // They are there, only out of date.
                    self.refresh_volumes_at = Some(now.plus(limits::RETRY_MAX));
                    return;
                }
                let before = match &self.progress.volumes {
                    Volumes::Failed(before) => Some(before),
                    _ => None,
                };
                self.progress.volumes = Volumes::Failed(retry(before).because("FailedMount", error));
            }
            Done::Unmounted(Ok(())) => self.progress.volumes = Volumes::Unmounted,
            Done::SandboxCreated(Ok(sandbox)) => {
                self.progress.sandbox = None;
                self.take_sandbox(sandbox);
            }
            Done::SandboxCreated(Err(error)) => {
                let message = format!("Failed to create pod sandbox: {error}");
                self.shared.warning(&self.pod, "", "FailedCreatePodSandBox", message);
                let failure = retry(self.progress.sandbox.as_ref());
                self.progress.sandbox = Some(failure.because("CreatePodSandboxError", error));
            }
            Done::Image(container, result) => self.image_done(container, result, now),
            Done::Started(container, result) => {
                let progress = self.progress.container_mut(&container);
                progress.image = Image::Unknown;
                progress.failure = result
                    .err()
                    .map(|error| retry(progress.failure.as_ref()).because(error.reason, error.message));
            }
            Done::Resized(Ok((pod, applied))) => {
                self.progress.pod_applied = Some(pod);
                for applied in applied {
                    let progress = self.progress.container_mut(&applied.container);
                    progress.applied = Some(applied);
                }
                self.settle(task, Ok(()), now);
            }
            Done::Resized(Err(error)) => self.settle(task, Err(error), now),
            Done::Plain(result) | Done::Unmounted(result) => self.settle(task, result, now),
            Done::Cleaned(Ok(())) => self.finished = true,
            Done::Cleaned(result) => self.settle(task, result, now),
        }
    }

    fn settle(&mut self, task: Task, result: Result<(), String>, now: Moment) {
        match result {
            Ok(()) => _ = self.progress.failed.remove(&task),
            Err(error) => {
                tracing::warn!(pod = self.pod.key(), ?task, %error, "will be tried again");
                let before = self.progress.failed.get(&task);
                let failure = Failure::after(before, limits::RETRY, limits::RETRY_MAX, now);
                self.progress.failed.insert(task, failure);
            }
        }
    }

    fn image_done(&mut self, container: String, result: Result<ReadyImage, NoImage>, now: Moment) {
        let progress = self.progress.container_mut(&container);
        match result {
            Ok(image) => {
                trace::mark(
                    "kubelet/image-ready",
                    self.pod.mark_name(),
                    self.pod.metadata.uid.clone(),
                );
                progress.image = Image::Ready(image.reference.clone());
                self.images.insert(container, image);
            }
            Err(error) => {
                let before = match &progress.image {
                    Image::Failed(before) => Some(before),
                    _ => None,
                };
                let failure = Failure::after(before, limits::PULL_BACKOFF, limits::PULL_BACKOFF_MAX, now);
                progress.image = Image::Failed(failure.because(error.reason, error.message));
            }
        }
    }

    /// Computes the status and has it written if the API does not have it yet.
    fn report(&mut self, now: Moment) -> Option<Moment> {
        if self.progress.stop == Some(Stop::Gone) {
            return None;
        }
        self.announce(now);
        let status = status::compute(self.view(), &self.shared.around, &self.reporter.conditions, now);
        let ready = status
            .conditions
            .iter()
            .any(|c| c.kind == "Ready" && c.status == "True");
        if ready && !self.marked_ready {
            trace::mark("kubelet/ready", self.pod.mark_name(), self.pod.metadata.uid.clone());
        }
        self.marked_ready = ready;
        let changing = !self.view().is_ending() && self.progress.changes_containers();
        let (patch, wake_at) = self.reporter.next(&self.pod, &status, changing, now);
        if let Some(patch) = patch {
            self.reporter.begin(now);
            let (shared, pod, sender) = (self.shared.clone(), self.pod.clone(), self.sender.clone());
            tokio::spawn(async move {
                let result = report::write(&shared, &pod, patch).await;
                let _ = sender.send(Message::StatusWritten(result)).await;
            });
        }
        wake_at
    }

    /// Says once per wait that a container waits, and for what.
    fn announce(&mut self, now: Moment) {
        let view = self.view();
        let mut told = Vec::new();
        for (kind, container) in self.pod.all_containers() {
            let name = &container.name;
            let progress = self.progress.container(name);
            if let Some(Image::Failed(failure)) = progress.map(|progress| &progress.image) {
                let shown = now.since(failure.failed_at) >= limits::PULL_ERROR_SHOWN;
                if failure.reason == "ErrImagePull" && shown && self.announced.get(name) != Some(&failure.failed_at) {
                    let message = format!("Back-off pulling image {:?}", container.image);
                    self.shared.normal(&self.pod, name, "BackOff", message);
                    self.shared
                        .warning(&self.pod, name, "Failed", "Error: ImagePullBackOff");
                    told.push((name.clone(), failure.failed_at));
                }
            }
            let Some(instance) = view.observed.latest(name).filter(|_| !view.is_ending()) else {
                continue;
            };
            let restarts = instance
                .exit()
                .is_some_and(|exit| view.restarts(kind, container, exit.code));
            let waits = restarts && view.crash_wait(instance, now).is_some();
            if waits && self.announced.get(name) != Some(&instance.created_at) {
                let message = format!(
                    "Back-off restarting failed container {name} in pod {}",
                    self.pod.full_name()
                );
                self.shared.warning(&self.pod, name, "BackOff", message);
                told.push((name.clone(), instance.created_at));
            }
        }
        self.announced.extend(told);
    }

    /// Where the pod's containers can be reached.
    fn address(&self) -> String {
        self.pod_ips().into_iter().next().unwrap_or_default()
    }

    fn pod_ips(&self) -> Vec<String> {
        status::pod_ips(self.view(), &self.shared.around)
    }
}

fn earliest(a: Option<Moment>, b: Option<Moment>) -> Option<Moment> {
    a.into_iter().chain(b).min()
}
