//! How `kubectl get pods` sums up a pod.

use crate::print::{self, AGE, NAME, or_none};
use crate::{Column, Fields, Value};

pub const COLUMNS: &[Column] = &[
    NAME,
    print::text("Ready", "Containers that are ready, of all that should be."),
    print::text("Status", "What the pod's containers are doing, in one word."),
    print::text("Restarts", "How often containers were restarted, and when last."),
    AGE,
    print::text("IP", "The pod's address.").wide(),
    print::text("Node", "The node the pod is bound to.").wide(),
    print::text("Nominated Node", "The node on which room is being made for the pod.").wide(),
    print::text(
        "Readiness Gates",
        "Extra conditions that are true, of all that must be.",
    )
    .wide(),
];

pub fn cells(pod: &Value, now: i64) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let summary = Summary::from_pod(pod);
    let restarts = match summary.last_restart {
        Some(then) if summary.restarts > 0 => {
            format!("{} ({} ago)", summary.restarts, print::duration(now - then))
        }
        _ => summary.restarts.to_string(),
    };
    vec![
        print::name(pod),
        format!("{}/{}", summary.ready, summary.containers).into(),
        summary.reason.into(),
        restarts.into(),
        print::age(pod, now),
        or_none(status.list("podIPs").first().map_or("", |first| first.text("ip"))),
        or_none(spec.text("nodeName")),
        or_none(status.text("nominatedNodeName")),
        readiness_gates(pod),
    ]
}

#[derive(Default)]
struct Summary {
    containers: usize,
    ready: usize,
    restarts: i64,
    last_restart: Option<i64>,
    reason: String,
}

impl Summary {
    fn from_pod(pod: &Value) -> Summary {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let sidecars = spec
            .list("initContainers")
            .iter()
            .filter(|container| is_sidecar(container))
            .count();
        let mut summary = Summary {
            containers: spec.list("containers").len() + sidecars,
            reason: overall_reason(status),
            ..Summary::default()
        };
        let initializing = summary.count_init_containers(pod);
        if !initializing || condition_is_true(status, "Initialized") {
            summary.count_containers(pod);
        }
        if pod["metadata"].has("deletionTimestamp") {
            if status.text("reason") == "NodeLost" {
                summary.reason = "Unknown".to_owned();
            } else if !matches!(status.text("phase"), "Succeeded" | "Failed") {
                summary.reason = "Terminating".to_owned();
            }
        }
        summary
    }

    /// Goes through the init containers up to the first that is not done; says whether there is one.
    fn count_init_containers(&mut self, pod: &Value) -> bool {
        let specs = pod["spec"].list("initContainers");
        for (index, container) in pod["status"].list("initContainerStatuses").iter().enumerate() {
            self.count_restarts(container);
            let sidecar = specs
                .iter()
                .any(|spec| spec.text("name") == container.text("name") && is_sidecar(spec));
            let state = &container["state"];
            let terminated = &state["terminated"];
            let waiting = state["waiting"].text("reason");
            if terminated.is_object() && terminated.number("exitCode") == 0 {
                continue;
            }
            if sidecar && container.flag("started") {
                self.ready += usize::from(container.flag("ready"));
                continue;
            }
            self.reason = if terminated.is_object() {
                format!("Init:{}", termination_reason(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", specs.len())
            };
            return true;
        }
        false
    }

    /// Once the pod is initialised only its containers and sidecars count. The first container's reason wins.
    fn count_containers(&mut self, pod: &Value) {
        let status = &pod["status"];
        let specs = pod["spec"].list("initContainers");
        (self.restarts, self.last_restart) = (0, None);
        for container in status.list("initContainerStatuses") {
            if specs
                .iter()
                .any(|spec| spec.text("name") == container.text("name") && is_sidecar(spec))
            {
                self.count_restarts(container);
            }
        }
        let mut running = false;
        let mut failure = None;
        for container in status.list("containerStatuses").iter().rev() {
            self.count_restarts(container);
            let state = &container["state"];
            let waiting = state["waiting"].text("reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if state["terminated"].is_object() {
                self.reason = termination_reason(&state["terminated"]);
                if state["terminated"].number("exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if container.flag("ready") && state["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && condition_is_true(status, "Ready") {
                self.reason = "Running".to_owned();
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += container.number("restartCount");
        let finished = print::seconds(&container["lastState"]["terminated"]["finishedAt"]);
        self.last_restart = self.last_restart.max(finished);
    }
}

fn overall_reason(status: &Value) -> String {
    let gated = status
        .list("conditions")
        .iter()
        .any(|condition| condition.text("type") == "PodScheduled" && condition.text("reason") == "SchedulingGated");
    match (gated, status.text("reason")) {
        (true, _) => "SchedulingGated".to_owned(),
        (false, "") => status.text("phase").to_owned(),
        (false, reason) => reason.to_owned(),
    }
}

fn termination_reason(terminated: &Value) -> String {
    match (terminated.text("reason"), terminated.number("signal")) {
        ("", 0) => format!("ExitCode:{}", terminated.number("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_sidecar(init_container: &Value) -> bool {
    init_container.text("restartPolicy") == "Always"
}

fn condition_is_true(status: &Value, name: &str) -> bool {
    let condition = status
        .list("conditions")
        .iter()
        .find(|condition| condition.text("type") == name);
    condition.is_some_and(|condition| condition.text("status") == "True")
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = pod["spec"].list("readinessGates");
    if gates.is_empty() {
        return or_none("");
    }
    let open = gates
        .iter()
        .filter(|gate| condition_is_true(&pod["status"], gate.text("conditionType")))
        .count();
    format!("{open}/{}", gates.len()).into()
}
