//! What is read of a StatefulSet, with the defaults of the API, and the names that follow from it.

use api::selector::Selector;
use api::{Fields, LabelSelector, ObjectMeta, Value};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::amount::scaled;
use crate::model::with_metadata;

with_metadata!(StatefulSet);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    pub metadata: ObjectMeta,
    pub spec: StatefulSetSpec,
    pub status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatefulSetSpec {
    pub replicas: Option<i64>,
    pub selector: LabelSelector,
    pub service_name: String,
    pub template: Option<Box<RawValue>>,
    /// As they are written, to be copied.
    pub volume_claim_templates: Vec<Value>,
    pub pod_management_policy: String,
    pub update_strategy: UpdateStrategy,
    pub min_ready_seconds: i64,
    pub revision_history_limit: Option<i64>,
    pub persistent_volume_claim_retention_policy: RetentionPolicy,
    pub ordinals: Ordinals,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UpdateStrategy {
    #[serde(rename = "type")]
    kind: String,
    rolling_update: Option<RollingUpdate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RollingUpdate {
    partition: i64,
    max_unavailable: Value,
}

/// When the claims of pods go: with the set, and with a pod that is scaled away.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RetentionPolicy {
    when_deleted: String,
    when_scaled: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    start: i64,
}

impl RetentionPolicy {
    pub fn deletes_with_set(&self) -> bool {
        self.when_deleted == "Delete"
    }

    pub fn deletes_when_scaled(&self) -> bool {
        self.when_scaled == "Delete"
    }
}

impl StatefulSet {
    pub fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1)
    }

    pub fn start(&self) -> i64 {
        self.spec.ordinals.start
    }

    /// The ordinals of the wanted pods.
    pub fn ordinals(&self) -> std::ops::Range<i64> {
        self.start()..self.start() + self.replicas()
    }

    pub fn selector(&self) -> Selector {
        Selector::from(&self.spec.selector)
    }

    pub fn template(&self) -> Value {
        let text = self.spec.template.as_deref().map_or("null", RawValue::get);
        // The text was part of an object that parsed.
        serde_json::from_str(text).unwrap_or_default()
    }

    /// One pod after the other, each only when those before it are available.
    pub fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy != "Parallel"
    }

    pub fn is_rolling_update(&self) -> bool {
        self.spec.update_strategy.kind != "OnDelete"
    }

    /// Pods below this ordinal keep the current template.
    pub fn partition(&self) -> Option<i64> {
        self.spec
            .update_strategy
            .rolling_update
            .as_ref()
            .map(|rolling| rolling.partition)
    }

    pub fn max_unavailable(&self) -> i64 {
        let rolling = self.spec.update_strategy.rolling_update.as_ref();
        let value = rolling.map_or(&Value::Null, |rolling| &rolling.max_unavailable);
        scaled(value, "1", self.replicas(), false).max(1)
    }

    pub fn pod_name(&self, ordinal: i64) -> String {
        format!("{}-{ordinal}", self.metadata.name)
    }

    /// The ordinal in a pod's name, if it is one of this set's.
    pub fn ordinal_of(&self, pod: &str) -> Option<i64> {
        let digits = pod.strip_prefix(self.metadata.name.as_str())?.strip_prefix('-')?;
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| plain)
    }

    pub fn claim_name(&self, template: &Value, ordinal: i64) -> String {
        format!("{}-{}-{ordinal}", template["metadata"].text("name"), self.metadata.name)
    }

    pub fn claim_names(&self, ordinal: i64) -> impl Iterator<Item = String> {
        let templates = self.spec.volume_claim_templates.iter();
        templates.map(move |template| self.claim_name(template, ordinal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_known_by_their_names() {
        let mut set = StatefulSet::default();
        set.metadata.name = "web".to_owned();
        assert_eq!(set.ordinal_of("web-12"), Some(12));
        assert_eq!(set.ordinal_of("web-x"), None);
        assert_eq!(set.ordinal_of("web-1-2"), None);
        assert_eq!(set.ordinal_of("web--2"), None);
        assert_eq!(set.ordinal_of("other-1"), None);
    }
}
