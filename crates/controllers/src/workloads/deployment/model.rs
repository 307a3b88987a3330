//! What is read of a Deployment, with the defaults of the API.

use api::selector::Selector;
use api::{LabelSelector, ObjectMeta, Value};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::amount::scaled;
use crate::model::with_metadata;

with_metadata!(Deployment);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Deployment {
    pub metadata: ObjectMeta,
    pub spec: DeploymentSpec,
    pub status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeploymentSpec {
    pub replicas: Option<i64>,
    /// As it is written, for the selectors of ReplicaSets.
    pub selector: Value,
    pub template: Option<Box<RawValue>>,
    pub strategy: Strategy,
    pub min_ready_seconds: i64,
    pub revision_history_limit: Option<i64>,
    pub paused: bool,
    pub progress_deadline_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Strategy {
    #[serde(rename = "type")]
    pub kind: String,
    pub rolling_update: Option<RollingUpdate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    pub max_surge: Value,
    pub max_unavailable: Value,
}

impl Deployment {
    pub fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1)
    }

    pub fn selector(&self) -> Selector {
        let selector = LabelSelector::deserialize(&self.spec.selector);
        selector.as_ref().map(Selector::from).unwrap_or_default()
    }

    pub fn template(&self) -> Value {
        let text = self.spec.template.as_deref().map_or("null", RawValue::get);
        // The text was part of an object that parsed.
        serde_json::from_str(text).unwrap_or_default()
    }

    pub fn is_rolling_update(&self) -> bool {
        self.spec.strategy.kind != "Recreate"
    }

    /// How many pods there may be beyond the wanted ones.
    pub fn max_surge(&self) -> i64 {
        if self.is_rolling_update() { self.bounds().0 } else { 0 }
    }

    /// How many of the wanted pods may be missing.
    pub fn max_unavailable(&self) -> i64 {
        if !self.is_rolling_update() || self.replicas() == 0 {
            return 0;
        }
        self.bounds().1.min(self.replicas())
    }

    /// `None` when progress is not watched: upstream writes the largest number for "never".
    pub fn progress_deadline_seconds(&self) -> Option<i64> {
        self.spec
            .progress_deadline_seconds
            .filter(|seconds| *seconds != i64::from(i32::MAX))
    }

    /// Surge rounds up and unavailability down; were both zero, nothing could ever move.
    fn bounds(&self) -> (i64, i64) {
        let rolling = self.spec.strategy.rolling_update.clone().unwrap_or_default();
        let surge = scaled(&rolling.max_surge, "25%", self.replicas(), true);
        let unavailable = scaled(&rolling.max_unavailable, "25%", self.replicas(), false);
        if surge == 0 && unavailable == 0 {
            return (0, 1);
        }
        (surge, unavailable)
    }
}
