//! Scaling while a rollout is under way or paused: every ReplicaSet grows or shrinks in proportion.

use std::cmp::Reverse;

use api::Fields;

use super::Planner;
use super::sets::{Set, Sets};

impl Planner<'_> {
    /// Whether the Deployment's size changed since its sets were last scaled.
    pub fn is_scaling(&self) -> bool {
        let wanted = self.deployment.replicas();
        let mut active = self.sets.all().iter().filter(|set| set.is_active());
        active.any(|set| set.desired_replicas().is_some_and(|desired| desired != wanted))
    }

    pub fn scale(&mut self) {
        let (deployment, wanted) = (self.deployment, self.deployment.replicas());
        if let Some(only) = only_or_latest(&mut self.sets) {
            if only.replicas != wanted {
                only.scale(wanted, deployment);
            }
            return;
        }
        if self.is_saturated() {
            for set in self.sets.old_mut().filter(|set| set.is_active()) {
                set.scale(0, deployment);
            }
        } else if deployment.is_rolling_update() {
            self.scale_in_proportion();
        }
    }

    /// The current set has all the replicas it should, and they are available.
    fn is_saturated(&self) -> bool {
        let wanted = self.deployment.replicas();
        self.sets.current().is_some_and(|current| {
            current.replicas == wanted
                && current.desired_replicas() == Some(wanted)
                && current.status.available == wanted
        })
    }

    fn scale_in_proportion(&mut self) {
        let deployment = self.deployment;
        let wanted = deployment.replicas();
        let allowed = if wanted > 0 { wanted + deployment.max_surge() } else { 0 };
        let to_add = allowed - self.sets.total();
        let before = deployment.status.number("replicas");
        let mut active: Vec<&mut Set> = self.sets.all_mut().filter(|set| set.is_active()).collect();
        // The largest take what rounding leaves over: the newest of them when growing, the oldest when shrinking.
        active.sort_by_key(|set| (Reverse(set.replicas), set.created));
        if to_add > 0 {
            active.sort_by_key(|set| (Reverse(set.replicas), Reverse(set.created)));
        }
        let mut added = 0;
        let mut sizes: Vec<i64> = Vec::new();
        for set in &active {
            let share = if to_add == 0 {
                0
            } else {
                share(set, wanted, allowed, before)
            };
            let left = to_add - added;
            let share = if to_add > 0 {
                share.clamp(0, left)
            } else {
                share.clamp(left, 0)
            };
            added += share;
            sizes.push(set.replicas + share);
        }
        if let Some(first) = sizes.first_mut() {
            *first = (*first + to_add - added).max(0);
        }
        for (set, size) in active.into_iter().zip(sizes) {
            set.scale(size, deployment);
        }
    }
}

/// The one active set, or without any the current or else the newest; `None` when several are active.
fn only_or_latest(sets: &mut Sets) -> Option<&mut Set> {
    let active = sets.all().iter().filter(|set| set.is_active()).count();
    match active {
        0 if sets.current().is_some() => sets.current_mut(),
        0 => sets.all_mut().last(),
        1 => sets.all_mut().find(|set| set.is_active()),
        _ => None,
    }
}

/// How much a set changes when the Deployment's bound changes from what it was when the set was last scaled.
fn share(set: &Set, wanted: i64, allowed: i64, deployment_replicas: i64) -> i64 {
    if wanted == 0 {
        return -set.replicas;
    }
    let before = set.max_replicas().filter(|max| *max > 0).unwrap_or(deployment_replicas);
    if before == 0 {
        return 0;
    }
    let size = (set.replicas * allowed) as f64 / before as f64;
    size.round() as i64 - set.replicas
}
