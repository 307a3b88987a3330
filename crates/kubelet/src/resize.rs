//! Changing what a running pod may use: what was asked for, what the node has granted, and whether it can grant more.
//!
//! A pod runs with its [`Allocation`], which follows its spec as soon as the node has room. No IO.

use std::collections::BTreeMap;

use crate::pod::quantity::Milli;
use crate::pod::resources::{Compute, pod_compute};
use crate::pod::{Container, ContainerKind, Pod, Resources};

/// The resources of a pod as a whole, and of its containers by name.
#[derive(Clone, Debug, Default)]
pub struct Allocation {
    pod: Resources,
    containers: BTreeMap<String, Resources>,
}

/// Why a pod does not get what it asks for, as its condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// `Deferred`, which may change, or `Infeasible`.
    pub reason: &'static str,
    pub message: String,
}

impl Allocation {
    /// What the pod's spec asks for.
    pub fn wanted(pod: &Pod) -> Allocation {
        let containers = pod
            .all_containers()
            .filter(|(kind, _)| *kind != ContainerKind::Ephemeral);
        Allocation {
            pod: pod.spec.resources.clone(),
            containers: containers
                .map(|(_, container)| (container.name.clone(), container.resources.clone()))
                .collect(),
        }
    }

    /// What a kubelet before this one granted, as far as the status tells; else what the spec asks for.
    pub fn known(pod: &Pod) -> Allocation {
        let mut allocation = Allocation::wanted(pod);
        for (name, resources) in &mut allocation.containers {
            let known = pod.known_container(name);
            if let Some(granted) = known.and_then(|known| known.resources.clone()) {
                *resources = granted;
            }
        }
        // The status tells what the pod has as a whole also of what only its containers ask for.
        if let Some(granted) = &pod.status.resources {
            keep_known(&mut allocation.pod.requests, &granted.requests);
            keep_known(&mut allocation.pod.limits, &granted.limits);
        }
        allocation
    }

    /// Puts what is granted in the place of what is asked for.
    pub fn apply(&self, pod: &mut Pod) {
        pod.spec.resources.clone_from(&self.pod);
        for container in pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers) {
            if let Some(granted) = self.containers.get(&container.name) {
                container.resources.clone_from(granted);
            }
        }
    }

    /// Equal amounts are the same, however they are written.
    pub fn is_same(&self, other: &Allocation) -> bool {
        let theirs = &other.containers;
        let same =
            |(name, own): (&String, &Resources)| theirs.get(name).is_some_and(|theirs| same_resources(own, theirs));
        same_resources(&self.pod, &other.pod)
            && self.containers.len() == theirs.len()
            && self.containers.iter().all(same)
    }
}

fn keep_known(wanted: &mut BTreeMap<String, String>, granted: &BTreeMap<String, String>) {
    for (name, amount) in wanted {
        if let Some(granted) = granted.get(name) {
            amount.clone_from(granted);
        }
    }
}

fn same_resources(a: &Resources, b: &Resources) -> bool {
    let same = |a: &BTreeMap<String, String>, b: &BTreeMap<String, String>| {
        let amounts = |list: &BTreeMap<String, String>| -> BTreeMap<String, Option<Milli>> {
            list.iter()
                .map(|(name, text)| (name.clone(), Milli::parse(text)))
                .collect()
        };
        amounts(a) == amounts(b)
    };
    same(&a.requests, &b.requests) && same(&a.limits, &b.limits)
}

/// Whether the node can give a pod what it asks for beside the others.
pub fn judge(wanted: &Pod, others: &[Compute], allocatable: &BTreeMap<String, String>) -> Result<(), Pending> {
    let wanted = pod_compute(wanted);
    let amount = |name: &str| {
        allocatable
            .get(name)
            .and_then(|text| Milli::parse(text))
            .unwrap_or_default()
    };
    let used = |of: fn(&Compute) -> i64| others.iter().map(of).sum::<i64>();
    let rows = [
        (
            "cpu",
            wanted.cpu_request_milli,
            used(|other| other.cpu_request_milli),
            amount("cpu").milli(),
        ),
        (
            "memory",
            wanted.memory_request,
            used(|other| other.memory_request),
            amount("memory").value(),
        ),
    ];
    for (name, requested, _, capacity) in rows {
        if requested > capacity {
            return Err(Pending {
                reason: "Infeasible",
                message: format!(
                    "Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
                ),
            });
        }
    }
    for (name, requested, used, capacity) in rows {
        if requested + used > capacity {
            return Err(Pending {
                reason: "Deferred",
                message: format!(
                    "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
                ),
            });
        }
    }
    Ok(())
}

/// Whether a container has to be started again for a change to take hold.
pub fn needs_restart(container: &Container, applied: Compute, wanted: Compute) -> bool {
    let restarts = |resource: &str| {
        let mut policies = container.resize_policy.iter();
        policies.any(|policy| policy.resource_name == resource && policy.restart_policy == "RestartContainer")
    };
    let cpu = |compute: Compute| (compute.cpu_request_milli, compute.cpu_limit_milli);
    let memory = |compute: Compute| (compute.memory_request, compute.memory_limit);
    (cpu(applied) != cpu(wanted) && restarts("cpu")) || (memory(applied) != memory(wanted) && restarts("memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu: &str) -> Pod {
        let text = format!("spec: {{containers: [{{name: a, resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}}}}}]}}");
        serde_saphyr::from_str(&text).unwrap()
    }

    #[test]
    fn equal_amounts_are_no_change() {
        let wanted = |cpu: &str| Allocation::wanted(&pod(cpu));
        assert!(wanted("1").is_same(&wanted("1000m")));
        assert!(!wanted("1").is_same(&wanted("1001m")));
    }

    #[test]
    fn a_node_grants_what_it_has_left() {
        let allocatable = BTreeMap::from([
            ("cpu".to_owned(), "2".to_owned()),
            ("memory".to_owned(), "4Gi".to_owned()),
        ]);
        let reason = |cpu: &str, others: &[Compute]| judge(&pod(cpu), others, &allocatable).err().map(|why| why.reason);
        let other = Compute {
            cpu_request_milli: 1000,
            ..Compute::default()
        };
        assert_eq!(reason("1", &[other]), None);
        assert_eq!(reason("1500m", &[other]), Some("Deferred"));
        assert_eq!(reason("3", &[]), Some("Infeasible"));
    }

    #[test]
    fn what_was_granted_before_outlives_the_kubelet() {
        let mut pod = pod("2");
        pod.status =
            serde_saphyr::from_str("{containerStatuses: [{name: a, resources: {requests: {cpu: '1', memory: 1Gi}}}]}")
                .unwrap();
        let granted = Allocation::known(&pod);
        assert!(!granted.is_same(&Allocation::wanted(&pod)));
        granted.apply(&mut pod);
        assert_eq!(pod.spec.containers[0].resources.requests["cpu"], "1");
    }

    #[test]
    fn what_a_pod_was_granted_as_a_whole_outlives_the_kubelet_too() {
        let mut pod: Pod = serde_saphyr::from_str(
            r#"
spec: {resources: {requests: {cpu: "2"}}, containers: [{name: a, resources: {requests: {memory: 1Gi}}}]}
status: {resources: {requests: {cpu: "1", memory: 1Gi}}}
"#,
        )
        .unwrap();
        let granted = Allocation::known(&pod);
        assert!(!granted.is_same(&Allocation::wanted(&pod)));
        granted.apply(&mut pod);
        let requests: Vec<(&str, &str)> = pod.spec.resources.requests.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(requests, [("cpu", "1")]);
    }

    #[test]
    fn a_container_says_which_changes_need_a_restart() {
        let container: Container = serde_saphyr::from_str(
            "{name: a, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}, {resourceName: cpu, restartPolicy: NotRequired}]}",
        )
        .unwrap();
        let compute = |cpu, memory| Compute {
            cpu_request_milli: cpu,
            memory_request: memory,
            ..Compute::default()
        };
        assert!(!needs_restart(&container, compute(1, 1), compute(2, 1)));
        assert!(needs_restart(&container, compute(1, 1), compute(2, 2)));
    }
}
