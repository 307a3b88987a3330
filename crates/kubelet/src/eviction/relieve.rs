//! Relieving a node that runs out of something: first by what nobody uses, then by one pod at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rank::{self, Candidate};
use crate::beneath::{self, Dir, Enough};
use crate::options::KubeletOptions;
use crate::pod::Pod;
use crate::pods::Pods;
use crate::pressure::{Measurements, Places, Pressure, Shortage, Signal};
use crate::shared::Shared;
use crate::static_pods::NodePods;
use crate::usage::{self, PodUsage};
use crate::worker::Message;
use crate::{images, limits};

/// What is looked at of one pod to compare it with others; beyond this it counts as much as was seen.
const MOST: Enough = Enough {
    bytes: u64::MAX,
    inodes: 200_000,
};

/// Looks every ten seconds, for as long as it is not dropped.
pub async fn watch(options: KubeletOptions, pods: Arc<Pods>, cache: NodePods) {
    let mut look = tokio::time::interval(limits::EVICTION_CHECK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if let Some(shortage) = most_urgent(&options).await {
            relieve(&options, &pods, &cache, shortage).await;
        }
    }
}

/// What is short and matters most: memory kills processes, a full disk only stops them.
async fn most_urgent(options: &KubeletOptions) -> Option<Shortage> {
    let places = Places::find(&*options.runtime, &options.root_dir).await;
    let shortages = options.eviction_hard.shortages(&Measurements::take(&places));
    shortages.into_iter().min_by_key(|shortage| shortage.signal)
}

async fn relieve(options: &KubeletOptions, pods: &Pods, cache: &NodePods, shortage: Shortage) {
    let shared = pods.shared();
    tracing::warn!(%shortage, "Eviction threshold was met; reclaiming resources");
    if shortage.signal.pressure() == Pressure::Disk {
        images::remove_unused(shared).await;
        match most_urgent(options).await {
            Some(still) if still.signal == shortage.signal => {}
            _ => return,
        }
    }
    let used = match usage::pods(&*shared.runtime).await {
        Ok(used) => used,
        Err(error) => return tracing::warn!(%error, "Failed to read the resource usage of pods; evicting none"),
    };
    let objects = cache.all();
    let active: Vec<&Pod> = objects
        .iter()
        .map(|object| &*object.pod)
        .filter(|pod| !pod.is_terminal() && !pod.is_deleting())
        .collect();
    let written = match shortage.signal.pressure() {
        Pressure::Disk => written(shared, &active).await,
        _ => BTreeMap::new(),
    };
    let candidates: Vec<Candidate<'_>> = active
        .iter()
        .map(|pod| match shortage.signal {
            Signal::PidAvailable => Candidate {
                pod,
                used: shared.cgroups.processes(pod).unwrap_or(0),
                containers: Vec::new(),
            },
            signal => candidate(signal, pod, &used, &written),
        })
        .collect();
    if let Some((uid, message)) = rank::victim(&shortage, &candidates) {
        shared.figures.evicted(shortage.signal.name());
        pods.send(&uid, Message::Evict(message)).await;
    }
}

fn candidate<'a>(
    signal: Signal,
    pod: &'a Pod,
    used: &BTreeMap<String, PodUsage>,
    written: &BTreeMap<String, (u64, u64)>,
) -> Candidate<'a> {
    let uid = &pod.metadata.uid;
    let usage = used.get(uid).cloned().unwrap_or_default();
    let (bytes, inodes) = written.get(uid).copied().unwrap_or_default();
    let of = |container: &usage::ContainerUsage| match signal {
        Signal::MemoryAvailable => container.working_set_bytes,
        Signal::NodefsAvailable | Signal::ImagefsAvailable => container.root_bytes,
        Signal::NodefsInodesFree | Signal::ImagefsInodesFree => container.root_inodes,
        Signal::PidAvailable => None,
    };
    let containers = usage.containers.iter();
    let containers = containers.filter_map(|container| Some((container.name.clone(), of(container)?)));
    Candidate {
        pod,
        used: match signal {
            Signal::MemoryAvailable => usage.memory_bytes(),
            Signal::NodefsAvailable | Signal::ImagefsAvailable => usage.root_bytes() + bytes,
            Signal::NodefsInodesFree | Signal::ImagefsInodesFree => usage.root_inodes() + inodes,
            Signal::PidAvailable => 0,
        },
        containers: containers.collect(),
    }
}

/// What pods have written into their volumes and logs: bytes and inodes, by UID.
async fn written(shared: &Arc<Shared>, pods: &[&Pod]) -> BTreeMap<String, (u64, u64)> {
    let directories: Vec<_> = pods
        .iter()
        .map(|pod| {
            let uid = pod.metadata.uid.clone();
            (shared.paths.volumes(&uid), shared.paths.pod_logs(pod), uid)
        })
        .collect();
    let sums = tokio::task::spawn_blocking(move || {
        let sum = |(volumes, logs, uid): (std::path::PathBuf, std::path::PathBuf, String)| {
            let size = |path: &std::path::Path| {
                let measured = Dir::open(path).and_then(|dir| beneath::measure(dir, MOST));
                measured.unwrap_or_default()
            };
            let (a, b) = (size(&volumes), size(&logs));
            (uid, (a.bytes + b.bytes, a.inodes + b.inodes))
        };
        directories.into_iter().map(sum).collect()
    });
    sums.await.unwrap_or_default()
}
