//! Which probes run for a pod's containers at the moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::Message;
use crate::observed::Instance;
use crate::plan::{PodView, Progress, Unhealthy, Verdicts};
use crate::pod::{Container, ContainerKind, Pod};
use crate::probe::{self, Answer, ProbeKind, Report, Target};
use crate::shared::Shared;

#[derive(Default)]
pub struct Probes {
    running: BTreeMap<(String, ProbeKind), (String, AbortHandle)>,
}

impl Probes {
    /// Starts and stops probes so that exactly the right ones run.
    pub fn sync(&mut self, shared: &Arc<Shared>, view: PodView<'_>, address: &str, sender: &mpsc::Sender<Message>) {
        let wanted = wanted(view);
        self.running.retain(|key, (id, task)| {
            let kept = wanted.get(key).is_some_and(|(wanted, _)| *wanted == id);
            if !kept {
                task.abort();
            }
            kept
        });
        for ((name, kind), (id, container)) in wanted {
            let Some(probe) = kind
                .probe_of(container)
                .filter(|_| !self.running.contains_key(&(name.clone(), kind)))
            else {
                continue;
            };
            let target = Target {
                runtime: shared.runtime.clone(),
                container: container.clone(),
                container_id: id.to_owned(),
                address: address.to_owned(),
            };
            let (sender, container, container_id) = (sender.clone(), name.clone(), id.to_owned());
            let (counting, pod, counted) = (shared.clone(), view.pod.clone(), name.clone());
            let seen = move |answer: &Answer| counting.figures.probed(&pod, &counted, kind, answer);
            let watching = probe::watch(kind, probe.clone(), target, seen, async move |report| {
                let message = Message::Probe {
                    container: container.clone(),
                    container_id: container_id.clone(),
                    kind,
                    report,
                };
                let _ = sender.send(message).await;
            });
            let task = tokio::spawn(watching).abort_handle();
            self.running.insert((name, kind), (id.to_owned(), task));
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.running.values().for_each(|(_, task)| task.abort());
    }
}

/// Container and probe to the instance to ask. Until a container has started nothing else is asked, and a container
/// that is to end anyway need not live.
fn wanted(view: PodView<'_>) -> BTreeMap<(String, ProbeKind), (&str, &Container)> {
    let mut wanted = BTreeMap::new();
    for (kind, container) in view.pod.all_containers() {
        let instance = view
            .observed
            .current(&container.name)
            .filter(|instance| instance.is_running());
        let (Some(instance), ContainerKind::App | ContainerKind::Sidecar) = (instance, kind) else {
            continue;
        };
        let verdicts = view.progress.verdicts(&container.name, &instance.id);
        let started = container.startup_probe.is_none() || verdicts.is_some_and(|verdicts| verdicts.started);
        let ending = view.is_ending();
        for kind in [ProbeKind::Startup, ProbeKind::Readiness, ProbeKind::Liveness] {
            let due = match kind {
                ProbeKind::Startup => !started && !ending,
                ProbeKind::Readiness => started,
                ProbeKind::Liveness => started && !ending,
            };
            if due && kind.probe_of(container).is_some() {
                wanted.insert((container.name.clone(), kind), (instance.id.as_str(), container));
            }
        }
    }
    wanted
}

/// Takes a report into the progress. Reports about an instance that was replaced are void.
pub fn record(progress: &mut Progress, container: &str, container_id: &str, kind: ProbeKind, report: &Report) {
    let verdicts = &mut progress.container_mut(container).verdicts;
    if verdicts.container_id != container_id {
        return;
    }
    match (kind, report) {
        (ProbeKind::Readiness, Report::Verdict(ready)) => verdicts.ready = *ready,
        (ProbeKind::Startup, Report::Verdict(true)) => verdicts.started = true,
        (ProbeKind::Startup, Report::Verdict(false)) => verdicts.unhealthy = Some(Unhealthy::Startup),
        (ProbeKind::Liveness, Report::Verdict(false)) => verdicts.unhealthy = Some(Unhealthy::Liveness),
        (ProbeKind::Liveness, Report::Verdict(true)) | (_, Report::Unhealthy(_) | Report::Warned(_)) => {}
    }
}

/// The verdicts about an instance that was not known before. One that ran before this kubelet started is as ready as
/// the API says it was.
pub fn first_verdicts(pod: &Pod, instance: &Instance) -> Verdicts {
    let known = pod.known_container(&instance.name);
    let known = known.filter(|known| known.container_id.ends_with(&format!("//{}", instance.id)));
    Verdicts {
        container_id: instance.id.clone(),
        started: known.is_some_and(|known| known.started == Some(true)),
        ready: known.is_some_and(|known| known.ready),
        unhealthy: None,
    }
}
