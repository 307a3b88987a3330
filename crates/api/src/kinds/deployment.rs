//! Deployment: a rolling set of ReplicaSets.

use crate::pod_spec::{default_template, drop_disabled_in};
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME, SELECTOR};
use crate::warnings;
use crate::workload::{
    amount, validate_amount, validate_available, validate_counts, validate_parts, validate_running,
    validate_selector_stays, validate_share,
};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static DEPLOYMENT: Resource = Resource::namespaced("apps", "v1", "Deployment", "deployments", "deployment")
    .short(&["deploy"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::SCALE, Subresource::STATUS])
    .resetting_on_status_update(&[&["spec"], &["metadata", "labels"]])
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
            rolling.fill_absent("maxUnavailable", "25%");
            rolling.fill_absent("maxSurge", "25%");
        }
        spec.fill("revisionHistoryLimit", 10);
        spec.fill("progressDeadlineSeconds", 600);
        default_template(spec);
    }

    fn prepare_create(&self, deployment: &mut Value) {
        deployment.set("status", json!({}));
        drop_disabled_in(deployment, &Value::Null, &["spec", "template"]);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled_in(new, old, &["spec", "template"]);
    }

    fn validate(&self, deployment: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&deployment["spec"], Path::new("spec"));
        for field in [
            "replicas",
            "minReadySeconds",
            "revisionHistoryLimit",
            "progressDeadlineSeconds",
        ] {
            problems.not_negative(spec, &path, field);
        }
        validate_running(spec, "deployment", "ReplicaSet", &path, &mut problems);
        validate_strategy(&spec["strategy"], &path.child("strategy"), &mut problems);
        let deadline = &spec["progressDeadlineSeconds"];
        if deadline
            .as_i64()
            .is_some_and(|seconds| seconds <= spec.number("minReadySeconds"))
        {
            let detail = "must be greater than minReadySeconds";
            problems.invalid(&path, "progressDeadlineSeconds", deadline.clone(), detail);
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate_selector_stays(new, old)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let counts = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ];
        let mut problems = validate_counts(new, &counts);
        let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
        validate_parts(new, "replicas", &parts, &mut problems);
        validate_available(new, &mut problems);
        problems.into_vec()
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

    fn warnings(&self, deployment: &Value) -> Vec<String> {
        warnings::of_template(deployment, &["spec", "template"])
    }
}

fn validate_strategy(strategy: &Value, path: &Path, problems: &mut Problems) {
    let rolling = &strategy["rollingUpdate"];
    let rolling_path = path.child("rollingUpdate");
    match strategy.text("type") {
        "Recreate" if rolling.is_object() => {
            problems.forbidden(
                path,
                "rollingUpdate",
                "may not be specified when strategy `type` is 'Recreate'",
            );
        }
        "Recreate" => {}
        "RollingUpdate" => {
            validate_share(rolling, "maxUnavailable", &rolling_path, problems);
            validate_amount(rolling, "maxSurge", &rolling_path, problems);
            if amount(rolling, "maxUnavailable") == 0 && amount(rolling, "maxSurge") == 0 {
                let value = rolling["maxUnavailable"].clone();
                problems.invalid(
                    &rolling_path,
                    "maxUnavailable",
                    value,
                    "may not be 0 when `maxSurge` is 0",
                );
            }
        }
        _ => {
            let kinds = &["Recreate", "RollingUpdate"];
            problems.extend([FieldError::not_supported(path, strategy.clone(), kinds)]);
        }
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

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn deployment(changes: Value) -> Value {
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]},
        });
        let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
        for (field, value) in changes.as_object().unwrap() {
            spec.set(field, value.clone());
        }
        let mut deployment = json!({"metadata": {"name": "web"}, "spec": spec});
        DEPLOYMENT.rules.default(&mut deployment);
        deployment
    }

    fn show(problems: Vec<FieldError>, expect: Expect) {
        expect.assert_eq(
            &problems
                .iter()
                .map(FieldError::to_string)
                .collect::<Vec<_>>()
                .join("\n"),
        );
    }

    #[test]
    fn a_new_deployment_rolls_a_quarter_at_a_time() {
        let mut spec = deployment(json!({}))["spec"].clone();
        spec.remove("template");
        expect![[r#"{"progressDeadlineSeconds":600,"replicas":1,"revisionHistoryLimit":10,"selector":{"matchLabels":{"app":"web"}},"strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}}"#]]
            .assert_eq(&spec.to_string());
    }

    #[test]
    fn the_selector_picks_the_template_and_stays() {
        let check = |changes: Value, expect: Expect| show(DEPLOYMENT.rules.validate(&deployment(changes)), expect);
        check(json!({}), expect![""]);
        check(
            json!({"selector": {"matchLabels": {"app": "other"}}, "replicas": -1}),
            expect![[r#"
                spec.replicas: Invalid value: -1: must be greater than or equal to 0
                spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`"#]],
        );
        check(
            json!({"selector": {}}),
            expect!["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
        );
        check(
            json!({"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}}),
            expect!["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
        );
        let changed = deployment(json!({"selector": {"matchLabels": {"app": "web", "x": "y"}}}));
        show(
            DEPLOYMENT.rules.validate_update(&changed, &deployment(json!({}))),
            expect![[r#"spec.selector: Invalid value: {"matchLabels":{"app":"web","x":"y"}}: field is immutable"#]],
        );
    }
}
