//! HorizontalPodAutoscalers.

use api::Value;
use api::kinds::deployment::DEPLOYMENT;
use api::kinds::horizontal_pod_autoscaler::HORIZONTAL_POD_AUTOSCALER;

use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::{Look, between};
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &HORIZONTAL_POD_AUTOSCALER,
    reads: &[&DEPLOYMENT],
    state,
    checks: &[cannot_scale, metrics_are_missing, is_limited],
};

fn state(_: &Facts, autoscaler: &Value) -> State {
    let (current, desired) = (
        autoscaler.int("status.currentReplicas"),
        autoscaler.int("status.desiredReplicas"),
    );
    let bad = |kind: &str| autoscaler.condition_is(kind, "False").is_some();
    match bad("AbleToScale") || bad("ScalingActive") {
        true => State::Unhealthy(format!("scaling fails; the target has {current} replicas.")),
        false => State::Healthy(format!("its target has {current} of {desired} desired replicas.")),
    }
}

fn target(autoscaler: &Value) -> String {
    let target = autoscaler.at("spec.scaleTargetRef");
    format!("{}/{}", target.str("kind").to_lowercase(), target.str("name"))
}

fn cannot_scale(_: &Facts, autoscaler: &Value) -> Vec<Finding> {
    let Some(condition) = autoscaler.condition_is("AbleToScale", "False") else {
        return Vec::new();
    };
    let message = condition.str("message");
    let finding = match message.contains("not found") {
        true => Finding::broken(
            "scale-target-missing",
            format!("Its scale target {} does not exist.", target(autoscaler)),
        )
        .next("Correct spec.scaleTargetRef, or create the target."),
        false => Finding::broken("cannot-scale", format!("Scaling {} fails.", target(autoscaler))),
    };
    vec![finding.detail(message)]
}

fn metrics_are_missing(_: &Facts, autoscaler: &Value) -> Vec<Finding> {
    let Some(condition) = autoscaler.condition_is("ScalingActive", "False") else {
        return Vec::new();
    };
    let message = condition.str("message");
    if condition.str("reason") == "ScalingDisabled" {
        return vec![
            Finding::waiting(
                "scaling-disabled",
                format!("{} is scaled to 0, which disables autoscaling.", target(autoscaler)),
            )
            .next("Scale the target to at least 1 replica."),
        ];
    }
    if let Some((_, rest)) = message.split_once("missing request for ") {
        let resource = rest.split(' ').next().unwrap_or("cpu");
        let container = between(rest, "in container ", " of").unwrap_or("?");
        return vec![
            Finding::broken(
                "no-request",
                format!(
                    "It scales on {resource} utilization, but container \"{container}\" has no {resource} request."
                ),
            )
            .detail(message)
            .next(format!("Set resources.requests.{resource} in {}.", target(autoscaler))),
        ];
    }
    let is_resource = condition.str("reason").contains("ResourceMetric");
    let finding = Finding::broken(
        "metrics-missing",
        format!(
            "The metrics it scales on are unavailable ({}).",
            condition.str("reason")
        ),
    )
    .detail(message);
    vec![match is_resource {
        true => finding.next("Pods that have just started have no metrics yet. Otherwise check: kubectl top pods; kubectl get apiservice v1beta1.metrics.k8s.io"),
        false => finding.next("Check that a metrics adapter is installed: kubectl get apiservices | grep metrics"),
    }]
}

fn is_limited(_: &Facts, autoscaler: &Value) -> Vec<Finding> {
    let Some(condition) = autoscaler.condition_is("ScalingLimited", "True") else {
        return Vec::new();
    };
    let (least, most) = (
        autoscaler.at("spec.minReplicas").as_i64().unwrap_or(1),
        autoscaler.int("spec.maxReplicas"),
    );
    let finding = match condition.str("reason") {
        "TooManyReplicas" => Finding::waiting(
            "at-maximum",
            format!("Scaling up is limited by spec.maxReplicas {most}."),
        )
        .next("Raise maxReplicas, or give each pod more resources."),
        "TooFewReplicas" => Finding::note(
            "at-minimum",
            format!("Scaling down is limited by spec.minReplicas {least}."),
        ),
        _ => Finding::note("limited", "The scaling rate is limited by spec.behavior.").detail(condition.str("message")),
    };
    vec![finding]
}
