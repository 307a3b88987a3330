//! What is read of a DaemonSet, with the defaults of the API.

use api::selector::Selector;
use api::{LabelSelector, ObjectMeta, Value};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::amount::scaled;
use crate::model::with_metadata;

/// The annotation in which the API server counts the templates.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

with_metadata!(DaemonSet);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    pub metadata: ObjectMeta,
    pub spec: DaemonSetSpec,
    pub status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DaemonSetSpec {
    pub selector: LabelSelector,
    pub template: Option<Box<RawValue>>,
    pub update_strategy: UpdateStrategy,
    pub min_ready_seconds: i64,
    pub revision_history_limit: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UpdateStrategy {
    #[serde(rename = "type")]
    pub kind: String,
    pub rolling_update: RollingUpdate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    max_unavailable: Value,
    max_surge: Value,
}

/// How far a rollout may go from one pod on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub surge: i64,
    pub unavailable: i64,
}

impl DaemonSet {
    pub fn selector(&self) -> Selector {
        Selector::from(&self.spec.selector)
    }

    pub fn template(&self) -> Value {
        let text = self.spec.template.as_deref().map_or("null", RawValue::get);
        // The text was part of an object that parsed.
        serde_json::from_str(text).unwrap_or_default()
    }

    pub fn template_generation(&self) -> Option<String> {
        self.metadata.annotations.get(TEMPLATE_GENERATION).cloned()
    }

    pub fn is_rolling_update(&self) -> bool {
        self.spec.update_strategy.kind != "OnDelete"
    }

    pub fn allows_surge(&self) -> bool {
        self.is_rolling_update() && self.bounds(1).surge > 0
    }

    /// Were both zero, nothing could ever move.
    pub fn bounds(&self, desired: i64) -> Bounds {
        let rolling = &self.spec.update_strategy.rolling_update;
        let surge = scaled(&rolling.max_surge, "0", desired, true);
        let unavailable = scaled(&rolling.max_unavailable, "1", desired, true);
        match (surge, unavailable) {
            (0, 0) => Bounds { surge, unavailable: 1 },
            _ => Bounds { surge, unavailable },
        }
    }
}
