//! StatefulSet: pods with lasting names and volumes.

use std::collections::HashSet;

use super::persistent_volume_claim::default_claim;
use super::replica_set::clear_status;
use crate::names::dns1123_label;
use crate::pod_spec::validate_claim_spec;
use crate::pod_spec::{default_template, drop_disabled_in};
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME};
use crate::warnings;
use crate::workload::{validate_counts, validate_parts, validate_running};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value, repeats};
use serde_json::json;

pub static STATEFUL_SET: Resource = Resource::namespaced("apps", "v1", "StatefulSet", "statefulsets", "statefulset")
    .short(&["sts"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::SCALE, Subresource::STATUS])
    .with_rules(&StatefulSetRules);

struct StatefulSetRules;

impl Rules for StatefulSetRules {
    fn default(&self, set: &mut Value) {
        let spec = set.ensure("spec");
        spec.fill("podManagementPolicy", "OrderedReady");
        let strategy = spec.ensure("updateStrategy");
        if strategy.text("type").is_empty() {
            strategy.set("type", "RollingUpdate");
            strategy.ensure("rollingUpdate");
        }
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.child_mut("rollingUpdate")
        {
            rolling.fill("partition", 0);
        }
        let retention = spec.ensure("persistentVolumeClaimRetentionPolicy");
        retention.fill("whenDeleted", "Retain");
        retention.fill("whenScaled", "Retain");
        spec.fill("replicas", 1);
        spec.fill("revisionHistoryLimit", 10);
        for claim in spec.list_mut("volumeClaimTemplates") {
            claim.fill("apiVersion", "v1");
            claim.fill("kind", "PersistentVolumeClaim");
            default_claim(claim);
        }
        default_template(spec);
    }

    fn prepare_create(&self, set: &mut Value) {
        clear_status(set);
        drop_unavailable(set);
        drop_disabled_in(set, &Value::Null, &["spec", "template"]);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled_in(new, old, &["spec", "template"]);
        if !old["spec"]["updateStrategy"]["rollingUpdate"].has("maxUnavailable") {
            drop_unavailable(new);
        }
    }

    fn validate(&self, set: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&set["spec"], Path::new("spec"));
        for field in ["replicas", "minReadySeconds"] {
            problems.not_negative(spec, &path, field);
        }
        let service = spec.text("serviceName");
        if !service.is_empty() {
            problems.form(&path, "serviceName", service, dns1123_label(service, false));
        }
        problems.not_negative(&spec["ordinals"], &path.child("ordinals"), "start");
        if !matches!(spec.text("podManagementPolicy"), "OrderedReady" | "Parallel") {
            let policy = spec.text("podManagementPolicy");
            problems.invalid(
                &path,
                "podManagementPolicy",
                policy,
                "must be 'OrderedReady' or 'Parallel'",
            );
        }
        validate_strategy(&spec["updateStrategy"], &path.child("updateStrategy"), &mut problems);
        let retention = &spec["persistentVolumeClaimRetentionPolicy"];
        for field in ["whenDeleted", "whenScaled"] {
            let path = path.child("persistentVolumeClaimRetentionPolicy");
            problems.optional_one_of(retention, &path, field, &["Retain", "Delete"]);
        }
        validate_running(
            &with_claimed_volumes(spec),
            "statefulset",
            "StatefulSet",
            &path,
            &mut problems,
        );
        problems.into_vec()
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        dns1123_label(name, prefix)
    }

    fn validate_create(&self, set: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for (index, claim) in set["spec"].list("volumeClaimTemplates").iter().enumerate() {
            let path = Path::new("spec")
                .child("volumeClaimTemplates")
                .index(index)
                .child("spec");
            validate_claim_spec(&claim["spec"], &path, &mut problems);
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let fixed = |set: &Value| {
            let mut spec = set["spec"].clone();
            CHANGEABLE.iter().for_each(|field| drop(spec.remove(field)));
            spec
        };
        if fixed(new) != fixed(old) {
            let quoted: Vec<String> = CHANGEABLE.iter().map(|field| format!("'{field}'")).collect();
            let (last, first) = quoted
                .split_last()
                .map_or(("", &[][..]), |(last, first)| (last.as_str(), first));
            let detail = format!(
                "updates to statefulset spec for fields other than {} and {last} are forbidden",
                first.join(", ")
            );
            problems.forbidden(&Path::new("spec"), "", detail);
        }
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let parts = [
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ];
        let mut problems = validate_counts(new, &["replicas", "observedGeneration"]);
        problems.extend(validate_counts(new, &parts).into_vec());
        problems.extend(validate_counts(new, &["collisionCount"]).into_vec());
        validate_parts(new, "replicas", &parts, &mut problems);
        validate_parts(new, "readyReplicas", &["availableReplicas"], &mut problems);
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, set: &Value, now: i64) -> Vec<Value> {
        let (spec, status) = (&set["spec"], &set["status"]);
        let [containers, images] = print::containers(&spec["template"]["spec"]);
        let ready = format!("{}/{}", status.number("readyReplicas"), spec.number("replicas"));
        vec![print::name(set), ready.into(), print::age(set, now), containers, images]
    }

    fn warnings(&self, set: &Value) -> Vec<String> {
        let mut warnings = warnings::of_template(set, &["spec", "template"]);
        if set["spec"].number("revisionHistoryLimit") < 0 {
            let text = "a negative value retains all historical revisions; a value >= 0 is recommended";
            warnings.push(format!("spec.revisionHistoryLimit: {text}"));
        }
        warnings
    }
}

const CHANGEABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn validate_strategy(strategy: &Value, path: &Path, problems: &mut Problems) {
    match strategy.text("type") {
        "" => problems.required(path, "", ""),
        "OnDelete" if strategy.has("rollingUpdate") => {
            let value = strategy["rollingUpdate"].clone();
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            problems.invalid(path, "rollingUpdate", value, detail);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            problems.not_negative(&strategy["rollingUpdate"], &path.child("rollingUpdate"), "partition");
        }
        _ => problems.invalid(path, "", strategy.clone(), "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// More than one pod at a time is a feature that is off.
fn drop_unavailable(set: &mut Value) {
    let strategy = set.child_mut("spec").and_then(|spec| spec.child_mut("updateStrategy"));
    if let Some(rolling) = strategy.and_then(|strategy| strategy.child_mut("rollingUpdate")) {
        rolling.remove("maxUnavailable");
    }
}

/// The spec as its pods will see it: every claim is a volume of its own, instead of one of the same name.
fn with_claimed_volumes(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let claims: Vec<Value> = spec
        .list("volumeClaimTemplates")
        .iter()
        .map(|claim| claim["metadata"]["name"].clone())
        .collect();
    if claims.is_empty() {
        return spec;
    }
    let pod = spec.ensure("template").ensure("spec");
    let claimed: HashSet<&Value> = claims.iter().collect();
    let others = pod
        .list("volumes")
        .iter()
        .filter(|volume| !claimed.contains(&volume["name"]));
    let repeated = repeats(&claims);
    let own = claims
        .iter()
        .zip(repeated)
        .filter(|(_, repeated)| !repeated)
        .map(|(name, _)| name)
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let volumes: Vec<Value> = own.chain(others.cloned()).collect();
    pod.set("volumes", volumes);
    spec
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Ready", "Pods that are ready, of all that are wanted."),
    AGE,
    CONTAINERS,
    IMAGES,
];
