//! What the kubelet counts of its own work, under upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use cri::Observer;
use metrics::{Counter, Family, Histogram, Page, Table, exponential, head, labels, sample};
use parking_lot::Mutex;

use crate::pod::{ContainerKind, Pod};
use crate::probe::{Answer, ProbeKind};

const OPERATION_BOUNDS: [f64; 14] = exponential(0.005, 2.5);
const START_BOUNDS: [f64; 23] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0,
];
const DEFAULT_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

pub struct Figures {
    operations: Table<Operation>,
    pod_start: Histogram,
    status_sync: Histogram,
    started_pods: Counter,
    user_namespaced_pods: Counter,
    user_namespaced_errors: Counter,
    sandboxes: Family<Histogram>,
    sandbox_errors: Family<Counter>,
    started_containers: Family<Counter>,
    container_errors: Family<Counter>,
    terminated: Family<Counter>,
    evictions: Family<Counter>,
    rejections: Family<Counter>,
    /// By the pod's UID, so that they go with their pods.
    probes: Mutex<BTreeMap<String, PodProbes>>,
}

/// The calls of one kind to the container runtime.
struct Operation {
    total: Counter,
    errors: Counter,
    duration: Histogram,
}

/// How often the probes of one pod were answered, by labels.
#[derive(Default)]
struct PodProbes {
    answers: BTreeMap<String, u64>,
}

impl Default for Figures {
    fn default() -> Figures {
        Figures {
            operations: Table::new(|| Operation {
                total: Counter::new(),
                errors: Counter::new(),
                duration: Histogram::of_seconds(&OPERATION_BOUNDS),
            }),
            pod_start: Histogram::of_seconds(&START_BOUNDS),
            status_sync: Histogram::of_seconds(&DEFAULT_BOUNDS),
            started_pods: Counter::new(),
            user_namespaced_pods: Counter::new(),
            user_namespaced_errors: Counter::new(),
            sandboxes: Family::new(
                "kubelet_run_podsandbox_duration_seconds",
                "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
                || Histogram::of_seconds(&DEFAULT_BOUNDS),
            ),
            sandbox_errors: Family::new(
                "kubelet_run_podsandbox_errors_total",
                "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
                Counter::new,
            ),
            started_containers: Family::new(
                "kubelet_started_containers_total",
                "Cumulative number of containers started",
                Counter::new,
            ),
            container_errors: Family::new(
                "kubelet_started_containers_errors_total",
                "Cumulative number of errors when starting containers",
                Counter::new,
            ),
            terminated: Family::new(
                "kubelet_terminated_containers_total",
                "Cumulative number of container terminations.",
                Counter::new,
            ),
            evictions: Family::new(
                "kubelet_evictions",
                "Cumulative number of pod evictions by eviction signal",
                Counter::new,
            ),
            rejections: Family::new(
                "kubelet_admission_rejections_total",
                "Cumulative number pod admission rejections by the Kubelet.",
                Counter::new,
            ),
            probes: Mutex::default(),
        }
    }
}

impl Observer for Figures {
    fn called(&self, method: &'static str, took: Duration, succeeded: bool) {
        let series = self.operations.find(method, || {
            // Upstream writes the sandbox of a pod as one word.
            let method = method.replace("pod_sandbox", "podsandbox");
            labels(&[("operation_type", method.as_str())])
        });
        series.value.total.add(1);
        series.value.duration.observe(took.as_secs_f64());
        if !succeeded {
            series.value.errors.add(1);
        }
        if method == "run_pod_sandbox" {
            // Which handler was asked for is not told here.
            let handler = || labels(&[("runtime_handler", "")]);
            self.sandboxes.find((), handler).value.observe(took.as_secs_f64());
            if !succeeded {
                self.sandbox_errors.find((), handler).value.add(1);
            }
        }
    }
}

impl Figures {
    /// A pod was seen for the first time, and its worker has begun.
    pub fn pod_started(&self, pod: &Pod) {
        self.started_pods.add(1);
        if pod.spec.host_users == Some(false) {
            self.user_namespaced_pods.add(1);
        }
    }

    /// The sandbox of a pod, or one of its containers, could not be started for the first time.
    pub fn pod_failed(&self, pod: &Pod) {
        if pod.spec.host_users == Some(false) {
            self.user_namespaced_errors.add(1);
        }
    }

    /// A pod runs, so long after the kubelet saw it.
    pub fn pod_running(&self, after: Duration) {
        self.pod_start.observe(after.as_secs_f64());
    }

    pub fn status_written(&self, took: Duration) {
        self.status_sync.observe(took.as_secs_f64());
    }

    pub fn container_started(&self, kind: ContainerKind) {
        let kind = container_type(kind);
        let series = self
            .started_containers
            .find(kind, || labels(&[("container_type", kind)]));
        series.value.add(1);
    }

    /// `code` is the reason that the container's status shows.
    pub fn container_failed(&self, kind: ContainerKind, code: &str) {
        let kind = container_type(kind);
        let series = self
            .container_errors
            .find((kind, code), || labels(&[("container_type", kind), ("code", code)]));
        series.value.add(1);
    }

    pub fn container_ended(&self, kind: ContainerKind, exit_code: i32, reason: &str) {
        let kind = container_type(kind);
        let series = self.terminated.find((kind, exit_code, reason), || {
            let code = exit_code.to_string();
            labels(&[
                ("container_type", kind),
                ("exit_code", code.as_str()),
                ("reason", reason),
            ])
        });
        series.value.add(1);
    }

    pub fn evicted(&self, signal: &str) {
        let series = self.evictions.find(signal, || labels(&[("eviction_signal", signal)]));
        series.value.add(1);
    }

    pub fn rejected(&self, reason: &str) {
        self.rejections
            .find(reason, || labels(&[("reason", reason)]))
            .value
            .add(1);
    }

    /// A probe was answered.
    pub fn probed(&self, pod: &Pod, container: &str, kind: ProbeKind, answer: &Answer) {
        let result = match answer {
            Answer::Success | Answer::Warning(_) => "successful",
            Answer::Failure(_) => "failed",
            Answer::Error(_) => "unknown",
        };
        let kind = format!("{kind:?}");
        let metadata = &pod.metadata;
        let labels = labels(&[
            ("container", container),
            ("namespace", metadata.namespace.as_str()),
            ("pod", metadata.name.as_str()),
            ("pod_uid", metadata.uid.as_str()),
            ("probe_type", kind.as_str()),
            ("result", result),
        ]);
        let mut probes = self.probes.lock();
        *probes
            .entry(metadata.uid.clone())
            .or_default()
            .answers
            .entry(labels)
            .or_default() += 1;
    }

    /// Nothing of the pod is left.
    pub fn forget(&self, uid: &str) {
        self.probes.lock().remove(uid);
    }

    /// Upstream's `/metrics/probes`.
    pub fn write_probes(&self, text: &mut String) {
        let name = "prober_probe_total";
        let help = "Cumulative number of a liveness, readiness or startup probe for a container by result.";
        head(text, name, "counter", help);
        for probes in self.probes.lock().values() {
            for (labels, count) in &probes.answers {
                sample(text, name, labels, count);
            }
        }
    }
}

impl Page for Figures {
    fn write(&self, text: &mut String) {
        let operations = &self.operations;
        operations.write(
            text,
            "kubelet_runtime_operations_total",
            "Cumulative number of runtime operations by operation type.",
            |operation| Some(&operation.total),
        );
        operations.write(
            text,
            "kubelet_runtime_operations_errors_total",
            "Cumulative number of runtime operation errors by operation type.",
            |operation| Some(&operation.errors),
        );
        operations.write(
            text,
            "kubelet_runtime_operations_duration_seconds",
            "Duration in seconds of runtime operations. Broken down by operation type.",
            |operation| Some(&operation.duration),
        );
        let singles: [(&str, &str, Write<'_>); 5] = [
            (
                "kubelet_pod_start_duration_seconds",
                "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
                &|text, name| one(text, name, &self.pod_start),
            ),
            (
                "kubelet_pod_status_sync_duration_seconds",
                "Duration in seconds to sync a pod status update.",
                &|text, name| one(text, name, &self.status_sync),
            ),
            (
                "kubelet_started_pods_total",
                "Cumulative number of pods started",
                &|text, name| one(text, name, &self.started_pods),
            ),
            (
                "kubelet_started_user_namespaced_pods_total",
                "Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.",
                &|text, name| one(text, name, &self.user_namespaced_pods),
            ),
            (
                "kubelet_started_user_namespaced_pods_errors_total",
                "Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux.",
                &|text, name| one(text, name, &self.user_namespaced_errors),
            ),
        ];
        for (name, help, write) in singles {
            let kind = if name.ends_with("_total") {
                "counter"
            } else {
                "histogram"
            };
            head(text, name, kind, help);
            write(text, name);
        }
        self.sandboxes.write(text);
        self.sandbox_errors.write(text);
        self.started_containers.write(text);
        self.container_errors.write(text);
        self.terminated.write(text);
        self.evictions.write(text);
        self.rejections.write(text);
    }
}

/// Writes the sample of a metric that has one, under this name.
type Write<'a> = &'a dyn Fn(&mut String, &str);

fn one<S: metrics::Sample>(text: &mut String, name: &str, value: &S) {
    value.write(text, name, "");
}

fn container_type(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Init | ContainerKind::Sidecar => "init_container",
        ContainerKind::App => "container",
        ContainerKind::Ephemeral => "ephemeral_container",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(figures: &Figures) -> String {
        let mut text = String::new();
        figures.write(&mut text);
        text
    }

    #[test]
    fn calls_of_the_runtime_are_counted_under_upstreams_names() {
        let figures = Figures::default();
        figures.called("run_pod_sandbox", Duration::from_millis(6), true);
        figures.called("run_pod_sandbox", Duration::from_millis(1), false);
        let text = page(&figures);
        for line in [
            "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 2",
            "kubelet_runtime_operations_errors_total{operation_type=\"run_podsandbox\"} 1",
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"run_podsandbox\",le=\"0.005\"} 1",
            "kubelet_runtime_operations_duration_seconds_count{operation_type=\"run_podsandbox\"} 2",
            "kubelet_run_podsandbox_errors_total{runtime_handler=\"\"} 1",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
    }

    #[test]
    fn pods_in_user_namespaces_are_counted_apart() {
        let figures = Figures::default();
        let pod = |yaml: &str| -> Pod { serde_saphyr::from_str(yaml).unwrap() };
        let (own, hosts) = (pod("spec: {hostUsers: false}"), pod("spec: {hostUsers: true}"));
        figures.pod_started(&own);
        figures.pod_started(&hosts);
        figures.pod_failed(&own);
        figures.pod_failed(&hosts);
        let text = page(&figures);
        for line in [
            "kubelet_started_pods_total 2",
            "kubelet_started_user_namespaced_pods_total 1",
            "kubelet_started_user_namespaced_pods_errors_total 1",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
    }

    #[test]
    fn ends_of_containers_are_counted_by_how_they_ended() {
        let figures = Figures::default();
        figures.container_ended(ContainerKind::App, 139, "Error");
        figures.container_ended(ContainerKind::Sidecar, 0, "Completed");
        let text = page(&figures);
        for line in [
            "kubelet_terminated_containers_total{container_type=\"container\",exit_code=\"139\",reason=\"Error\"} 1",
            "kubelet_terminated_containers_total{container_type=\"init_container\",exit_code=\"0\",reason=\"Completed\"} 1",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_probes_found_goes_with_their_pod() {
        let figures = Figures::default();
        let pod: Pod = serde_saphyr::from_str("metadata: {name: web, namespace: default, uid: u}").unwrap();
        figures.probed(&pod, "main", ProbeKind::Liveness, &Answer::Success);
        figures.probed(&pod, "main", ProbeKind::Liveness, &Answer::Success);
        let mut text = String::new();
        figures.write_probes(&mut text);
        let line = "prober_probe_total{container=\"main\",namespace=\"default\",pod=\"web\",pod_uid=\"u\",probe_type=\"Liveness\",result=\"successful\"} 2";
        assert!(text.lines().any(|written| written == line), "{text}");
        figures.forget("u");
        let mut text = String::new();
        figures.write_probes(&mut text);
        assert_eq!(text.lines().count(), 2);
    }
}
