//! StatefulSet: pods with lasting names and volumes.

use super::persistent_volume_claim::default_claim;
use super::replica_set::clear_status;
use crate::pod_spec::default_template;
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Subresource, Value};

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
            default_claim(claim);
        }
        default_template(spec);
    }

    fn prepare_create(&self, set: &mut Value) {
        clear_status(set);
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
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Ready", "Pods that are ready, of all that are wanted."),
    AGE,
    CONTAINERS,
    IMAGES,
];
