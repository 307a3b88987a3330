//! Whether containers that have ended are started again: by the rules of the container, then by its policy, then by the
//! pod's; and a rule that starts all containers of the pod again.

use super::{Image, PodView, Task};
use crate::moment::Moment;
use crate::observed::{Instance, State};
use crate::pod::{Container, ContainerKind, RestartAction, RestartPolicy};

/// All containers are started again, because one ended in a way that a rule of it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The instance that ended.
    pub source: String,
    /// What was made before this has to end and is started again.
    pub at: Moment,
    /// All of it has ended, and containers start.
    pub settled: bool,
}

impl<'a> PodView<'a> {
    /// Whether a container that ended with this code is started again.
    pub fn restarts(self, kind: ContainerKind, container: &Container, exit_code: i32) -> bool {
        if self.is_replaced(&container.name) {
            return true;
        }
        if kind != ContainerKind::Ephemeral && container.restart_rule(exit_code).is_some() {
            return true;
        }
        match self.pod.restart_policy_of(kind, container) {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Never => false,
        }
    }

    /// Whether the newest instance was ended for another one to take its place: whatever its policy says about ends of its
    /// own, it is started again, and at once.
    pub fn is_replaced(self, name: &str) -> bool {
        let replaced = self.progress.container(name).and_then(|own| own.replaced.as_ref());
        let latest = self.observed.latest(name);
        replaced.is_some_and(|id| latest.is_some_and(|latest| latest.id == *id))
    }

    /// The newest instance in the current sandbox, unless all containers are started again since.
    pub fn current(self, name: &str) -> Option<&'a Instance> {
        self.observed.current(name).filter(|instance| !self.is_stale(instance))
    }

    /// The newest instance in whichever sandbox, unless all containers are started again since.
    pub fn latest(self, name: &str) -> Option<&'a Instance> {
        self.observed.latest(name).filter(|instance| !self.is_stale(instance))
    }

    /// It belongs to the time before all containers were to be started again.
    pub fn is_stale(self, instance: &Instance) -> bool {
        let Some(reset) = &self.progress.reset else {
            return false;
        };
        let before = instance.id == reset.source || instance.created_at < reset.at;
        before && !self.is_ephemeral(instance)
    }

    /// Instances that have to end before all containers start again.
    pub fn stale(self) -> impl Iterator<Item = &'a Instance> {
        let alive = self.observed.containers.iter().filter(|instance| instance.is_alive());
        alive.filter(move |instance| self.is_stale(instance))
    }

    /// Whether the container that has all of them started again has not been started again itself.
    pub fn is_restarting_all(self) -> bool {
        let Some(reset) = &self.progress.reset else {
            return false;
        };
        let source = self.observed.instance(&reset.source);
        !reset.settled || source.is_some_and(|source| self.latest(&source.name).is_none())
    }

    /// What holds of a reset now. Until everything has ended, whatever there is counts as made before it: containers that
    /// were on their way when another one ended, too.
    pub fn reset(self, now: Moment) -> Option<Reset> {
        let (source, ended) = self.reset_source()?;
        let known = self.progress.reset.as_ref().filter(|known| known.source == source.id);
        if let Some(known) = known.filter(|known| known.settled) {
            return Some(known.clone());
        }
        let is_app = matches!(self.pod.container(&source.name), Some((ContainerKind::App, _)));
        if known.is_none() && is_app && !self.have_all_begun() {
            return self.progress.reset.clone();
        }
        // A kubelet before this one has carried it out.
        let is_replaced = self
            .observed
            .latest(&source.name)
            .is_some_and(|latest| latest.id != source.id);
        let alive = |instance: &Instance| instance.is_alive() && !self.is_ephemeral(instance);
        let ending = self.observed.containers.iter().any(alive)
            || self.progress.busy.keys().any(|task| matches!(task, Task::Start(_)));
        Some(match known.is_none() && is_replaced {
            true => Reset {
                source: source.id.clone(),
                at: ended,
                settled: true,
            },
            false => Reset {
                source: source.id.clone(),
                at: now,
                settled: !ending,
            },
        })
    }

    /// Whether all containers have been started, or could not be. One that ends at once must not keep those after it from
    /// their first start: all of them are started again then.
    fn have_all_begun(self) -> bool {
        self.pod.spec.containers.iter().all(|container| {
            let progress = self.progress.container(&container.name);
            let failed = progress.is_some_and(|own| own.failure.is_some() || matches!(own.image, Image::Failed(_)));
            failed || self.progress.is_starting(&container.name) || self.observed.latest(&container.name).is_some()
        })
    }

    /// The last instance whose end has all containers started again, and when that was.
    fn reset_source(self) -> Option<(&'a Instance, Moment)> {
        if !self.pod.restarts_all() {
            return None;
        }
        let sources = self.observed.containers.iter().filter_map(|instance| {
            let State::Exited(exit) = &instance.state else {
                return None;
            };
            let (_, container) = self.pod.container(&instance.name)?;
            let all = container.restart_rule(exit.code) == Some(RestartAction::RestartAllContainers);
            let ended = exit.finished_at.unwrap_or(instance.created_at);
            (all && !self.is_ephemeral(instance)).then_some((instance, ended))
        });
        sources.max_by_key(|(_, ended)| *ended)
    }

    fn is_ephemeral(self, instance: &Instance) -> bool {
        matches!(self.pod.container(&instance.name), Some((ContainerKind::Ephemeral, _)))
    }
}
