//! How full the volumes of this node's pods are, for those who ask the kubelet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{MountedVolume, VolumeStats, type_of};
use crate::moment::Moment;
use crate::pod::Pod;

/// How long a pod's figures stand: they take a walk through its files.
const KEPT: std::time::Duration = std::time::Duration::from_secs(60);

/// The volumes that are set up, by their pod's UID, and what was last found in them.
#[derive(Default)]
pub struct VolumeFigures {
    pods: Mutex<BTreeMap<String, Entry>>,
    /// What drivers say of the volumes that they mounted, by where; nothing until they have said it.
    told: Mutex<BTreeMap<PathBuf, Option<VolumeStats>>>,
}

struct Entry {
    pod: Arc<Pod>,
    mounted: BTreeMap<String, MountedVolume>,
    measured: Option<(Moment, Vec<VolumeFigure>)>,
}

/// One volume's figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFigure {
    pub volume: String,
    /// The claim that led to it.
    pub claim: Option<String>,
    pub at: Moment,
    pub stats: VolumeStats,
}

impl VolumeFigures {
    /// A pod's volumes are set up, or were brought up to date.
    pub fn put(&self, pod: &Arc<Pod>, mounted: BTreeMap<String, MountedVolume>) {
        let mut entries = self.pods.lock();
        let known = entries.get_mut(&pod.metadata.uid);
        if let Some(known) = known.filter(|known| known.mounted == mounted) {
            return known.pod = pod.clone();
        }
        let entry = Entry {
            pod: pod.clone(),
            mounted,
            measured: None,
        };
        entries.insert(pod.metadata.uid.clone(), entry);
    }

    pub fn remove(&self, uid: &str) {
        self.pods.lock().remove(uid);
    }

    /// A volume's figures are its driver's to say.
    pub fn ask_driver_about(&self, path: &Path) {
        self.told.lock().entry(path.to_owned()).or_default();
    }

    pub fn forget_driver_of(&self, path: &Path) {
        self.told.lock().remove(path);
    }

    /// A driver says how full a volume is.
    pub fn tell(&self, path: &Path, stats: VolumeStats) {
        match self.told.lock().get_mut(path) {
            Some(told) => *told = Some(stats),
            None => return,
        }
        let is_there = |mounted: &MountedVolume| mounted.path().is_some_and(|there| there == path);
        for entry in self.pods.lock().values_mut() {
            if entry.mounted.values().any(is_there) {
                entry.measured = None;
            }
        }
    }

    /// The figures of all pods, with their pods. Blocks while volumes are measured whose figures are too old.
    pub fn all(&self, now: Moment) -> Vec<(Arc<Pod>, Vec<VolumeFigure>)> {
        let is_fresh = |entry: &Entry| entry.measured.as_ref().is_some_and(|(at, _)| now.since(*at) < KEPT);
        let stale: Vec<_> = {
            let entries = self.pods.lock();
            let stale = entries.values().filter(|entry| !is_fresh(entry));
            stale.map(|entry| (entry.pod.clone(), entry.mounted.clone())).collect()
        };
        // Nobody who mounts waits for a walk through files.
        for (pod, mounted) in stale {
            let told = self.told.lock().clone();
            let figures = measure(&pod, &mounted, &told, now);
            if let Some(entry) = self.pods.lock().get_mut(&pod.metadata.uid) {
                entry.measured = Some((now, figures));
            }
        }
        let entries = self.pods.lock();
        let measured = entries
            .values()
            .filter_map(|entry| Some((entry.pod.clone(), entry.measured.as_ref()?.1.clone())));
        measured.collect()
    }
}

fn measure(
    pod: &Pod,
    mounted: &BTreeMap<String, MountedVolume>,
    told: &BTreeMap<PathBuf, Option<VolumeStats>>,
    now: Moment,
) -> Vec<VolumeFigure> {
    let volumes = pod.spec.volumes.iter();
    let figures = volumes.filter_map(|volume| {
        let mounted = mounted.get(&volume.name)?;
        let stats = match mounted.path().and_then(|path| told.get(path)) {
            Some(told) => (*told)?,
            None => type_of(volume)?.stats(mounted)?,
        };
        Some(VolumeFigure {
            volume: volume.name.clone(),
            claim: mounted.claim.clone(),
            at: now,
            stats,
        })
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_kept_for_a_while_and_go_with_their_pod() {
        let dir = tempfile::tempdir().unwrap();
        let pod: Arc<Pod> = Arc::new(
            serde_saphyr::from_str(
                "metadata: {uid: u1}\nspec: {volumes: [{name: a, emptyDir: {}}, {name: b, image: {}}]}",
            )
            .unwrap(),
        );
        let mounted = MountedVolume::writable(dir.path().to_owned());
        let mounted = BTreeMap::from([("a".to_owned(), mounted.clone()), ("b".to_owned(), mounted)]);
        let figures = VolumeFigures::default();
        let used = |now: i64| {
            let all = figures.all(Moment(now));
            let stats = all.iter().flat_map(|(_, figures)| figures).map(|figure| figure.stats);
            stats.map(|stats| stats.inodes_used).collect::<Vec<_>>()
        };
        figures.put(&pod, mounted.clone());
        assert_eq!(used(0), [1]);
        std::fs::write(dir.path().join("f"), "x").unwrap();
        assert_eq!(used(30_000), [1]);
        figures.put(&pod, mounted);
        assert_eq!(used(30_000), [1], "nothing was set up anew");
        assert_eq!(used(61_000), [2]);
        figures.remove("u1");
        assert_eq!(used(61_000), [0; 0]);
    }
}
