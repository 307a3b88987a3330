//! HorizontalPodAutoscalers: as many replicas of a target as its metrics ask for.
//!
//! `measure` reads the metrics APIs, `calculate` turns what it read into replicas, `limits` bounds how fast and how far a
//! target changes; `verdict` decides from all of it, without IO.

mod calculate;
mod limits;
mod measure;
mod model;
mod verdict;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Resource;
use api::kinds::horizontal_pod_autoscaler::HORIZONTAL_POD_AUTOSCALER;
use async_trait::async_trait;
use client::{Cache, Client, Key, Object};
use parking_lot::Mutex;
use schema::quantity::Quantity;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::plan::Plan;
use crate::resources::{Resources, no_matches};
use calculate::{DEFAULT_TOLERANCE, Tolerances};
use limits::History;
use measure::{Measurement, pods_of_target};
use model::{Autoscaler, Scale, ScalingRules};
use verdict::{Observation, View};

pub const ROW: Row = Row {
    name: "horizontal-pod-autoscaler",
    account: "horizontal-pod-autoscaler",
    queue: "horizontalpodautoscaler",
    workers: 5,
    start,
};

/// How often every autoscaler is looked at.
const SYNC_PERIOD: Duration = Duration::from_secs(15);

struct Controller {
    client: Client,
    autoscalers: Arc<Cache<Autoscaler>>,
    histories: Mutex<HashMap<Key, History>>,
    resources: Resources,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let autoscalers = setup.cache::<Autoscaler>(&HORIZONTAL_POD_AUTOSCALER);
    // What the controller writes into the status is no reason to look again before it is time.
    let queue = setup.queue();
    autoscalers.on_change(move |old, new| {
        let generation = |one: Option<&Arc<Autoscaler>>| one.map(|one| one.metadata.generation);
        if generation(old) != generation(new) {
            old.into_iter().chain(new).for_each(|one| queue.add(one.key()));
        }
    });
    Box::new(Controller {
        client: setup.client(),
        autoscalers,
        histories: Mutex::default(),
        resources: Resources::default(),
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let autoscaler = self.autoscalers.get_key(key.as_str());
        let Some(autoscaler) = autoscaler.filter(|one| !one.metadata.is_deleting()) else {
            self.histories.lock().remove(key);
            return Ok(Plan::nothing());
        };
        let observation = self.observe(&autoscaler, attempt).await;
        let view = View {
            autoscaler: &autoscaler,
            observation,
            failed_before: attempt.error.as_deref(),
            now: attempt.now,
        };
        let mut histories = self.histories.lock();
        let history = histories.entry(key.clone()).or_default();
        let mut plan = verdict::plan(&view, history);
        plan.again_after(SYNC_PERIOD);
        Ok(plan)
    }
}

impl Controller {
    async fn observe(&self, autoscaler: &Autoscaler, attempt: &Attempt) -> Observation {
        let namespace = &autoscaler.metadata.namespace;
        let (resource, scale) = match self.scale(autoscaler).await {
            Ok(found) => found,
            Err(message) => return Observation::NoScale(message),
        };
        if !verdict::needs_metrics(autoscaler, &scale) {
            return Observation::Measured {
                resource,
                scale,
                metrics: Vec::new(),
            };
        }
        let pods = pods_of_target(&self.client, namespace, &scale).await;
        let pods = pods.map_err(|error| error.to_string());
        let measurement = Measurement {
            client: &self.client,
            namespace,
            scale: &scale,
            pods: pods.as_deref().map_err(String::as_str),
            tolerances: tolerances(autoscaler),
            resources: &self.resources,
            now: attempt.now,
        };
        let mut metrics = Vec::new();
        for metric in &autoscaler.spec.metrics {
            metrics.push(measurement.evaluate(metric).await);
        }
        Observation::Measured {
            resource,
            scale,
            metrics,
        }
    }

    /// The target's resource and its scale.
    async fn scale(&self, autoscaler: &Autoscaler) -> Result<(&'static Resource, Box<Scale>), String> {
        let target = &autoscaler.spec.scale_target_ref;
        let group = target.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let is_namespaced = |one: &Resource| one.namespaced;
        let found = self
            .resources
            .find(&self.client, group, &target.kind, is_namespaced)
            .await;
        let resource = found?.ok_or_else(|| no_matches(&target.kind, &target.api_version))?;
        let scales = self.client.resource(resource).subresource("scale");
        let scales = scales.in_namespace(autoscaler.metadata.namespace.clone());
        let scale = scales
            .get::<Scale>(&target.name)
            .await
            .map_err(|error| error.to_string())?;
        Ok((resource, Box::new(scale)))
    }
}

fn tolerances(autoscaler: &Autoscaler) -> Tolerances {
    let tolerance = |rules: &ScalingRules| {
        let text = rules.tolerance.as_deref()?;
        text.parse::<Quantity>().ok().map(|tolerance| tolerance.to_f64())
    };
    let behavior = autoscaler.spec.behavior.as_ref();
    Tolerances {
        scale_up: behavior
            .and_then(|behavior| tolerance(&behavior.scale_up))
            .unwrap_or(DEFAULT_TOLERANCE),
        scale_down: behavior
            .and_then(|behavior| tolerance(&behavior.scale_down))
            .unwrap_or(DEFAULT_TOLERANCE),
    }
}
