//! What is read of autoscalers, of the scale of their targets and of the pods behind it.

use std::collections::BTreeMap;

use api::{LabelSelector, ObjectMeta, Value};
use serde::Deserialize;

use crate::model::with_metadata;

with_metadata!(Autoscaler);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Autoscaler {
    pub metadata: ObjectMeta,
    pub spec: AutoscalerSpec,
    pub status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AutoscalerSpec {
    pub scale_target_ref: TargetReference,
    pub min_replicas: Option<i64>,
    pub max_replicas: i64,
    pub metrics: Vec<MetricSpec>,
    pub behavior: Option<Behavior>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TargetReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MetricSpec {
    #[serde(rename = "type")]
    pub kind: String,
    pub resource: Option<ResourceMetric>,
    pub container_resource: Option<ResourceMetric>,
    pub pods: Option<NamedMetric>,
    pub object: Option<NamedMetric>,
    pub external: Option<NamedMetric>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceMetric {
    pub name: String,
    /// Only this container of each pod, in a metric of type ContainerResource.
    pub container: String,
    pub target: Target,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NamedMetric {
    pub metric: Identifier,
    pub described_object: TargetReference,
    pub target: Target,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Identifier {
    pub name: String,
    pub selector: Option<LabelSelector>,
}

/// What the metric should be: `Utilization`, `Value` or `AverageValue`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Target {
    pub value: String,
    pub average_value: String,
    pub average_utilization: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Behavior {
    pub scale_up: ScalingRules,
    pub scale_down: ScalingRules,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScalingRules {
    pub stabilization_window_seconds: Option<i64>,
    pub select_policy: String,
    pub policies: Vec<ScalingPolicy>,
    pub tolerance: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScalingPolicy {
    #[serde(rename = "type")]
    pub kind: String,
    pub value: i64,
    pub period_seconds: i64,
}

/// The subresource `scale` of a target.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Scale {
    pub metadata: ObjectMeta,
    pub spec: ScaleSpec,
    pub status: ScaleStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ScaleSpec {
    pub replicas: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ScaleStatus {
    pub replicas: i64,
    pub selector: String,
}

/// A pod with what its containers request; read for every calculation, never cached.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct MeasuredPod {
    pub metadata: ObjectMeta,
    pub spec: MeasuredSpec,
    pub status: MeasuredStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MeasuredSpec {
    pub containers: Vec<MeasuredContainer>,
    pub init_containers: Vec<MeasuredContainer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MeasuredContainer {
    pub name: String,
    pub restart_policy: String,
    pub resources: Requests,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Requests {
    pub requests: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MeasuredStatus {
    pub phase: String,
    pub start_time: Option<String>,
    pub conditions: Vec<Value>,
}

impl Autoscaler {
    pub fn min_replicas(&self) -> i64 {
        self.spec.min_replicas.unwrap_or(1)
    }
}

impl MeasuredPod {
    /// Those that run as long as the pod: containers and sidecars.
    pub fn containers(&self) -> impl Iterator<Item = &MeasuredContainer> {
        let sidecars = self.spec.init_containers.iter();
        let sidecars = sidecars.filter(|container| container.restart_policy == "Always");
        self.spec.containers.iter().chain(sidecars)
    }
}
