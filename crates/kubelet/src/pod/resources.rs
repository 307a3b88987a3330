//! What a pod may use: its quality of service and the sums that size its cgroup.

use std::collections::BTreeMap;
use std::fmt;

use schema::quantity::Quantity;

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
    pub fn from_resources(resources: &Resources) -> Compute {
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

/// What a container's cgroup is given. Where the container has no limit, the pod's holds for it too.
pub fn container_compute(pod: &Pod, container: &Container) -> Compute {
    compute_in_pod(pod, &container.resources)
}

/// What these resources of one of the pod's containers come to in its cgroup.
pub fn compute_in_pod(pod: &Pod, resources: &Resources) -> Compute {
    let own = Compute::from_resources(resources);
    let level = Compute::from_resources(&Resources {
        limits: pod.spec.resources.limits.clone(),
        requests: BTreeMap::new(),
    });
    let asks_for_cpu = resources.requests.contains_key("cpu") || own.cpu_limit_milli.is_some();
    Compute {
        cpu_request_milli: match asks_for_cpu {
            true => own.cpu_request_milli,
            false => level.cpu_limit_milli.unwrap_or_default(),
        },
        cpu_limit_milli: own.cpu_limit_milli.or(level.cpu_limit_milli),
        memory_request: own.memory_request,
        memory_limit: own.memory_limit.or(level.memory_limit),
    }
}

/// Requests and limits of the pod as a whole, as its status shows them: the pod's own where it has them, else those of
/// its containers together.
pub fn pod_resources(pod: &Pod) -> Resources {
    Resources {
        requests: pod_amounts(pod, |resources| &resources.requests, |_| true),
        limits: pod_amounts(pod, |resources| &resources.limits, |sum| !sum.is_zero()),
    }
}

type Amounts = BTreeMap<String, Quantity>;

fn pod_amounts(
    pod: &Pod,
    list: fn(&Resources) -> &BTreeMap<String, String>,
    has_overhead: fn(&Quantity) -> bool,
) -> BTreeMap<String, String> {
    let mut sidecars = Amounts::new();
    let mut initialising = Amounts::new();
    for container in &pod.spec.init_containers {
        let own = amounts(list(&container.resources));
        let is_sidecar = container.init_kind() == ContainerKind::Sidecar;
        let mut now = sidecars.clone();
        add(&mut now, &own);
        if is_sidecar {
            sidecars.clone_from(&now);
        }
        raise(&mut initialising, &now);
    }
    let mut total = sidecars;
    for container in &pod.spec.containers {
        add(&mut total, &amounts(list(&container.resources)));
    }
    raise(&mut total, &initialising);
    total.extend(amounts(list(&pod.spec.resources)));
    for (name, amount) in amounts(&pod.spec.overhead) {
        let sum = total.entry(name).or_insert(Quantity::ZERO);
        if has_overhead(sum) {
            sum.add(&amount);
        }
    }
    total.retain(|_, amount| !amount.is_zero());
    total
        .into_iter()
        .map(|(name, amount)| (name, amount.to_string()))
        .collect()
}

/// What cannot be read was refused by the API server; it counts as nothing.
fn amounts(list: &BTreeMap<String, String>) -> Amounts {
    let parsed = list.iter().filter_map(|(name, text)| {
        let amount = text.parse().ok()?;
        Some((name.clone(), amount))
    });
    parsed.collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        total.entry(name.clone()).or_insert(Quantity::ZERO).add(amount);
    }
}

fn raise(total: &mut Amounts, floor: &Amounts) {
    for (name, amount) in floor {
        let sum = total.entry(name.clone()).or_insert(Quantity::ZERO);
        if *sum < *amount {
            sum.clone_from(amount);
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
        let own = Compute::from_resources(&container.resources);
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
        .map(|container| Compute::from_resources(&container.resources));
    let running = app.fold(sidecars, Compute::plus);
    let mut total = running.max(initialising);
    total.cpu_limit_milli = total.cpu_limit_milli.filter(|limit| *limit > 0);
    total.memory_limit = total.memory_limit.filter(|limit| *limit > 0);
    with_overhead(with_pod_level(total, &pod.spec.resources), &pod.spec.overhead)
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
    let level = Compute::from_resources(own);
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
    fn the_limits_of_a_pod_hold_for_containers_without_their_own() {
        let pod = pod(r#"
spec:
  resources: {requests: {cpu: "1"}, limits: {cpu: "2", memory: 1Gi}}
  overhead: {cpu: 250m}
  containers:
  - {name: a, resources: {requests: {cpu: 100m}}}
  - {name: b, resources: {limits: {cpu: 500m, memory: 10Mi}}}
  - {name: c}
"#);
        let of = |index: usize| container_compute(&pod, &pod.spec.containers[index]);
        let compute = |cpu_request_milli, cpu_limit, memory_request, memory_limit| Compute {
            cpu_request_milli,
            cpu_limit_milli: Some(cpu_limit),
            memory_request,
            memory_limit: Some(memory_limit),
        };
        assert_eq!(of(0), compute(100, 2000, 0, 1 << 30));
        assert_eq!(of(1), compute(500, 500, 10 << 20, 10 << 20));
        assert_eq!(of(2), compute(2000, 2000, 0, 1 << 30));
        assert_eq!(pod_compute(&pod), compute(1250, 2250, 1 << 30, 1 << 30));
    }

    #[test]
    fn a_status_shows_what_the_pod_asks_for_as_a_whole() {
        let shown = |yaml: &str| serde_json::to_string(&pod_resources(&pod(yaml))).unwrap();
        let containers = r#"
spec:
  initContainers:
  - {name: side, restartPolicy: Always, resources: {requests: {cpu: 100m}}}
  - {name: init, resources: {requests: {cpu: "2", example.com/gpu: 1}}}
  containers:
  - {name: a, resources: {requests: {cpu: 500m, memory: 35Mi}, limits: {memory: 45Mi}}}
  - {name: b, resources: {requests: {memory: 37Mi}}}
"#;
        assert_eq!(
            shown(containers),
            r#"{"limits":{"memory":"45Mi"},"requests":{"cpu":"2100m","example.com/gpu":"1","memory":"72Mi"}}"#
        );
        let own = format!("{containers}  resources: {{requests: {{cpu: '3'}}, limits: {{cpu: '4'}}}}\n");
        assert_eq!(
            shown(&own),
            r#"{"limits":{"cpu":"4","memory":"45Mi"},"requests":{"cpu":"3","example.com/gpu":"1","memory":"72Mi"}}"#
        );
        assert_eq!(shown("spec: {containers: [{name: a}]}"), "{}");
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
