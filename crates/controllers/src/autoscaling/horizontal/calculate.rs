//! How many replicas a metric asks for. Quantities are in thousandths, as upstream calculates with them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::Fields;
use client::when::Moment;
use schema::quantity::Quantity;

use super::model::MeasuredPod;
use crate::conditions;

/// How far from one a ratio may be before anything is done, unless the autoscaler's behavior says otherwise.
pub const DEFAULT_TOLERANCE: f64 = 0.1;
/// How long after its start the CPU use of a pod counts only while it is ready.
const CPU_INITIALIZATION: Duration = Duration::from_secs(300);
/// A pod that became unready within this time of its start has never been ready.
const INITIAL_READINESS_DELAY: Duration = Duration::from_secs(30);

/// What one pod was measured at.
#[derive(Clone, Copy, Debug)]
pub struct PodMetric {
    pub value: i64,
    pub timestamp: Moment,
    pub window: Duration,
}

/// By the names of pods.
pub type PodMetrics = BTreeMap<String, PodMetric>;

/// How far usage may be below and above its target.
#[derive(Clone, Copy, Debug)]
pub struct Tolerances {
    pub scale_down: f64,
    pub scale_up: f64,
}

impl Tolerances {
    fn contain(self, ratio: f64) -> bool {
        1.0 - self.scale_down <= ratio && ratio <= 1.0 + self.scale_up
    }
}

/// What pods are compared with.
#[derive(Clone, Copy, Debug)]
pub enum PodTarget<'a> {
    /// Percent of what the pods request of the resource, or one container of each.
    Utilization {
        percent: i64,
        resource: &'a str,
        container: &'a str,
    },
    /// An average.
    Average(i64),
}

/// A calculation's outcome: the replicas, and the status of the metric.
#[derive(Debug, PartialEq)]
pub struct Proposal {
    pub replicas: i64,
    /// Percent of the requests, for utilization.
    pub utilization: Option<i64>,
    /// The average of the pods, or the value, in thousandths.
    pub value: i64,
}

/// The pods of a target by what can be said of their use.
struct Groups<'a> {
    ready: usize,
    unready: BTreeSet<&'a str>,
    missing: BTreeSet<&'a str>,
    ignored: BTreeSet<&'a str>,
}

/// For metrics that every pod has.
pub fn by_pods(
    current: i64,
    pods: &[MeasuredPod],
    mut metrics: PodMetrics,
    target: PodTarget<'_>,
    tolerances: Tolerances,
    now: Moment,
) -> Result<Proposal, String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let cpu = matches!(target, PodTarget::Utilization { resource: "cpu", .. });
    let groups = group(pods, &metrics, cpu, now);
    for name in groups.unready.iter().chain(&groups.ignored) {
        metrics.remove(*name);
    }
    if metrics.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let requests = requests(pods, target)?;
    let (ratio, utilization, value) = usage_ratio(&metrics, &requests, target);
    let proposal = |replicas| Proposal {
        replicas,
        utilization,
        value,
    };
    let has_unready = ratio > 1.0 && !groups.unready.is_empty();
    if !has_unready && groups.missing.is_empty() {
        return Ok(proposal(match tolerances.contain(ratio) {
            true => current,
            false => ceil(ratio * groups.ready as f64),
        }));
    }
    assume(&mut metrics, &groups, &requests, target, ratio, has_unready);
    let (new, ..) = usage_ratio(&metrics, &requests, target);
    let turned = (ratio < 1.0 && new > 1.0) || (ratio > 1.0 && new < 1.0);
    if tolerances.contain(new) || turned {
        return Ok(proposal(current));
    }
    let replicas = ceil(new * metrics.len() as f64);
    let against = (new < 1.0 && replicas > current) || (new > 1.0 && replicas < current);
    Ok(proposal(if against { current } else { replicas }))
}

/// For a value that stands for all pods together.
pub fn by_value(
    current: i64,
    pods: &[MeasuredPod],
    usage: i64,
    target: i64,
    tolerances: Tolerances,
) -> Result<Proposal, String> {
    let ratio = usage as f64 / target as f64;
    let replicas = match current {
        0 => ceil(ratio),
        _ if tolerances.contain(ratio) => current,
        _ => ceil(ratio * ready_pods(pods)? as f64),
    };
    Ok(Proposal {
        replicas,
        utilization: None,
        value: usage,
    })
}

/// For a value that is shared out among the pods.
pub fn by_average(replicas: i64, usage: i64, target: i64, tolerances: Tolerances) -> Proposal {
    let ratio = usage as f64 / (target as f64 * replicas as f64);
    let wanted = match replicas > 0 && tolerances.contain(ratio) {
        true => replicas,
        false => ceil(usage as f64 / target as f64),
    };
    Proposal {
        replicas: wanted,
        utilization: None,
        value: match replicas {
            0 => 0,
            replicas => ceil(usage as f64 / replicas as f64),
        },
    }
}

fn ready_pods(pods: &[MeasuredPod]) -> Result<usize, String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let ready = pods.iter().filter(|pod| {
        let ready = conditions::find(&pod.status.conditions, "Ready");
        pod.status.phase == "Running" && ready.is_some_and(|ready| ready.text("status") == "True")
    });
    Ok(ready.count())
}

fn group<'a>(pods: &'a [MeasuredPod], metrics: &PodMetrics, cpu: bool, now: Moment) -> Groups<'a> {
    let mut groups = Groups {
        ready: 0,
        unready: BTreeSet::new(),
        missing: BTreeSet::new(),
        ignored: BTreeSet::new(),
    };
    for pod in pods {
        let name = pod.metadata.name.as_str();
        if pod.metadata.is_deleting() || pod.status.phase == "Failed" {
            groups.ignored.insert(name);
        } else if pod.status.phase == "Pending" {
            groups.unready.insert(name);
        } else {
            match metrics.get(name) {
                None => drop(groups.missing.insert(name)),
                Some(metric) if cpu && is_starting(pod, metric, now) => drop(groups.unready.insert(name)),
                Some(_) => groups.ready += 1,
            }
        }
    }
    groups
}

/// Whether what a pod uses may still be the work of its start.
fn is_starting(pod: &MeasuredPod, metric: &PodMetric, now: Moment) -> bool {
    let ready = conditions::find(&pod.status.conditions, "Ready");
    let started = pod.status.start_time.as_deref().and_then(Moment::parse);
    let (Some(ready), Some(started)) = (ready, started) else {
        return true;
    };
    let is_unready = ready.text("status") == "False";
    let changed = Moment::parse(ready.text("lastTransitionTime")).unwrap_or_default();
    if started.plus(CPU_INITIALIZATION) > now {
        return is_unready || metric.timestamp < changed.plus(metric.window);
    }
    is_unready && started.plus(INITIAL_READINESS_DELAY) > changed
}

/// What the pods request, where the target is a share of it.
fn requests(pods: &[MeasuredPod], target: PodTarget<'_>) -> Result<BTreeMap<String, i64>, String> {
    let PodTarget::Utilization {
        resource, container, ..
    } = target
    else {
        return Ok(BTreeMap::new());
    };
    let mut requests = BTreeMap::new();
    for pod in pods {
        let name = &pod.metadata.name;
        let wanted = |one: &&super::model::MeasuredContainer| container.is_empty() || one.name == container;
        let mut sum = 0;
        for one in pod.containers().filter(wanted) {
            let request = one.resources.requests.get(resource);
            let request = request.and_then(|text| text.parse::<Quantity>().ok());
            let Some(request) = request else {
                let container = &one.name;
                return Err(format!(
                    "missing request for {resource} in container {container} of Pod {name}"
                ));
            };
            sum += request.milli_value();
        }
        requests.insert(name.clone(), sum);
    }
    Ok(requests)
}

/// The ratio of use to target, the utilization in percent, and the average use.
fn usage_ratio(
    metrics: &PodMetrics,
    requests: &BTreeMap<String, i64>,
    target: PodTarget<'_>,
) -> (f64, Option<i64>, i64) {
    let total: i64 = metrics.values().map(|metric| metric.value).sum();
    let average = total / (metrics.len().max(1) as i64);
    match target {
        PodTarget::Average(target) => (average as f64 / target as f64, None, average),
        PodTarget::Utilization { percent, .. } => {
            let requested: i64 = metrics.keys().filter_map(|name| requests.get(name)).sum();
            let utilization = if requested == 0 { 0 } else { total * 100 / requested };
            (utilization as f64 / percent as f64, Some(utilization), average)
        }
    }
}

/// Has pods of which nothing is known count against the change: as idle before more are made, as busy before some go.
fn assume(
    metrics: &mut PodMetrics,
    groups: &Groups<'_>,
    requests: &BTreeMap<String, i64>,
    target: PodTarget<'_>,
    ratio: f64,
    has_unready: bool,
) {
    let unknown = |value| PodMetric {
        value,
        timestamp: Moment::default(),
        window: Duration::ZERO,
    };
    for name in &groups.missing {
        let busy = match target {
            PodTarget::Average(target) => target,
            PodTarget::Utilization { percent, .. } => {
                requests.get(*name).copied().unwrap_or_default() * percent.max(100) / 100
            }
        };
        match ratio {
            ratio if ratio < 1.0 => drop(metrics.insert((*name).to_owned(), unknown(busy))),
            ratio if ratio > 1.0 => drop(metrics.insert((*name).to_owned(), unknown(0))),
            _ => {}
        }
    }
    if has_unready {
        for name in &groups.unready {
            metrics.insert((*name).to_owned(), unknown(0));
        }
    }
}

fn ceil(value: f64) -> i64 {
    value.ceil() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{noon, values};

    const TOLERANCES: Tolerances = Tolerances {
        scale_down: DEFAULT_TOLERANCE,
        scale_up: DEFAULT_TOLERANCE,
    };
    const HALF_OF_CPU: PodTarget<'_> = PodTarget::Utilization {
        percent: 50,
        resource: "cpu",
        container: "",
    };

    fn pods(count: usize, extra: &str) -> Vec<MeasuredPod> {
        let pod = |index: usize| {
            format!(
                "metadata: {{name: p{index}{extra}}}
spec: {{containers: [{{name: c, resources: {{requests: {{cpu: '1'}}}}}}]}}
status: {{phase: Running, startTime: '2026-01-01T10:00:00Z', conditions: [{{type: Ready, status: 'True', \
                 lastTransitionTime: '2026-01-01T10:00:05Z'}}]}}"
            )
        };
        let parse = |text: String| serde_json::from_value(values(&text).remove(0)).unwrap();
        (0..count).map(pod).map(parse).collect()
    }

    fn metrics(of: &[i64]) -> PodMetrics {
        let metric = |value: &i64| PodMetric {
            value: *value,
            timestamp: noon(),
            window: Duration::from_secs(30),
        };
        of.iter()
            .enumerate()
            .map(|(index, value)| (format!("p{index}"), metric(value)))
            .collect()
    }

    fn replicas(count: usize, used: &[i64]) -> i64 {
        let current = count as i64;
        by_pods(
            current,
            &pods(count, ""),
            metrics(used),
            HALF_OF_CPU,
            TOLERANCES,
            noon(),
        )
        .unwrap()
        .replicas
    }

    #[test]
    fn replicas_follow_the_utilization_beyond_the_tolerance() {
        assert_eq!(replicas(3, &[300, 500, 700]), 3);
        assert_eq!(replicas(3, &[540, 540, 540]), 3);
        assert_eq!(replicas(3, &[700, 700, 700]), 5);
        assert_eq!(replicas(4, &[100, 100, 100, 100]), 1);
    }

    #[test]
    fn pods_without_metrics_dampen_the_change() {
        // Two of four are idle; the others count as fully busy.
        assert_eq!(replicas(4, &[100, 100]), 4);
        // Two of four are overloaded; the others count as idle.
        assert_eq!(replicas(4, &[1000, 1000]), 4);
        assert_eq!(replicas(4, &[2000, 2000]), 8);
    }

    #[test]
    fn pods_that_leave_or_start_do_not_count() {
        let deleting = pods(2, ", deletionTimestamp: '2026-01-01T12:00:00Z'");
        let failed = by_pods(2, &deleting, metrics(&[900, 900]), HALF_OF_CPU, TOLERANCES, noon());
        assert_eq!(
            failed.unwrap_err(),
            "did not receive metrics for targeted pods (pods might be unready)"
        );
        let mut starting = pods(2, "");
        starting[1].status.start_time = Some("2026-01-01T11:59:00Z".to_owned());
        starting[1].status.conditions[0]["status"] = "False".into();
        let proposal = by_pods(2, &starting, metrics(&[500, 900]), HALF_OF_CPU, TOLERANCES, noon()).unwrap();
        assert_eq!((proposal.replicas, proposal.utilization), (2, Some(50)));
    }

    #[test]
    fn a_share_of_nothing_is_an_error() {
        let mut pods = pods(1, "");
        pods[0].spec.containers[0].resources.requests.clear();
        let error = by_pods(1, &pods, metrics(&[900]), HALF_OF_CPU, TOLERANCES, noon()).unwrap_err();
        assert_eq!(error, "missing request for cpu in container c of Pod p0");
    }

    #[test]
    fn values_scale_all_pods_and_averages_share_them_out() {
        let four = pods(4, "");
        let by = |usage| by_value(4, &four, usage, 10_000, TOLERANCES).unwrap().replicas;
        assert_eq!([by(10_500), by(20_000), by(2_000)], [4, 8, 1]);
        assert_eq!(by_value(0, &[], 25_000, 10_000, TOLERANCES).unwrap().replicas, 3);
        let average = |usage| by_average(4, usage, 10_000, TOLERANCES).replicas;
        assert_eq!([average(41_000), average(61_000), average(5_000)], [4, 7, 1]);
        assert_eq!(by_average(0, 15_000, 10_000, TOLERANCES).replicas, 2);
    }
}
