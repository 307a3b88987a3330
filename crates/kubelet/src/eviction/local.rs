//! What pods write to the node's disk, and their own limits of it: pods that exceed them are evicted, whatever the node has
//! left.
//!
//! The decision is pure ([`LocalUsage::excess`]); around it, one loop measures the pods that have limits. Finding out takes a
//! walk through their files, so it rests for several times as long as it took.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::beneath::{self, Dir, Enough};
use crate::limits;
use crate::pod::quantity::Milli;
use crate::pod::{Container, ContainerKind, EmptyDir, Pod};
use crate::pods::Pods;
use crate::shared::Shared;
use crate::static_pods::NodePods;
use crate::usage;
use crate::volumes;
use crate::worker::Message;

const STORAGE: &str = "ephemeral-storage";
/// Of the time that measuring took, so many times as long it rests.
const REST: u32 = 10;
/// Entries that are looked at in one volume; more are not there by accident, and count as more than any limit.
const MAX_INODES: u64 = 2_000_000;

/// What a pod has written.
#[derive(Debug, Default)]
struct LocalUsage {
    /// By the volume's name.
    empty_dirs: BTreeMap<String, u64>,
    /// By the container's name: what it wrote into its own layer, and its logs.
    containers: BTreeMap<String, u64>,
    /// Of the pod as a whole: its hosts file and its containers' messages.
    other: u64,
}

/// Looks for as long as it is not dropped.
pub async fn watch(pods: Arc<Pods>, cache: NodePods) {
    loop {
        let begun = Instant::now();
        for object in cache.all() {
            let pod = &object.pod;
            if pod.is_terminal() || pod.is_deleting() || pod.is_critical() || !is_limited(pod) {
                continue;
            }
            let used = measure(pods.shared(), pod).await;
            if let Some(message) = used.excess(pod) {
                pods.send(&pod.metadata.uid, Message::Evict(message)).await;
            }
        }
        let rest = (begun.elapsed() * REST).max(limits::LOCAL_STORAGE_CHECK);
        tokio::time::sleep(rest.min(Duration::from_secs(300))).await;
    }
}

fn is_limited(pod: &Pod) -> bool {
    pod.spec
        .volumes
        .iter()
        .any(|volume| volume.empty_dir.as_ref().and_then(size_limit).is_some())
        || pod
            .all_containers()
            .any(|(_, container)| storage_limit(container).is_some())
}

/// The limit of an emptyDir on the disk. One in memory cannot be exceeded.
fn size_limit(source: &EmptyDir) -> Option<(&str, u64)> {
    let text = source.size_limit.as_deref().filter(|_| source.medium.is_empty())?;
    Some((text, positive(text)?))
}

fn storage_limit(container: &Container) -> Option<(&str, u64)> {
    let text = container.resources.limits.get(STORAGE)?;
    Some((text, positive(text)?))
}

fn positive(text: &str) -> Option<u64> {
    let value = Milli::parse(text)?.value();
    u64::try_from(value).ok().filter(|value| *value > 0)
}

/// What all containers together may write, if any of them is limited: as much as they may at a time.
fn pod_limit(pod: &Pod) -> Option<u64> {
    let limit = |container: &Container| storage_limit(container).map_or(0, |(_, limit)| limit);
    let (mut sidecars, mut initialising) = (0_u64, 0_u64);
    for container in &pod.spec.init_containers {
        match container.init_kind() {
            ContainerKind::Sidecar => {
                sidecars += limit(container);
                initialising = initialising.max(sidecars);
            }
            _ => initialising = initialising.max(sidecars + limit(container)),
        }
    }
    let running = pod.spec.containers.iter().map(limit).sum::<u64>() + sidecars;
    Some(running.max(initialising)).filter(|limit| *limit > 0)
}

impl LocalUsage {
    /// Which limit is exceeded, in upstream's words and order.
    fn excess(&self, pod: &Pod) -> Option<String> {
        for volume in &pod.spec.volumes {
            let Some((text, limit)) = volume.empty_dir.as_ref().and_then(size_limit) else {
                continue;
            };
            if self.empty_dirs.get(&volume.name).is_some_and(|used| *used > limit) {
                let name = &volume.name;
                return Some(format!(
                    "Usage of EmptyDir volume {name:?} exceeds the limit {text:?}. "
                ));
            }
        }
        let total = self.empty_dirs.values().chain(self.containers.values()).sum::<u64>() + self.other;
        if let Some(limit) = pod_limit(pod).filter(|limit| total > *limit) {
            let limit = quantity(limit);
            return Some(format!(
                "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
            ));
        }
        pod.spec.containers.iter().find_map(|container| {
            let (text, limit) = storage_limit(container)?;
            let name = &container.name;
            let used = *self.containers.get(name)?;
            (used > limit).then(|| format!("Container {name} exceeded its local ephemeral storage limit {text:?}. "))
        })
    }
}

/// Bytes as quantities are written: with the largest binary unit that leaves no rest.
fn quantity(bytes: u64) -> String {
    let units = [(60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let unit = units
        .into_iter()
        .find(|(bits, _)| bytes > 0 && bytes.trailing_zeros() >= *bits);
    match unit {
        Some((bits, unit)) => format!("{}{unit}", bytes >> bits),
        None => bytes.to_string(),
    }
}

/// Only as much is looked at as the limits that there are need.
async fn measure(shared: &Arc<Shared>, pod: &Arc<Pod>) -> LocalUsage {
    let in_all = pod_limit(pod);
    let layers = match in_all {
        Some(_) => usage::pod(&*shared.runtime, &pod.metadata.uid).await.ok().flatten(),
        None => None,
    };
    let (paths, pod) = (shared.paths.clone(), pod.clone());
    let measured = tokio::task::spawn_blocking(move || {
        let mut used = LocalUsage::default();
        for volume in &pod.spec.volumes {
            let Some(source) = volume.empty_dir.as_ref().filter(|source| source.medium.is_empty()) else {
                continue;
            };
            let limit = size_limit(source).map(|(_, limit)| limit);
            let Some(enough) = limit.max(in_all) else { continue };
            let path = volumes::empty_dir_path(&paths, &pod, volume);
            used.empty_dirs.insert(volume.name.clone(), size_of(path, enough));
        }
        let Some(enough) = in_all else { return used };
        for (_, container) in pod.all_containers() {
            let logs = paths.pod_logs(&pod).join(&container.name);
            used.containers.insert(container.name.clone(), size_of(logs, enough));
        }
        let own = paths.pod(&pod.metadata.uid);
        used.other = size_of(own.join("containers"), enough);
        used.other += std::fs::symlink_metadata(paths.hosts_file(&pod.metadata.uid)).map_or(0, |file| file.len());
        used
    });
    let mut used = measured.await.unwrap_or_default();
    for container in layers.into_iter().flat_map(|pod| pod.containers) {
        let written = container.root_bytes.unwrap_or(0);
        *used.containers.entry(container.name).or_default() += written;
    }
    used
}

fn size_of(path: PathBuf, enough: u64) -> u64 {
    let enough = Enough {
        bytes: enough,
        inodes: MAX_INODES,
    };
    match Dir::open(&path).and_then(|dir| beneath::measure(dir, enough)) {
        Ok(size) if size.inodes > MAX_INODES => u64::MAX / 4,
        Ok(size) => size.bytes,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn check(spec: &str, empty_dirs: &[(&str, u64)], containers: &[(&str, u64)], expected: Expect) {
        let pod: Pod = serde_saphyr::from_str(&format!("spec: {spec}")).unwrap();
        let map = |pairs: &[(&str, u64)]| {
            pairs
                .iter()
                .map(|(name, used)| ((*name).to_owned(), used * MIB))
                .collect()
        };
        let used = LocalUsage {
            empty_dirs: map(empty_dirs),
            containers: map(containers),
            other: 0,
        };
        let told = used.excess(&pod).unwrap_or_default();
        assert!(told.is_empty() || is_limited(&pod));
        expected.assert_eq(&told);
    }

    #[test]
    fn a_volume_has_a_limit_of_its_own() {
        let spec =
            "{volumes: [{name: a, emptyDir: {}}, {name: v, emptyDir: {sizeLimit: 10Mi}}], containers: [{name: c}]}";
        check(spec, &[("a", 500), ("v", 10)], &[], expect![""]);
        check(
            spec,
            &[("v", 11)],
            &[],
            expect![[r#"Usage of EmptyDir volume "v" exceeds the limit "10Mi". "#]],
        );
        check(
            "{volumes: [{name: v, emptyDir: {sizeLimit: 0}}]}",
            &[("v", 11)],
            &[],
            expect![""],
        );
    }

    #[test]
    fn a_container_and_all_of_them_have_limits() {
        let spec = "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, resources: {limits: {ephemeral-storage: \
                    20Mi}}}, {name: b, resources: {limits: {ephemeral-storage: 44Mi}}}, {name: c}]}";
        check(spec, &[("v", 30)], &[("a", 20), ("b", 14)], expect![""]);
        check(
            spec,
            &[("v", 1)],
            &[("a", 21), ("b", 1)],
            expect![[r#"Container a exceeded its local ephemeral storage limit "20Mi". "#]],
        );
        check(
            spec,
            &[("v", 65)],
            &[],
            expect!["Pod ephemeral local storage usage exceeds the total limit of containers 64Mi. "],
        );
        check(
            spec,
            &[],
            &[("c", 65)],
            expect!["Pod ephemeral local storage usage exceeds the total limit of containers 64Mi. "],
        );
    }

    #[test]
    fn init_containers_may_write_as_much_as_the_largest_of_them() {
        let limit = |spec: &str| pod_limit(&serde_saphyr::from_str::<Pod>(&format!("spec: {spec}")).unwrap());
        let container = |name: &str, limit: u64, more: &str| {
            format!("{{name: {name}, {more}resources: {{limits: {{ephemeral-storage: {limit}}}}}}}")
        };
        let spec = format!(
            "{{initContainers: [{}, {}, {}], containers: [{}]}}",
            container("i", 5, ""),
            container("s", 2, "restartPolicy: Always, "),
            container("j", 9, ""),
            container("a", 4, "")
        );
        assert_eq!(limit(&spec), Some(11));
        assert_eq!(limit("{containers: [{name: a}]}"), None);
    }

    #[test]
    fn quantities_are_short() {
        assert_eq!(
            [0, 1000, 1024, 3 << 20, 5 << 30].map(quantity),
            ["0", "1000", "1Ki", "3Mi", "5Gi"]
        );
    }
}
