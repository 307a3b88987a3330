//! One attempt to place a pod: decide, make room if need be, reserve, ask for permission.

use std::time::Duration;

use tokio::time::Instant;

use super::{Active, Core, Decision, Nomination, Placed, profile_of};
use crate::decide;
use crate::failure::Failure;
use crate::framework::{Attempt, Change, Permit, PostFilter, Preemption, Rejection};
use crate::plugins;
use crate::queued_pod::QueuedPod;
use crate::waiting::Settled;

/// What the PostFilter plugins came to.
#[derive(Default)]
struct WayOut {
    messages: Vec<String>,
    gives_up: bool,
    preemption: Option<Preemption>,
}

impl Core {
    /// Decides for the next pod, and counts it on its node at once: the binding is written later.
    pub fn next(&mut self, now: Instant) -> Option<Decision> {
        loop {
            if let Some(settled) = self.waiting.next(now) {
                return Some(self.settled(settled, now));
            }
            let queued = self.queue.pop(now)?;
            if let Some(decision) = self.attempt(queued, now) {
                return Some(decision);
            }
        }
    }

    /// Nothing is decided for a pod that is told to wait for permission.
    fn attempt(&mut self, queued: QueuedPod, now: Instant) -> Option<Decision> {
        let pod = queued.pod.clone();
        let profile = profile_of(&self.profiles, &pod)?;
        let Active { profile, classes } = &mut self.profiles[profile];
        let decided = decide::decide(profile.rows, &pod, &mut self.nodes, classes, &mut self.dice);
        let node = match decided {
            Ok(id) => self.nodes.name[id].to_string(),
            Err(failure) => return Some(self.no_node(queued, failure, now)),
        };
        match self.reserve(&queued, &node) {
            Ok(waits) => {
                self.assume(&queued, &node, now);
                if !waits.is_empty() {
                    self.waiting.add(queued, &node, &waits, now);
                    return None;
                }
                Some(self.decided(queued, node))
            }
            Err(rejection) => Some(self.turned_down(queued, &rejection, now)),
        }
    }

    fn decided(&self, queued: QueuedPod, node: String) -> Decision {
        let volumes = self.nodes.volumes.promised_to(queued.pod.uid());
        let rows = self.rows(&queued.pod);
        Decision {
            volumes,
            rows,
            ..Decision::new(queued, Ok(node))
        }
    }

    fn assume(&mut self, queued: &QueuedPod, node: &str, now: Instant) {
        let pod = &queued.pod;
        self.nodes.nominations.remove(pod.uid());
        self.nodes.add_pod(node, pod.clone());
        let placed = Placed {
            node: node.to_owned(),
            assumed: Some(pod.clone()),
        };
        self.placed.insert(pod.uid().to_owned(), placed);
        self.unblock(Change::Company, now);
    }

    /// Asks for reservations and permission; returns the plugins that want the pod to wait, and how long.
    fn reserve(&mut self, queued: &QueuedPod, node: &str) -> Result<Vec<(&'static str, Duration)>, Rejection> {
        let pod = &queued.pod;
        let (rows, nodes) = (self.rows(pod), &mut self.nodes);
        let reserved = rows.iter().try_for_each(|row| row.plugin.reserve(pod, nodes, node));
        let mut waits = Vec::new();
        let permitted = reserved.and_then(|()| {
            rows.iter().try_for_each(|row| {
                match row.plugin.permit(pod, node, &mut self.waiting) {
                    Permit::Allow => {}
                    Permit::Wait(wait) => waits.push((row.plugin.name(), wait)),
                    Permit::Reject(rejection) => return Err(rejection),
                }
                Ok(())
            })
        });
        if let Err(rejection) = permitted {
            let undo = rows.iter().rev();
            undo.for_each(|row| row.plugin.unreserve(pod, &mut self.nodes, node));
            return Err(rejection);
        }
        Ok(waits)
    }

    /// A pod's wait for permission has ended.
    fn settled(&mut self, settled: Settled, now: Instant) -> Decision {
        let queued = settled.queued;
        match settled.outcome {
            Ok(()) => self.decided(queued, settled.node),
            Err(rejection) => {
                let pod = self.release(queued.pod.uid(), now).unwrap_or(queued.pod);
                self.turned_down(QueuedPod { pod, ..queued }, &rejection, now)
            }
        }
    }

    /// A plugin did not want the pod on the chosen node after all.
    fn turned_down(&mut self, mut queued: QueuedPod, rejection: &Rejection, now: Instant) -> Decision {
        let failure = Failure::late(&self.nodes, rejection);
        queued.rejected_by = failure.plugins.clone();
        self.queue.unschedulable(queued.clone(), now);
        Decision::new(queued, Err(Box::new(failure)))
    }

    fn no_node(&mut self, mut queued: QueuedPod, mut failure: Box<Failure>, now: Instant) -> Decision {
        let way_out = self.way_out(&queued, &failure);
        queued.rejected_by = failure.plugins.clone();
        self.queue.unschedulable(queued.clone(), now);
        if let Some(preemption) = way_out.preemption {
            return self.nominate(Decision::new(queued, Err(failure)), preemption, now);
        }
        failure.post_filter = way_out.messages;
        let mut decision = Decision::new(queued, Err(failure));
        let pod = &decision.queued.pod;
        let nominated = self.nodes.nominations.node_of(pod.uid()).is_some() || !pod.nominated_node.is_empty();
        if way_out.gives_up && nominated {
            self.nodes.nominations.remove(pod.uid());
            decision.nomination = Nomination::Clear;
        }
        decision
    }

    /// Asks the plugins in order until one makes room.
    fn way_out(&mut self, queued: &QueuedPod, failure: &Failure) -> WayOut {
        let mut way_out = WayOut::default();
        if self.nodes.is_empty() {
            return way_out;
        }
        let rows = self.rows(&queued.pod);
        let mut attempt = Attempt {
            rows,
            nodes: &mut self.nodes,
            budgets: &self.budgets,
            failure,
            dice: &mut self.dice,
        };
        for row in rows.iter().filter(|row| row.rescues) {
            match row.plugin.post_filter(&queued.pod, &mut attempt) {
                PostFilter::Skip => {}
                PostFilter::Unschedulable { message, gives_up } => {
                    way_out.messages.push(message);
                    way_out.gives_up |= gives_up;
                }
                PostFilter::Nominate(preemption) => {
                    way_out.preemption = Some(preemption);
                    break;
                }
            }
        }
        way_out
    }

    /// Keeps the room that the victims leave for the pod.
    fn nominate(&mut self, decision: Decision, mut preemption: Preemption, now: Instant) -> Decision {
        let pod = decision.queued.pod.clone();
        // One that has not been bound yet need not be deleted.
        preemption.victims.retain(|victim| {
            let rejection = Rejection::new(plugins::PREEMPTION, "preempted");
            !self.waiting.reject(victim.uid(), rejection)
        });
        let nominations = &mut self.nodes.nominations;
        let displaced = nominations.after(&pod, &preemption.node);
        displaced.iter().for_each(|other| nominations.remove(other.uid()));
        let victims = preemption.victims.iter().map(|victim| victim.uid().to_owned());
        nominations.set(pod.clone(), &preemption.node, victims.collect());
        let is_displaced = |queued: &QueuedPod| displaced.iter().any(|other| other.uid() == queued.pod.uid());
        self.queue.unblock(is_displaced, now);
        Decision {
            nomination: Nomination::Set(preemption.node.clone()),
            preemption: Some(preemption),
            displaced,
            ..decision
        }
    }
}

impl Decision {
    fn new(queued: QueuedPod, result: Result<String, Box<Failure>>) -> Decision {
        Decision {
            queued,
            result,
            nomination: Nomination::Keep,
            preemption: None,
            displaced: Vec::new(),
            volumes: Vec::new(),
            rows: &[],
        }
    }
}
