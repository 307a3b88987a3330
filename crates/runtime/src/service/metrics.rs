//! What pods and containers use, under cAdvisor's names: for kubelets that take their `/metrics/cadvisor` from the runtime.

use cri::v1::{self, MetricType};

use super::Embedded;

/// One figure: its name, what it is, and how it is found in a container's stats.
struct Figure {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    of: fn(&v1::ContainerStats) -> Option<u64>,
}

/// One figure of a network interface.
struct InterfaceFigure {
    name: &'static str,
    help: &'static str,
    of: fn(&v1::NetworkInterfaceUsage) -> Option<u64>,
}

const FIGURES: &[Figure] = &[
    Figure {
        name: "container_cpu_usage_seconds_total",
        help: "Cumulative cpu time consumed in seconds.",
        kind: MetricType::Counter,
        of: |stats| Some(value(stats.cpu.as_ref()?.usage_core_nano_seconds)? / 1_000_000_000),
    },
    Figure {
        name: "container_memory_usage_bytes",
        help: "Current memory usage in bytes, including all memory regardless of when it was accessed",
        kind: MetricType::Gauge,
        of: |stats| value(stats.memory.as_ref()?.usage_bytes),
    },
    Figure {
        name: "container_memory_working_set_bytes",
        help: "Current working set in bytes.",
        kind: MetricType::Gauge,
        of: |stats| value(stats.memory.as_ref()?.working_set_bytes),
    },
    Figure {
        name: "container_memory_rss",
        help: "Size of RSS in bytes.",
        kind: MetricType::Gauge,
        of: |stats| value(stats.memory.as_ref()?.rss_bytes),
    },
    Figure {
        name: "container_memory_swap",
        help: "Container swap usage in bytes.",
        kind: MetricType::Gauge,
        of: |stats| value(stats.swap.as_ref()?.swap_usage_bytes),
    },
    Figure {
        name: "container_fs_usage_bytes",
        help: "Number of bytes that are consumed by the container on this filesystem.",
        kind: MetricType::Gauge,
        of: |stats| value(stats.writable_layer.as_ref()?.used_bytes),
    },
    Figure {
        name: "container_fs_inodes_total",
        help: "Number of Inodes",
        kind: MetricType::Gauge,
        of: |stats| value(stats.writable_layer.as_ref()?.inodes_used),
    },
];

const INTERFACE_FIGURES: &[InterfaceFigure] = &[
    InterfaceFigure {
        name: "container_network_receive_bytes_total",
        help: "Cumulative count of bytes received",
        of: |usage| value(usage.rx_bytes),
    },
    InterfaceFigure {
        name: "container_network_receive_errors_total",
        help: "Cumulative count of errors encountered while receiving",
        of: |usage| value(usage.rx_errors),
    },
    InterfaceFigure {
        name: "container_network_transmit_bytes_total",
        help: "Cumulative count of bytes transmitted",
        of: |usage| value(usage.tx_bytes),
    },
    InterfaceFigure {
        name: "container_network_transmit_errors_total",
        help: "Cumulative count of errors encountered while transmitting",
        of: |usage| value(usage.tx_errors),
    },
];

/// The labels of each figure, whose values come in this order.
const LABELS: &[&str] = &["id", "name"];
const INTERFACE_LABELS: &[&str] = &["id", "name", "interface"];

fn value(of: Option<v1::UInt64Value>) -> Option<u64> {
    of.map(|value| value.value)
}

pub fn descriptors() -> Vec<v1::MetricDescriptor> {
    let descriptor = |name: &str, help: &str, labels: &[&str]| v1::MetricDescriptor {
        name: name.to_owned(),
        help: help.to_owned(),
        label_keys: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    let figures = FIGURES
        .iter()
        .map(|figure| descriptor(figure.name, figure.help, LABELS));
    let interfaces = INTERFACE_FIGURES
        .iter()
        .map(|figure| descriptor(figure.name, figure.help, INTERFACE_LABELS));
    figures.chain(interfaces).collect()
}

impl Embedded {
    pub(super) async fn sandbox_metrics(&self) -> cri::Result<Vec<v1::PodSandboxMetrics>> {
        let sandboxes: Vec<_> = self.sandboxes.read().values().cloned().collect();
        let mut metrics = Vec::new();
        for sandbox in sandboxes.into_iter().filter(|sandbox| sandbox.running().is_some()) {
            metrics.push(of_pod(&self.sandbox_stats_of(sandbox).await?));
        }
        Ok(metrics)
    }
}

fn of_pod(stats: &v1::PodSandboxStats) -> v1::PodSandboxMetrics {
    let attributes = stats.attributes.clone().unwrap_or_default();
    let linux = stats.linux.clone().unwrap_or_default();
    let name = attributes.metadata.map(|pod| pod.name).unwrap_or_default();
    let network = linux.network.unwrap_or_default();
    let interfaces = network.default_interface.iter().chain(&network.interfaces);
    let metrics = interfaces.flat_map(|interface| {
        let labels = vec![attributes.id.clone(), name.clone(), interface.name.clone()];
        INTERFACE_FIGURES.iter().filter_map(move |figure| {
            let value = (figure.of)(interface)?;
            Some(metric(
                figure.name,
                MetricType::Counter,
                labels.clone(),
                network.timestamp,
                value,
            ))
        })
    });
    v1::PodSandboxMetrics {
        pod_sandbox_id: attributes.id.clone(),
        metrics: metrics.collect(),
        container_metrics: linux.containers.iter().map(of_container).collect(),
    }
}

fn of_container(stats: &v1::ContainerStats) -> v1::ContainerMetrics {
    let attributes = stats.attributes.clone().unwrap_or_default();
    let name = attributes.metadata.map(|container| container.name).unwrap_or_default();
    let timestamp = stats.cpu.as_ref().map_or(0, |cpu| cpu.timestamp);
    let metrics = FIGURES.iter().filter_map(|figure| {
        let labels = vec![attributes.id.clone(), name.clone()];
        Some(metric(figure.name, figure.kind, labels, timestamp, (figure.of)(stats)?))
    });
    v1::ContainerMetrics {
        container_id: attributes.id.clone(),
        metrics: metrics.collect(),
    }
}

fn metric(name: &str, kind: MetricType, label_values: Vec<String>, timestamp: i64, value: u64) -> v1::Metric {
    v1::Metric {
        name: name.to_owned(),
        timestamp,
        metric_type: kind.into(),
        label_values,
        value: Some(v1::UInt64Value { value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_described_with_its_labels() {
        let stats = v1::ContainerStats {
            cpu: Some(v1::CpuUsage {
                usage_core_nano_seconds: Some(v1::UInt64Value { value: 3_500_000_000 }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let pod = v1::PodSandboxStats {
            linux: Some(v1::LinuxPodSandboxStats {
                containers: vec![stats],
                network: Some(v1::NetworkUsage {
                    default_interface: Some(v1::NetworkInterfaceUsage {
                        name: "eth0".into(),
                        rx_bytes: Some(v1::UInt64Value { value: 7 }),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let metrics = of_pod(&pod);
        let shown = metrics.metrics.iter().chain(&metrics.container_metrics[0].metrics);
        let shown: Vec<_> = shown.collect();
        assert_eq!(shown.len(), 2, "only what was counted");
        assert_eq!(shown[1].value.unwrap().value, 3);
        for metric in shown {
            let described = descriptors()
                .into_iter()
                .find(|known| known.name == metric.name)
                .unwrap();
            assert_eq!(described.label_keys.len(), metric.label_values.len());
        }
    }
}
