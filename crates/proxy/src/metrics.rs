//! The proxy's figures, under upstream's names, and which backend is in use: what kube-proxy shows on its status port.

use std::time::Duration;

use ::metrics::{Counter, Family, Gauge, Histogram, Page, Sample, exponential, head, labels, number, sample};
use http::StatusCode;

/// Upper bounds of synchronizations in seconds, upstream's.
const SYNC_SECONDS: &[f64] = &exponential::<15>(0.001, 2.0);
/// The only family of addresses that the backends know.
const FAMILY: &str = "ip_family=\"IPv4\"";

/// What the proxy counts.
pub struct ProxyMetrics {
    all: Histogram,
    full: Histogram,
    partial: Histogram,
    failures: Counter,
    /// In milliseconds since 1970.
    synced: Gauge,
    queued: Gauge,
    services: Changes,
    endpoints: Changes,
    healthz: Family<Counter>,
    livez: Family<Counter>,
}

/// Changes of one kind of objects.
#[derive(Default)]
pub struct Changes {
    total: Counter,
    pending: Gauge,
}

impl Changes {
    /// A change came that is not in the kernel yet.
    pub fn came(&self) {
        self.total.add(1);
        self.pending.add(1);
    }
}

impl Default for ProxyMetrics {
    fn default() -> ProxyMetrics {
        let answers = |name, help| Family::new(name, help, Counter::new);
        ProxyMetrics {
            all: Histogram::of_seconds(SYNC_SECONDS),
            full: Histogram::of_seconds(SYNC_SECONDS),
            partial: Histogram::of_seconds(SYNC_SECONDS),
            failures: Counter::new(),
            synced: Gauge::new(),
            queued: Gauge::new(),
            services: Changes::default(),
            endpoints: Changes::default(),
            healthz: answers(
                "kubeproxy_proxy_healthz_total",
                "[ALPHA] Answers to /healthz, by their codes.",
            ),
            livez: answers(
                "kubeproxy_proxy_livez_total",
                "[ALPHA] Answers to /livez, by their codes.",
            ),
        }
    }
}

impl ProxyMetrics {
    pub fn services(&self) -> &Changes {
        &self.services
    }

    pub fn endpoints(&self) -> &Changes {
        &self.endpoints
    }

    /// There is something to apply.
    pub fn queued(&self) {
        self.queued.set(now_ms());
    }

    /// All changes so far are about to be applied.
    pub fn taken(&self) {
        self.services.pending.set(0);
        self.endpoints.pending.set(0);
    }

    /// Rules were applied, or were to be. A full synchronization compares all of them with the kernel's.
    pub fn synced(&self, full: bool, took: Duration, well: bool) {
        let seconds = took.as_secs_f64();
        self.all.observe(seconds);
        let kind = if full { &self.full } else { &self.partial };
        kind.observe(seconds);
        match well {
            true => self.synced.set(now_ms()),
            false => self.failures.add(1),
        }
    }

    /// A load balancer or a kubelet was told how the proxy is.
    pub fn answered(&self, path: &str, code: StatusCode) {
        let answers = match path {
            "/healthz" => &self.healthz,
            "/livez" => &self.livez,
            _ => return,
        };
        let code = code.as_u16();
        let made = || labels(&[("code", &code.to_string())]);
        answers.find(code, made).value.add(1);
    }
}

fn now_ms() -> i64 {
    i64::try_from(clock::since_epoch().as_millis()).unwrap_or(i64::MAX)
}

impl Page for ProxyMetrics {
    fn write(&self, text: &mut String) {
        let kinds = [
            ("proxy_rules", "How long rules took to be applied.", &self.all),
            (
                "full_proxy_rules",
                "How long it took to compare all rules with the kernel's.",
                &self.full,
            ),
            (
                "partial_proxy_rules",
                "How long it took to apply changes of some Services.",
                &self.partial,
            ),
        ];
        for (kind, help, histogram) in kinds {
            one(text, &format!("sync_{kind}_duration_seconds"), help, FAMILY, histogram);
        }
        time(
            text,
            "last_timestamp_seconds",
            "When rules were last applied.",
            &self.synced,
        );
        time(
            text,
            "last_queued_timestamp_seconds",
            "When there was last something to apply.",
            &self.queued,
        );
        for (kind, what, changes) in [
            ("service", "Services", &self.services),
            ("endpoint", "EndpointSlices", &self.endpoints),
        ] {
            let name = format!("sync_proxy_rules_{kind}_changes_pending");
            one(
                text,
                &name,
                &format!("Changes of {what} that are not applied yet."),
                "",
                &changes.pending,
            );
            let name = format!("sync_proxy_rules_{kind}_changes_total");
            one(text, &name, &format!("Changes of {what}."), "", &changes.total);
        }
        let name = "sync_proxy_rules_nftables_sync_failures_total";
        one(text, name, "Failures to apply rules.", FAMILY, &self.failures);
        self.healthz.write(text);
        self.livez.write(text);
    }
}

fn one<S: Sample>(text: &mut String, name: &str, help: &str, labels: &str, value: &S) {
    let name = format!("kubeproxy_{name}");
    head(text, &name, S::TYPE, &format!("[ALPHA] {help}"));
    value.write(text, &name, labels);
}

fn time(text: &mut String, name: &str, help: &str, ms: &Gauge) {
    let name = format!("kubeproxy_sync_proxy_rules_{name}");
    head(text, &name, Gauge::TYPE, &format!("[ALPHA] {help}"));
    sample(text, &name, FAMILY, number(ms.get() as f64 / 1000.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(metrics: &ProxyMetrics, lines: &[&str]) {
        let mut text = String::new();
        metrics.write(&mut text);
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn changes_are_pending_until_they_are_taken() {
        let metrics = ProxyMetrics::default();
        metrics.services().came();
        metrics.endpoints().came();
        metrics.endpoints().came();
        let pending = "kubeproxy_sync_proxy_rules_endpoint_changes_pending";
        let total = "kubeproxy_sync_proxy_rules_endpoint_changes_total";
        check(
            &metrics,
            &[
                &format!("{pending} 2"),
                &format!("{total} 2"),
                "kubeproxy_sync_proxy_rules_service_changes_pending 1",
            ],
        );
        metrics.taken();
        check(&metrics, &[&format!("{pending} 0"), &format!("{total} 2")]);
    }

    #[test]
    fn a_failure_is_counted_and_is_no_synchronization() {
        let metrics = ProxyMetrics::default();
        metrics.synced(true, Duration::from_millis(3), false);
        check(
            &metrics,
            &[
                "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1",
                "kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 0",
                "kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.004\"} 1",
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 0",
                "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"} 1",
            ],
        );
        metrics.synced(false, Duration::from_millis(1), true);
        assert!(metrics.synced.get() > 0);
        check(
            &metrics,
            &["kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"} 1"],
        );
    }

    #[test]
    fn answers_are_counted_by_code_and_only_those_about_health() {
        let metrics = ProxyMetrics::default();
        metrics.answered("/healthz", StatusCode::OK);
        metrics.answered("/livez", StatusCode::SERVICE_UNAVAILABLE);
        metrics.answered("/other", StatusCode::NOT_FOUND);
        check(
            &metrics,
            &[
                "kubeproxy_proxy_healthz_total{code=\"200\"} 1",
                "kubeproxy_proxy_livez_total{code=\"503\"} 1",
            ],
        );
        let mut text = String::new();
        metrics.write(&mut text);
        assert!(!text.contains("404"), "{text}");
    }
}
