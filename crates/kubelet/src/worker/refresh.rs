//! What a pod has of ConfigMaps, Secrets and tokens, kept current.

use super::Worker;
use crate::limits;
use crate::moment::Moment;
use crate::plan::{Action, Task};

impl Worker {
    /// A ConfigMap or Secret of the pod changed: what was made from it is brought up to date, and what failed, perhaps
    /// because it was not there yet, does not wait for its time.
    pub(super) fn objects_changed(&mut self) {
        self.progress.objects_changed();
        self.refresh_volumes_soon();
    }

    /// Volumes that are not there yet are not refreshed.
    pub(super) fn refresh_volumes_soon(&mut self) {
        self.volumes.refresh_at = self.volumes.refresh_at.map(|_| Moment::default());
    }

    /// Volumes that follow objects are brought up to date when those change, and now and then.
    pub(super) fn refresh_volumes(&mut self, now: Moment) -> Option<Moment> {
        let at = self.volumes.refresh_at?;
        if now < at || self.progress.is_busy(&Task::Volumes) || self.view().is_ending() {
            return Some(at).filter(|at| now < *at);
        }
        self.volumes.refresh_at = None;
        self.act(Action::MountVolumes, now);
        None
    }

    pub(super) fn next_refresh(&self, now: Moment) -> Moment {
        let routine = now.plus(limits::VOLUME_REFRESH);
        self.volumes.tokens.refresh_at().map_or(routine, |at| at.min(routine))
    }
}
