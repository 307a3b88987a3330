//! DaemonSet: one pod on every matching node.

use crate::pod_spec::{default_template, drop_disabled_in};
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME, SELECTOR};
use crate::warnings;
use crate::workload::{amount, validate_counts, validate_running, validate_selector_stays, validate_share};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value};

pub static DAEMON_SET: Resource = Resource::namespaced("apps", "v1", "DaemonSet", "daemonsets", "daemonset")
    .short(&["ds"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::STATUS])
    .with_rules(&DaemonSetRules);

struct DaemonSetRules;

impl Rules for DaemonSetRules {
    fn default(&self, set: &mut Value) {
        let spec = set.ensure("spec");
        let strategy = spec.ensure("updateStrategy");
        strategy.fill("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate" {
            let rolling = strategy.ensure("rollingUpdate");
            rolling.fill_absent("maxUnavailable", 1);
            rolling.fill_absent("maxSurge", 0);
        }
        spec.fill("revisionHistoryLimit", 10);
        default_template(spec);
        // Whoever writes a set owns this, too.
        set.ensure("metadata")
            .ensure("annotations")
            .fill(TEMPLATE_GENERATION, "0");
    }

    fn prepare_create(&self, set: &mut Value) {
        // The template's own generation is long unused, but every new set starts with it.
        set.ensure("metadata")
            .ensure("annotations")
            .set(TEMPLATE_GENERATION, "1");
        let zeros = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
        ];
        set.set("status", Value::from_iter(zeros.map(|field| (field, 0))));
        drop_disabled_in(set, &Value::Null, &["spec", "template"]);
    }

    /// Counts the versions of the template in the annotation that old clients still read.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        let count = old["metadata"]["annotations"]
            .text(TEMPLATE_GENERATION)
            .parse::<i64>()
            .unwrap_or(0);
        drop_disabled_in(new, old, &["spec", "template"]);
        let moved = i64::from(new["spec"]["template"] != old["spec"]["template"]);
        new.ensure("metadata")
            .ensure("annotations")
            .set(TEMPLATE_GENERATION, (count + moved).to_string());
    }

    fn validate(&self, set: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&set["spec"], Path::new("spec"));
        for field in ["minReadySeconds", "revisionHistoryLimit"] {
            problems.not_negative(spec, &path, field);
        }
        validate_running(spec, "daemonset", "DaemonSet", &path, &mut problems);
        validate_strategy(&spec["updateStrategy"], &path.child("updateStrategy"), &mut problems);
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate_selector_stays(new, old)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let counts = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        validate_counts(new, &counts).into_vec()
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
        vec![
            print::name(set),
            status.number("desiredNumberScheduled").into(),
            status.number("currentNumberScheduled").into(),
            status.number("numberReady").into(),
            status.number("updatedNumberScheduled").into(),
            status.number("numberAvailable").into(),
            print::labels(&spec["template"]["spec"]["nodeSelector"]),
            print::age(set, now),
            containers,
            images,
            print::selector(&spec["selector"]),
        ]
    }

    fn warnings(&self, set: &Value) -> Vec<String> {
        warnings::of_template(set, &["spec", "template"])
    }

    /// To upstream this is a field that only the versions of the API show as an annotation, and rows are made before
    /// that.
    fn adjust_partial_metadata(&self, metadata: &mut Value) {
        let Some(metadata) = metadata.as_object_mut() else {
            return;
        };
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        let empty = annotations.is_some_and(|annotations| {
            annotations.remove("deprecated.daemonset.template.generation");
            annotations.is_empty()
        });
        if empty {
            metadata.remove("annotations");
        }
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn validate_strategy(strategy: &Value, path: &Path, problems: &mut Problems) {
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            let path = path.child("rollingUpdate");
            for field in ["maxUnavailable", "maxSurge"] {
                validate_share(rolling, field, &path, problems);
            }
            match (amount(rolling, "maxUnavailable"), amount(rolling, "maxSurge")) {
                (0, 0) => problems.required(&path, "maxUnavailable", "cannot be 0 when maxSurge is 0"),
                (unavailable, surge) if unavailable != 0 && surge != 0 => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    problems.invalid(&path, "maxSurge", rolling["maxSurge"].clone(), detail);
                }
                _ => {}
            }
        }
        _ => {
            let kinds = &["RollingUpdate", "OnDelete"];
            problems.extend([FieldError::not_supported(path, strategy.clone(), kinds)]);
        }
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::integer("Desired", "Nodes that should run the pod."),
    print::integer("Current", "Nodes that run the pod."),
    print::integer("Ready", "Nodes on which the pod is ready."),
    print::integer("Up-to-date", "Nodes that run the present template."),
    print::integer("Available", "Nodes on which the pod has been ready for long enough."),
    print::text("Node Selector", "The labels of the nodes that are meant."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
