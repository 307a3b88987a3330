//! Amounts of resources: what pods ask for and what nodes have.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::quantity::{milli, units};

/// What a container without requests is assumed to use when nodes are compared; for the fit it counts as nothing.
const ASSUMED_MILLI_CPU: i64 = 100;
const ASSUMED_MEMORY: i64 = 200 << 20;

/// Quantities by resource name, as objects hold them.
pub type ResourceList = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Extended resources, huge pages and the like.
    pub others: BTreeMap<String, i64>,
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requests {
    pub exact: Resources,
    /// CPU and memory with the assumption for containers that name none.
    pub assumed_milli_cpu: i64,
    pub assumed_memory: i64,
}

#[derive(Clone, Debug, Default)]
pub struct ContainerResources {
    pub requests: ResourceList,
    /// An init container that keeps running beside the others.
    pub is_sidecar: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceRequests {
    pub requests: ResourceList,
}

impl Resources {
    pub fn of(list: &ResourceList) -> Resources {
        let mut resources = Resources::default();
        for (name, quantity) in list {
            match name.as_str() {
                "cpu" => resources.milli_cpu = milli(quantity),
                "memory" => resources.memory = units(quantity),
                "ephemeral-storage" => resources.ephemeral_storage = units(quantity),
                "pods" => {}
                _ => {
                    resources.others.insert(name.clone(), units(quantity));
                }
            }
        }
        resources
    }

    pub fn add(&mut self, other: &Resources) {
        self.milli_cpu += other.milli_cpu;
        self.memory += other.memory;
        self.ephemeral_storage += other.ephemeral_storage;
        for (name, amount) in &other.others {
            *self.others.entry(name.clone()).or_default() += amount;
        }
    }

    pub fn subtract(&mut self, other: &Resources) {
        self.milli_cpu -= other.milli_cpu;
        self.memory -= other.memory;
        self.ephemeral_storage -= other.ephemeral_storage;
        for (name, amount) in &other.others {
            *self.others.entry(name.clone()).or_default() -= amount;
        }
    }

    fn at_least(&mut self, other: &Resources) {
        self.milli_cpu = self.milli_cpu.max(other.milli_cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.max(other.ephemeral_storage);
        for (name, amount) in &other.others {
            let known = self.others.entry(name.clone()).or_default();
            *known = (*known).max(*amount);
        }
    }
}

impl Requests {
    /// Containers run together and init containers one after the other, each beside the sidecars started before it.
    /// Requests of the pod as a whole replace those of its containers.
    pub fn of(
        containers: &[ContainerResources],
        init_containers: &[ContainerResources],
        overhead: &ResourceList,
        pod: &ResourceList,
    ) -> Requests {
        let exact = total(containers, init_containers, |container| {
            Resources::of(&container.requests)
        });
        let assumed = total(containers, init_containers, assumed);
        let mut requests = Requests {
            assumed_milli_cpu: assumed.milli_cpu,
            assumed_memory: assumed.memory,
            exact,
        };
        let whole = Resources::of(pod);
        if pod.contains_key("cpu") {
            (requests.exact.milli_cpu, requests.assumed_milli_cpu) = (whole.milli_cpu, whole.milli_cpu);
        }
        if pod.contains_key("memory") {
            (requests.exact.memory, requests.assumed_memory) = (whole.memory, whole.memory);
        }
        let overhead = Resources::of(overhead);
        requests.assumed_milli_cpu += overhead.milli_cpu;
        requests.assumed_memory += overhead.memory;
        requests.exact.add(&overhead);
        requests
    }

    /// A pod that asks for nothing.
    pub fn is_best_effort(&self) -> bool {
        self.exact.milli_cpu == 0 && self.exact.memory == 0
    }
}

fn total(
    containers: &[ContainerResources],
    init_containers: &[ContainerResources],
    of: impl Fn(&ContainerResources) -> Resources,
) -> Resources {
    let mut sum = Resources::default();
    containers.iter().for_each(|container| sum.add(&of(container)));
    let mut sidecars = Resources::default();
    let mut highest = Resources::default();
    for container in init_containers {
        let mut here = of(container);
        if container.is_sidecar {
            sum.add(&here);
            sidecars.add(&here);
            here = sidecars.clone();
        } else {
            here.add(&sidecars);
        }
        highest.at_least(&here);
    }
    sum.at_least(&highest);
    sum
}

fn assumed(container: &ContainerResources) -> Resources {
    let requests = &container.requests;
    let mut resources = Resources::of(requests);
    if !requests.contains_key("cpu") {
        resources.milli_cpu = ASSUMED_MILLI_CPU;
    }
    if !requests.contains_key("memory") {
        resources.memory = ASSUMED_MEMORY;
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(cpu: &str, policy: &str) -> ContainerResources {
        ContainerResources {
            requests: BTreeMap::from([("cpu".to_owned(), cpu.to_owned())]),
            is_sidecar: policy == "Always",
        }
    }

    #[test]
    fn init_containers_count_only_where_they_need_more_than_what_follows() {
        let none = ResourceList::new();
        let cpu = |containers: &[_], init: &[_]| Requests::of(containers, init, &none, &none).exact.milli_cpu;
        let two = [container("100m", ""), container("200m", "")];
        assert_eq!(cpu(&two, &[container("250m", "")]), 300);
        assert_eq!(cpu(&two, &[container("400m", "")]), 400);
        // A sidecar runs beside the containers and beside the init containers after it.
        assert_eq!(cpu(&two, &[container("50m", "Always"), container("320m", "")]), 370);
        let overhead = BTreeMap::from([("cpu".to_owned(), "10m".to_owned())]);
        assert_eq!(Requests::of(&two, &[], &overhead, &none).exact.milli_cpu, 310);
    }

    #[test]
    fn containers_without_requests_are_assumed_to_use_something() {
        let none = ResourceList::new();
        let requests = Requests::of(&[ContainerResources::default()], &[], &none, &none);
        assert!(requests.is_best_effort());
        assert_eq!((requests.assumed_milli_cpu, requests.assumed_memory), (100, 209715200));
    }
}
