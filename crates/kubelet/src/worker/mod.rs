//! One worker per pod: it knows the pod, plans, has the plan carried out by tasks of their own, and tells the API.
//!
//! A worker never waits for anything but messages: whatever takes time is a task that reports back, so a pod can be
//! deleted while its image is pulled and a container killed while another starts.

mod act;
mod admit;
mod announce;
mod error;
mod hook;
mod image;
mod intake;
mod keyring;
mod kill;
mod message;
mod outcome;
mod probes;
mod refresh;
mod report;
mod resize;
mod start;
mod tasks;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::limits;
use crate::moment::Moment;
use crate::observed::Observed;
use crate::plan::{self, Action, Plan, PodView, Progress};
use crate::pod::Pod;
use crate::shared::Shared;
use crate::status;
use admit::Admission;
use announce::Announced;
use image::ReadyImage;
use report::Reporter;
use resize::Grant;
use tasks::Tasks;
use volumes::PodVolumes;

pub use message::{Done, Handle, Input, Message, PodObject};

pub struct Worker {
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    observed: Observed,
    progress: Progress,
    images: BTreeMap<String, ReadyImage>,
    volumes: PodVolumes,
    admission: Admission,
    grant: Grant,
    probes: probes::Probes,
    reporter: Reporter,
    announced: Announced,
    first_seen: Moment,
    tasks: Tasks,
    inbox: Inbox,
    delete_wanted: bool,
    finished: bool,
}

/// How others reach the worker.
struct Inbox {
    messages: mpsc::Receiver<Message>,
    input: watch::Receiver<Input>,
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
        volumes: PodVolumes::default(),
        admission: Admission::default(),
        grant: Grant::default(),
        probes: probes::Probes::default(),
        announced: Announced::default(),
        first_seen: now,
        tasks: Tasks::new(mailbox.clone()),
        inbox: Inbox {
            messages: receiver,
            input: input_receiver,
        },
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
        if observed.is_empty() {
            self.shared.figures.pod_started(&self.pod);
        }
        for sandbox in observed.sandboxes {
            self.take_sandbox(sandbox);
        }
        for instance in observed.containers {
            self.take_container(instance);
        }
        while !self.finished {
            if self.inbox.input.has_changed().unwrap_or(false) {
                self.take_input();
            }
            let wake_at = self.step();
            if !self.finished {
                self.wait(wake_at).await;
            }
        }
        self.shared.objects.forget(&self.pod.metadata.uid);
        self.shared.release(&self.pod.metadata.uid);
        self.shared.volumes.remove(&self.pod.metadata.uid);
        self.shared.host_ports.release(&self.pod.metadata.uid);
        self.shared.figures.forget(&self.pod.metadata.uid);
    }

    /// Plans, acts and reports; returns when to do so again at the latest.
    fn step(&mut self) -> Option<Moment> {
        let now = Moment::now();
        if self.grant.reconsider_at.is_some_and(|at| at <= now) {
            self.take_input();
        }
        let plan = self.plan(now);
        let mut wake_at = earliest(plan.wake_at, self.grant.reconsider_at);
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
        self.probes.sync(&self.shared, view, &address, &self.tasks.sender());
        wake_at = earliest(wake_at, self.report(now));
        self.delete_pod();
        wake_at
    }

    /// Plans until nothing is decided about the pod as a whole any more.
    fn plan(&mut self, now: Moment) -> Plan {
        self.admit();
        self.hold_ports();
        self.require_features();
        self.progress.reset = self.view().reset(now);
        loop {
            let plan = plan::plan(self.view(), now);
            match plan.actions.first() {
                Some(Action::Stop(stop)) => {
                    self.progress.stop = Some(stop.clone());
                    self.announce_stop(stop);
                }
                _ => {
                    if self.view().is_ending() && self.progress.ending_since.is_none() {
                        self.progress.ending_since = Some(now);
                        self.shared.csi.endings.add(&self.pod.metadata.uid);
                    }
                    return plan;
                }
            }
        }
    }

    async fn wait(&mut self, wake_at: Option<Moment>) {
        let pause = wake_at.map_or(Duration::from_secs(3600), |at| at.since(Moment::now()));
        tokio::select! {
            biased;
            Some(message) = self.inbox.messages.recv() => self.take(message),
            Ok(()) = self.inbox.input.changed() => self.take_input(),
            () = tokio::time::sleep(pause) => {}
        }
        // Whatever else has happened meanwhile is taken in before the next plan.
        while let Ok(message) = self.inbox.messages.try_recv() {
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
