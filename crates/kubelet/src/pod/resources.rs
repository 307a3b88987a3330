//! What a pod may use: its quality of service and the sums that size its cgroup.

use std::collections::BTreeMap;
use std::fmt;

use super::quantity::Milli;
use super::{Container, ContainerKind, Pod, Resources};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Requests and limits of the two resources that cgroups enforce. An absent limit is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compute {
    pub cpu_request_milli: i64,
    pub cpu_limit_milli: Option<i64>,
    pub memory_request: i64,
    pub memory_limit: Option<i64>,
}

impl Compute {
    pub fn of(resources: &Resources) -> Compute {
        let limit = |name| quantity(&resources.limits, name);
        // A limit without a request asks for as much as it allows.
        let request = |name| quantity(&resources.requests, name).or(limit(name)).unwrap_or_default();
        Compute {
            cpu_request_milli: request("cpu").milli(),
            cpu_limit_milli: limit("cpu").filter(|limit| limit.0 > 0).map(Milli::milli),
            memory_request: request("memory").value(),
            memory_limit: limit("memory").filter(|limit| limit.0 > 0).map(Milli::value),
        }
    }

    fn plus(self, other: Compute) -> Compute {
        self.zip(other, i64::saturating_add)
    }

    pub fn max(self, other: Compute) -> Compute {
        self.zip(other, i64::max)
    }

    /// Without a limit on one side there is none on both.
    fn zip(self, other: Compute, combine: fn(i64, i64) -> i64) -> Compute {
        let limits = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| combine(a, b));
        Compute {
            cpu_request_milli: combine(self.cpu_request_milli, other.cpu_request_milli),
            cpu_limit_milli: limits(self.cpu_limit_milli, other.cpu_limit_milli),
            memory_request: combine(self.memory_request, other.memory_request),
            memory_limit: limits(self.memory_limit, other.memory_limit),
        }
    }
}

/// What the pod as a whole asks for: its containers together, or the most its initialisation takes at once.
pub fn pod_compute(pod: &Pod) -> Compute {
    let nothing = Compute {
        cpu_limit_milli: Some(0),
        memory_limit: Some(0),
        ..Compute::default()
    };
    let mut sidecars = nothing;
    let mut initialising = nothing;
    for container in &pod.spec.init_containers {
        let own = Compute::of(&container.resources);
        match container.init_kind() {
            ContainerKind::Sidecar => {
                sidecars = sidecars.plus(own);
                initialising = initialising.max(sidecars);
            }
            _ => initialising = initialising.max(sidecars.plus(own)),
        }
    }
    let app = pod
        .spec
        .containers
        .iter()
        .map(|container| Compute::of(&container.resources));
    let running = app.fold(sidecars, Compute::plus);
    let mut total = running.max(initialising);
    total.cpu_limit_milli = total.cpu_limit_milli.filter(|limit| *limit > 0);
    total.memory_limit = total.memory_limit.filter(|limit| *limit > 0);
    with_pod_level(with_overhead(total, &pod.spec.overhead), &pod.spec.resources)
}

pub fn qos(pod: &Pod) -> Qos {
    match pod.status.qos_class.as_str() {
        "Guaranteed" => return Qos::Guaranteed,
        "Burstable" => return Qos::Burstable,
        "BestEffort" => return Qos::BestEffort,
        _ => {}
    }
    let own = &pod.spec.resources;
    if !own.requests.is_empty() || !own.limits.is_empty() {
        return qos_of([own].into_iter());
    }
    let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    qos_of(all.map(|container: &Container| &container.resources))
}

fn qos_of<'a>(all: impl Iterator<Item = &'a Resources>) -> Qos {
    let (mut any, mut guaranteed) = (false, true);
    for resources in all {
        for name in ["cpu", "memory"] {
            let limit = quantity(&resources.limits, name).filter(|limit| limit.0 > 0);
            let request = quantity(&resources.requests, name).filter(|request| request.0 > 0);
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => Qos::BestEffort,
        (true, true) => Qos::Guaranteed,
        (true, false) => Qos::Burstable,
    }
}

fn with_overhead(mut total: Compute, overhead: &BTreeMap<String, String>) -> Compute {
    let cpu = quantity(overhead, "cpu").unwrap_or_default().milli();
    let memory = quantity(overhead, "memory").unwrap_or_default().value();
    total.cpu_request_milli += cpu;
    total.memory_request += memory;
    total.cpu_limit_milli = total.cpu_limit_milli.map(|limit| limit + cpu);
    total.memory_limit = total.memory_limit.map(|limit| limit + memory);
    total
}

fn with_pod_level(mut total: Compute, own: &Resources) -> Compute {
    let level = Compute::of(own);
    if own.requests.contains_key("cpu") || own.limits.contains_key("cpu") {
        total.cpu_request_milli = level.cpu_request_milli;
    }
    if own.requests.contains_key("memory") || own.limits.contains_key("memory") {
        total.memory_request = level.memory_request;
    }
    total.cpu_limit_milli = level.cpu_limit_milli.or(total.cpu_limit_milli);
    total.memory_limit = level.memory_limit.or(total.memory_limit);
    total
}

fn quantity(list: &BTreeMap<String, String>, name: &str) -> Option<Milli> {
    list.get(name).and_then(|text| Milli::parse(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(yaml: &str) -> Pod {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let of = |resources: &str| qos(&pod(&format!("spec: {{containers: [{{resources: {resources}}}]}}")));
        assert_eq!(of("{}"), Qos::BestEffort);
        assert_eq!(of("{requests: {cpu: 1m}}"), Qos::Burstable);
        assert_eq!(of("{limits: {cpu: 1, memory: 1Gi}}"), Qos::Guaranteed);
        assert_eq!(
            of("{limits: {cpu: '1', memory: 1Gi}, requests: {cpu: 500m}}"),
            Qos::Burstable
        );
    }

    #[test]
    fn a_pod_needs_the_larger_of_its_containers_and_its_initialisation() {
        let pod = pod(r#"
spec:
  initContainers:
  - {name: side, restartPolicy: Always, resources: {requests: {cpu: 100m}}}
  - {name: init, resources: {requests: {cpu: "2", memory: 10Mi}}}
  containers:
  - {name: a, resources: {requests: {cpu: 500m}, limits: {memory: 20Mi}}}
  - {name: b, resources: {requests: {cpu: 250m}}}
"#);
        assert_eq!(
            pod_compute(&pod),
            Compute {
                cpu_request_milli: 2100,
                memory_request: 20 << 20,
                ..Compute::default()
            }
        );
    }
}
