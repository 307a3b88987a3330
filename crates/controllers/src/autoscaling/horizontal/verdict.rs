//! What an autoscaler does: scale its target or not, and what it says about that.

use api::kinds::horizontal_pod_autoscaler::HORIZONTAL_POD_AUTOSCALER;
use api::{Fields, Resource, Value};
use client::when::Moment;
use client::{EventType, ObjectReference};
use serde_json::json;

use super::limits::{self, Bounds, History};
use super::measure::{Evaluated, Unavailable};
use super::model::{Autoscaler, Scale};
use crate::conditions::{self, Condition};
use crate::plan::{Action, Announce, Event, Plan, Put};
use crate::status;

/// What was found out about the target of an autoscaler.
pub enum Observation {
    /// There is no scale to be had, and why.
    NoScale(String),
    Measured {
        resource: &'static Resource,
        scale: Box<Scale>,
        /// One outcome for each metric, in their order; none where [`needs_metrics`] says so.
        metrics: Vec<Result<Evaluated, Unavailable>>,
    },
}

pub struct View<'a> {
    pub autoscaler: &'a Autoscaler,
    pub observation: Observation,
    /// Why the last plan could not be carried out.
    pub failed_before: Option<&'a str>,
    pub now: Moment,
}

/// Replicas that the metrics agree on.
struct Proposed<'a> {
    replicas: i64,
    metric: &'a str,
}

struct Verdict<'a> {
    view: &'a View<'a>,
    plan: Plan,
    conditions: Vec<Value>,
    metrics: Vec<Value>,
}

/// Whether the metrics decide; they do not while the target is switched off or outside of its bounds.
pub fn needs_metrics(autoscaler: &Autoscaler, scale: &Scale) -> bool {
    let current = scale.spec.replicas;
    let is_off = current == 0 && autoscaler.min_replicas() != 0;
    let within = autoscaler.min_replicas()..=autoscaler.spec.max_replicas;
    !is_off && within.contains(&current) && !scale.status.selector.is_empty()
}

pub fn plan(view: &View<'_>, history: &mut History) -> Plan {
    let mut verdict = Verdict {
        view,
        plan: Plan::default(),
        conditions: view.autoscaler.status.list("conditions").to_vec(),
        metrics: view.autoscaler.status.list("currentMetrics").to_vec(),
    };
    match &view.observation {
        Observation::NoScale(error) => verdict.no_scale(error),
        Observation::Measured {
            resource,
            scale,
            metrics,
        } => verdict.decide(resource, scale, metrics, history),
    }
    verdict.plan
}

impl Verdict<'_> {
    fn no_scale(&mut self, error: &str) {
        self.warn("FailedGetScale", error.to_owned());
        let message = format!("the HPA controller was unable to get the target's current scale: {error}");
        self.say("AbleToScale", "False", "FailedGetScale", message);
        self.finish(None, None, false);
    }

    fn decide(
        &mut self,
        resource: &'static Resource,
        scale: &Scale,
        metrics: &[Result<Evaluated, Unavailable>],
        history: &mut History,
    ) {
        let message = "the HPA controller was able to get the target's current scale";
        self.say("AbleToScale", "True", "SucceededGetScale", message.to_owned());
        let current = scale.spec.replicas;
        let failed_before = self.view.failed_before;
        let is_unwritten = history.settle_last_scale(current, failed_before.is_some());
        let scale_error = failed_before.filter(|_| is_unwritten);
        let bounds = Bounds {
            min: self.view.autoscaler.min_replicas(),
            max: self.view.autoscaler.spec.max_replicas,
        };
        if current == 0 && bounds.min != 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            self.say("ScalingActive", "False", "ScalingDisabled", message.to_owned());
            return self.finish(Some(scale), Some(0), false);
        }
        let (desired, reason) = if current > bounds.max {
            (
                bounds.max,
                "Current number of replicas above Spec.MaxReplicas".to_owned(),
            )
        } else if current < bounds.min {
            (
                bounds.min,
                "Current number of replicas below Spec.MinReplicas".to_owned(),
            )
        } else {
            if scale.status.selector.is_empty() {
                self.warn("SelectorRequired", "selector is required".to_owned());
                let message = "the HPA target's scale is missing a selector";
                self.say("ScalingActive", "False", "InvalidSelector", message.to_owned());
                return self.finish(Some(scale), None, false);
            }
            let Some(proposed) = self.propose(current, metrics) else {
                return self.finish(Some(scale), None, false);
            };
            let behavior = self.view.autoscaler.spec.behavior.as_ref();
            let limited = limits::limit(proposed.replicas, current, bounds, behavior, history, self.view.now);
            self.say("AbleToScale", "True", limited.able.0, limited.able.1.to_owned());
            let (status, reason, message) = limited.limited;
            self.say("ScalingLimited", status, reason, message.to_owned());
            let reason = match proposed.replicas > current {
                true => format!("{} above target", proposed.metric),
                false => "All metrics below target".to_owned(),
            };
            (limited.replicas, reason)
        };
        let rescales = desired != current;
        if rescales {
            history.record_scale(current, desired, self.view.now);
            self.say_rescaled(desired, scale_error);
            self.rescale(resource, scale, desired, &reason);
        }
        self.finish(Some(scale), Some(desired), rescales);
    }

    /// The most that any metric asks for. Where some cannot be read, the target only grows.
    fn propose<'m>(&mut self, current: i64, metrics: &'m [Result<Evaluated, Unavailable>]) -> Option<Proposed<'m>> {
        let readable = || metrics.iter().filter_map(|metric| metric.as_ref().ok());
        let unreadable: Vec<&Unavailable> = metrics.iter().filter_map(|metric| metric.as_ref().err()).collect();
        for metric in &unreadable {
            self.warn(metric.reason, metric.message.clone());
        }
        self.metrics = readable().map(|metric| metric.status.clone()).collect();
        let mut best: Option<&Evaluated> = None;
        for metric in readable() {
            if best.is_none_or(|best| metric.replicas > best.replicas) {
                best = Some(metric);
            }
        }
        if let Some(first) = unreadable.first()
            && best.is_none_or(|best| best.replicas < current)
        {
            let message = format!("the HPA was unable to compute the replica count: {}", first.message);
            self.say("ScalingActive", "False", first.reason, message);
            let (count, all) = (unreadable.len(), metrics.len());
            let message = format!(
                "invalid metrics ({count} invalid out of {all}), first error is: {}",
                first.message
            );
            self.warn("FailedComputeMetricsReplicas", message);
            return None;
        }
        let best = best?;
        let message = format!(
            "the HPA was able to successfully calculate a replica count from {}",
            best.name
        );
        self.say("ScalingActive", "True", "ValidMetricFound", message);
        Some(Proposed {
            replicas: best.replicas,
            metric: &best.name,
        })
    }

    fn say_rescaled(&mut self, desired: i64, scale_error: Option<&str>) {
        match scale_error {
            Some(error) => {
                let message = format!("the HPA controller was unable to update the target scale: {error}");
                self.say("AbleToScale", "False", "FailedUpdateScale", message);
            }
            None => {
                let message = format!("the HPA controller was able to update the target scale to {desired}");
                self.say("AbleToScale", "True", "SucceededRescale", message);
            }
        }
    }

    fn rescale(&mut self, resource: &'static Resource, scale: &Scale, desired: i64, reason: &str) {
        let metadata = &scale.metadata;
        self.plan.actions.push(Action::Put(Put {
            resource,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            subresource: "scale",
            object: json!({
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {
                    "name": metadata.name,
                    "namespace": metadata.namespace,
                    "uid": metadata.uid,
                    "resourceVersion": metadata.resource_version,
                },
                "spec": {"replicas": desired},
            }),
            announce: Some(Announce {
                about: self.about(),
                success: ("SuccessfulRescale", format!("New size: {desired}; reason: {reason}")),
                failure: Some((
                    "FailedRescale",
                    format!("New size: {desired}; reason: {reason}; error: ").into(),
                )),
            }),
        }));
    }

    fn finish(&mut self, scale: Option<&Scale>, desired: Option<i64>, rescales: bool) {
        let autoscaler = self.view.autoscaler;
        let known = &autoscaler.status;
        let mut next = json!({
            "observedGeneration": autoscaler.metadata.generation,
            "conditions": self.conditions,
            "currentMetrics": self.metrics,
        });
        if let Some(scale) = scale {
            next["currentReplicas"] = scale.spec.replicas.into();
        }
        next["desiredReplicas"] = match desired {
            Some(desired) => desired.into(),
            None => known["desiredReplicas"].as_i64().unwrap_or_default().into(),
        };
        if rescales {
            next["lastScaleTime"] = self.view.now.to_time().into();
        }
        self.plan.status = status::patch(&HORIZONTAL_POD_AUTOSCALER, &autoscaler.metadata, known, next);
    }

    fn say(&mut self, kind: &str, status: &str, reason: &str, message: String) {
        let wanted = Condition {
            kind,
            status,
            reason,
            message,
        };
        conditions::set(&mut self.conditions, &wanted, self.view.now);
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.plan.actions.push(Action::Event(Event {
            about: self.about(),
            kind: EventType::Warning,
            reason,
            message,
        }));
    }

    fn about(&self) -> ObjectReference {
        ObjectReference::new(&HORIZONTAL_POD_AUTOSCALER, &self.view.autoscaler.metadata)
    }
}

#[cfg(test)]
mod tests {
    use api::kinds::deployment::DEPLOYMENT;
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object, values};

    /// A metric that asks for this many replicas, or cannot be read.
    fn metric(replicas: Option<i64>) -> Result<Evaluated, Unavailable> {
        match replicas {
            Some(replicas) => Ok(Evaluated {
                replicas,
                name: "cpu resource utilization (percentage of request)".to_owned(),
                status: json!({"type": "Resource"}),
            }),
            None => Err(Unavailable {
                reason: "FailedGetResourceMetric",
                message: "failed to get cpu utilization: unable to get metrics".to_owned(),
            }),
        }
    }

    fn observe(current: i64, metrics: &[Option<i64>]) -> Observation {
        let scale = format!(
            "metadata: {{name: web, namespace: team, uid: d, resourceVersion: '7'}}
spec: {{replicas: {current}}}
status: {{replicas: {current}, selector: app=web}}"
        );
        Observation::Measured {
            resource: &DEPLOYMENT,
            scale: Box::new(serde_json::from_value(values(&scale).remove(0)).unwrap()),
            metrics: metrics.iter().map(|replicas| metric(*replicas)).collect(),
        }
    }

    fn plan_after(failed_before: Option<&str>, observation: Observation, history: &mut History) -> Plan {
        let autoscaler = object::<Autoscaler>(
            "metadata: {name: web, namespace: team, uid: h, resourceVersion: '3', generation: 1}
spec: {minReplicas: 2, maxReplicas: 10}
status: {}",
        );
        let view = View {
            autoscaler: &autoscaler,
            observation,
            failed_before,
            now: noon(),
        };
        plan(&view, history)
    }

    fn check(observation: Observation, expected: Expect) {
        let plan = plan_after(None, observation, &mut History::default());
        let mut text: String = plan.actions.iter().map(|action| format!("{action}\n")).collect();
        if let Some(status) = &plan.status {
            let conditions = status.body["status"].list("conditions").iter();
            for one in conditions {
                text += &format!("{} {} {}\n", one.text("type"), one.text("status"), one.text("reason"));
            }
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn the_target_grows_with_its_metrics_up_to_its_bounds() {
        check(
            observe(4, &[Some(5), Some(7)]),
            expect![[r#"
                put deployments team/web/scale: {"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","namespace":"team","resourceVersion":"7","uid":"d"},"spec":{"replicas":7}}
                AbleToScale True SucceededRescale
                ScalingActive True ValidMetricFound
                ScalingLimited False DesiredWithinRange
            "#]],
        );
        check(
            observe(12, &[]),
            expect![[r#"
                put deployments team/web/scale: {"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","namespace":"team","resourceVersion":"7","uid":"d"},"spec":{"replicas":10}}
                AbleToScale True SucceededRescale
            "#]],
        );
    }

    /// The conditions and the texts of the target's change.
    fn able_to_scale(plan: &Plan) -> (&str, &str) {
        let status = plan.status.as_ref().expect("a status");
        let mut conditions = status.body["status"].list("conditions").iter();
        let able = conditions
            .find(|one| one.text("type") == "AbleToScale")
            .expect("a condition");
        (able.text("status"), able.text("reason"))
    }

    #[test]
    fn a_change_that_could_not_be_written_does_not_count_and_is_told() {
        let mut history = History::default();
        let first = plan_after(None, observe(4, &[Some(6)]), &mut history);
        assert_eq!(able_to_scale(&first), ("True", "SucceededRescale"));
        assert_eq!(history.scaled_up, [(noon(), 2)]);
        let again = plan_after(Some("no"), observe(4, &[Some(6)]), &mut history);
        assert_eq!(able_to_scale(&again), ("False", "FailedUpdateScale"));
        assert_eq!(history.scaled_up, [(noon(), 2)], "of two tries one counts");
        let put = again.actions.iter().find_map(|action| match action {
            Action::Put(put) => put.announce.as_ref(),
            _ => None,
        });
        let (reason, text) = put.and_then(|announce| announce.failure.as_ref()).expect("a failure");
        let metric = "cpu resource utilization (percentage of request)";
        assert_eq!(*reason, "FailedRescale");
        assert_eq!(*text, format!("New size: 6; reason: {metric} above target; error: "));
    }

    /// The target was scaled, and only the autoscaler's own status could not be written.
    #[test]
    fn a_change_counts_although_the_status_could_not_be_written() {
        let mut history = History::default();
        plan_after(None, observe(4, &[Some(6)]), &mut history);
        let after = plan_after(Some("conflict"), observe(6, &[Some(8)]), &mut history);
        assert_eq!(able_to_scale(&after), ("True", "SucceededRescale"));
        assert_eq!(history.scaled_up, [(noon(), 2), (noon(), 2)]);
    }

    #[test]
    fn metrics_that_cannot_be_read_never_shrink_the_target() {
        check(
            observe(4, &[Some(2), None]),
            expect![[r#"
                event Warning FailedGetResourceMetric: failed to get cpu utilization: unable to get metrics
                event Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 2), first error is: failed to get cpu utilization: unable to get metrics
                AbleToScale True SucceededGetScale
                ScalingActive False FailedGetResourceMetric
            "#]],
        );
        check(
            observe(4, &[Some(6), None]),
            expect![[r#"
                event Warning FailedGetResourceMetric: failed to get cpu utilization: unable to get metrics
                put deployments team/web/scale: {"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","namespace":"team","resourceVersion":"7","uid":"d"},"spec":{"replicas":6}}
                AbleToScale True SucceededRescale
                ScalingActive True ValidMetricFound
                ScalingLimited False DesiredWithinRange
            "#]],
        );
    }

    #[test]
    fn a_target_that_is_switched_off_or_missing_is_left_alone() {
        check(
            observe(0, &[]),
            expect![[r#"
                AbleToScale True SucceededGetScale
                ScalingActive False ScalingDisabled
            "#]],
        );
        check(
            Observation::NoScale("deployments.apps \"web\" not found".to_owned()),
            expect![[r#"
                event Warning FailedGetScale: deployments.apps "web" not found
                AbleToScale False FailedGetScale
            "#]],
        );
    }
}
