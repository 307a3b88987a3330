//! Deployment: a rolling set of ReplicaSets.

use crate::pod_spec::default_template;
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME, SELECTOR};
use crate::{Column, Fields, Generation, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static DEPLOYMENT: Resource = Resource::namespaced("apps", "v1", "Deployment", "deployments", "deployment")
    .short(&["deploy"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::SCALE, Subresource::STATUS])
    .with_rules(&DeploymentRules);

struct DeploymentRules;

impl Rules for DeploymentRules {
    fn default(&self, deployment: &mut Value) {
        let spec = deployment.ensure("spec");
        spec.fill("replicas", 1);
        let strategy = spec.ensure("strategy");
        strategy.fill("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate" {
            let rolling = strategy.ensure("rollingUpdate");
            rolling.fill("maxUnavailable", "25%");
            rolling.fill("maxSurge", "25%");
        }
        spec.fill("revisionHistoryLimit", 10);
        spec.fill("progressDeadlineSeconds", 600);
        default_template(spec);
    }

    fn prepare_create(&self, deployment: &mut Value) {
        deployment.set("status", json!({}));
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, deployment: &Value, now: i64) -> Vec<Value> {
        let (spec, status) = (&deployment["spec"], &deployment["status"]);
        let [containers, images] = print::containers(&spec["template"]["spec"]);
        vec![
            print::name(deployment),
            format!("{}/{}", status.number("readyReplicas"), spec.number("replicas")).into(),
            status.number("updatedReplicas").into(),
            status.number("availableReplicas").into(),
            print::age(deployment, now),
            containers,
            images,
            print::selector(&spec["selector"]),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Ready", "Pods that are ready, of all that are wanted."),
    print::text("Up-to-date", "Pods made from the present template."),
    print::text("Available", "Pods that have been ready for long enough."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
