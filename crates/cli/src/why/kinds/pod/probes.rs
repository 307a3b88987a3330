//! Pods that run and are not Ready.

use api::Value;
use api::kinds::pod::POD;

use super::{Container, containers};
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::{self, Look};

/// How long an init container may run before that is worth telling.
const INIT_SECONDS: u64 = 15;

pub fn init_container_runs(facts: &Facts, pod: &Value) -> Vec<Finding> {
    let waits = |container: &Container<'_>| {
        let is_sidecar = container.spec.str("restartPolicy") == "Always";
        container.is_init && !is_sidecar && !container.status.at("state.running").is_null()
    };
    let Some(container) = containers(pod).into_iter().find(waits) else {
        return Vec::new();
    };
    let seconds = facts.seconds_since(container.status.moment("state.running.startedAt"));
    if seconds < INIT_SECONDS {
        return Vec::new();
    }
    vec![
        Finding::waiting(
            "init-container-runs",
            format!(
                "The {} has been running for {}; the other containers start after it succeeds.",
                container.called(),
                look::duration(seconds)
            ),
        )
        .next(format!(
            "Check its log: kubectl -n {} logs {} -c {}",
            pod.namespace(),
            pod.name(),
            container.name()
        )),
    ]
}

pub fn probe_fails(facts: &Facts, pod: &Value) -> Vec<Finding> {
    let containers = containers(pod).into_iter();
    let unready = containers.filter(|container| {
        let runs = !container.status.at("state.running").is_null();
        runs && !container.status.yes("ready") && !pod.is_deleting()
    });
    unready
        .filter_map(|container| explain(facts, pod, &container))
        .collect()
}

fn explain(facts: &Facts, pod: &Value, container: &Container<'_>) -> Option<Finding> {
    let has_started = container.status.yes("started");
    let (field, kind) = match has_started || container.spec.at("startupProbe").is_null() {
        true => ("readinessProbe", "Readiness"),
        false => ("startupProbe", "Startup"),
    };
    let probe = container.spec.at(field);
    if probe.is_null() {
        return None;
    }
    let of = format!("{{{}}}", container.name());
    let answer = facts.events(&POD, pod).find(|event| {
        let is_own = event.str("involvedObject.fieldPath").ends_with(&of);
        event.str("reason") == "Unhealthy" && is_own && event.str("message").starts_with(kind)
    });
    let finding = match answer {
        Some(event) => Finding::broken(
            "probe-fails",
            format!("The {field} of {} fails: {}.", container.called(), question(probe)),
        )
        .detail(format!("Error: {}", event.str("message"))),
        None => Finding::waiting(
            "probe-pending",
            format!(
                "The {field} of {} has not succeeded yet: {}.",
                container.called(),
                question(probe)
            ),
        )
        .detail("The pod's events contain no result of this probe."),
    };
    let finding = match declared_elsewhere(container, probe) {
        Some(line) => finding.detail(line),
        None => finding,
    };
    let delay = probe.int("initialDelaySeconds");
    let finding = match delay {
        0 => finding,
        delay => finding.detail(format!("initialDelaySeconds is {delay}.")),
    };
    Some(finding.next(format!(
        "Correct {field}, or fix the program; its log: kubectl -n {} logs {} -c {}",
        pod.namespace(),
        pod.name(),
        container.name()
    )))
}

/// What a probe asks.
fn question(probe: &Value) -> String {
    let get = probe.at("httpGet");
    if !get.is_null() {
        let scheme = get.str("scheme");
        return format!("{scheme} GET {} on port {}", get.str("path"), port(get));
    }
    if !probe.at("tcpSocket").is_null() {
        return format!("TCP connection to port {}", port(probe.at("tcpSocket")));
    }
    if !probe.at("grpc").is_null() {
        return format!("gRPC on port {}", port(probe.at("grpc")));
    }
    format!("command {}", probe.texts("exec.command").join(" "))
}

fn port(of: &Value) -> String {
    match of.at("port") {
        Value::String(name) => format!("\"{name}\""),
        port => port.to_string(),
    }
}

/// A probe of a port that the container does not declare is often a slip; declaring is not needed, so this is a hint.
fn declared_elsewhere(container: &Container<'_>, probe: &Value) -> Option<String> {
    let asked = ["httpGet", "tcpSocket", "grpc"]
        .iter()
        .map(|kind| probe.at(kind).at("port"))
        .find_map(Value::as_i64)?;
    let declared: Vec<i64> = container
        .spec
        .items("ports")
        .iter()
        .map(|port| port.int("containerPort"))
        .collect();
    if declared.is_empty() || declared.contains(&asked) {
        return None;
    }
    let declared: Vec<String> = declared.iter().map(i64::to_string).collect();
    Some(format!(
        "The container declares port {}, the probe uses port {asked}.",
        declared.join(", ")
    ))
}

pub fn gate_is_closed(_: &Facts, pod: &Value) -> Vec<Finding> {
    if pod.condition_is("ContainersReady", "True").is_none() {
        return Vec::new();
    }
    let gates = pod
        .items("spec.readinessGates")
        .iter()
        .map(|gate| gate.str("conditionType"));
    gates
        .filter(|gate| pod.condition_is(gate, "True").is_none())
        .map(|gate| {
            let told = pod
                .condition(gate)
                .map(|condition| condition.str("message"))
                .unwrap_or_default();
            let finding = Finding::waiting(
                "readiness-gate",
                format!("Its containers are ready, but its readiness gate \"{gate}\" is not True."),
            );
            let finding = match told {
                "" => finding,
                told => finding.detail(told),
            };
            finding.next(format!("Check the controller that sets the condition \"{gate}\"."))
        })
        .collect()
}
