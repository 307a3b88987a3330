//! Replacing pods of old templates: step by step, or all at once.

use super::Planner;

impl Planner<'_> {
    /// RollingUpdate: up with the new within the surge, then down with the old within what may be missing. Only one of
    /// both per plan: the next plan sees how it went.
    pub fn roll(&mut self) {
        if !self.ensure_current() || self.grow_current() || self.shrink_old() {
            return;
        }
        if self.is_complete_by_sets() {
            self.clean_up();
        }
    }

    /// Recreate: down with the old, wait for the last of their pods, then up with the new.
    pub fn recreate(&mut self) {
        self.adopt_revision();
        let deployment = self.deployment;
        let mut shrunk = false;
        for set in self.sets.old_mut().filter(|set| set.is_active()) {
            set.scale(0, deployment);
            shrunk = true;
        }
        if shrunk || self.old_pods_remain() || !self.ensure_current() {
            return;
        }
        let wanted = deployment.replicas();
        if let Some(current) = self.sets.current_mut()
            && current.replicas != wanted
        {
            current.scale(wanted, deployment);
            return;
        }
        if self.is_complete_by_sets() {
            self.clean_up();
        }
    }

    /// Whether the current set alone already is what the Deployment asks for.
    fn is_complete_by_sets(&self) -> bool {
        let wanted = self.deployment.replicas();
        let replicas: i64 = self.sets.all().iter().map(|set| set.status.replicas).sum();
        let updated = self.sets.current().map_or(0, |set| set.status.replicas);
        updated == wanted && replicas == wanted && self.sets.available() == wanted
    }

    fn old_pods_remain(&self) -> bool {
        self.sets.old().any(|set| {
            let uid = set.source().map_or("", |source| source.metadata.uid.as_str());
            set.status.replicas > 0 || self.view.unfinished.get(uid).is_some_and(|pods| *pods > 0)
        })
    }

    fn grow_current(&mut self) -> bool {
        let (deployment, wanted) = (self.deployment, self.deployment.replicas());
        let total = self.sets.total();
        let Some(current) = self.sets.current_mut() else {
            return false;
        };
        if current.replicas == wanted {
            return false;
        }
        let room = wanted + deployment.max_surge() - total;
        let next = if current.replicas > wanted {
            wanted
        } else {
            current.replicas + room.min(wanted - current.replicas).max(0)
        };
        let changes = next != current.replicas;
        current.scale(next, deployment);
        changes
    }

    fn shrink_old(&mut self) -> bool {
        let deployment = self.deployment;
        if self.sets.old().all(|set| !set.is_active()) {
            return false;
        }
        let least = deployment.replicas() - deployment.max_unavailable();
        let missing = self.sets.current().map_or(0, |set| set.replicas - set.status.available);
        let most = self.sets.total() - least - missing;
        if most <= 0 {
            return false;
        }
        let unhealthy = self.shrink_unhealthy(most);
        let healthy = self.shrink_healthy(least);
        unhealthy || healthy
    }

    /// Old pods that do not work are no loss; they go first, or a broken rollout would never end.
    fn shrink_unhealthy(&mut self, most: i64) -> bool {
        let deployment = self.deployment;
        let mut left = most;
        for set in self.sets.old_mut().filter(|set| set.is_active()) {
            let unhealthy = set.replicas - set.status.available;
            let gone = unhealthy.min(left);
            if gone > 0 {
                set.scale(set.replicas - gone, deployment);
                left -= gone;
            }
        }
        left < most
    }

    fn shrink_healthy(&mut self, least: i64) -> bool {
        let deployment = self.deployment;
        let most = self.sets.available() - least;
        let mut left = most;
        for set in self.sets.old_mut().filter(|set| set.is_active()) {
            let gone = set.replicas.min(left);
            if gone > 0 {
                set.scale(set.replicas - gone, deployment);
                left -= gone;
            }
        }
        left < most
    }
}
