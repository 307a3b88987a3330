//! Claims that ask for more than their volume has: whoever provisioned the volume resizes it, and people are told so.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::{Fields, ObjectMeta, Value};
use async_trait::async_trait;
use client::{Cache, EventType, Key, Object, ObjectReference};
use schema::quantity::Quantity;
use serde::Deserialize;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::with_metadata;
use crate::plan::{Action, Event, Plan};

pub const ROW: Row = Row {
    name: "persistentvolume-expander",
    account: "expand-controller",
    queue: "volume_expand",
    workers: 1,
    start,
};

struct Controller {
    claims: Arc<Cache<Claim>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Claim {
    metadata: ObjectMeta,
    spec: ClaimSpec,
    status: ClaimStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimSpec {
    resources: Resources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimStatus {
    phase: String,
    capacity: Value,
}

with_metadata!(Claim);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let claims = setup.cache::<Claim>(&PERSISTENT_VOLUME_CLAIM);
    // Told once for every size that is asked for.
    let queue = setup.queue();
    claims.on_change(move |old, new| {
        if let Some(claim) = new
            && claim.wants_more()
            && old.is_none_or(|old| old.request() != claim.request() || !old.wants_more())
        {
            queue.add(claim.key());
        }
    });
    Box::new(Controller { claims })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let claim = self.claims.get_key(key.as_str());
        Ok(claim.map_or_else(Plan::nothing, |claim| plan(&claim)))
    }
}

impl Claim {
    fn request(&self) -> Option<Quantity> {
        self.spec.resources.requests.get("storage")?.parse().ok()
    }

    /// Whether a volume that the claim has is smaller than what the claim asks for.
    fn wants_more(&self) -> bool {
        let capacity = self.status.capacity.text("storage").parse::<Quantity>().ok();
        let larger = self
            .request()
            .zip(capacity)
            .is_some_and(|(request, capacity)| request > capacity);
        larger && self.status.phase == "Bound" && !self.metadata.is_deleting()
    }
}

fn plan(claim: &Claim) -> Plan {
    let mut plan = Plan::default();
    if claim.wants_more() {
        plan.actions.push(Action::Event(Event {
            about: ObjectReference::new(&PERSISTENT_VOLUME_CLAIM, &claim.metadata),
            kind: EventType::Normal,
            reason: "ExternalExpanding",
            message: "waiting for an external controller to expand this PVC".to_owned(),
        }));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    fn told(request: &str, phase: &str) -> String {
        let claim = object::<Claim>(&format!(
            "metadata: {{name: data}}
spec: {{resources: {{requests: {{storage: {request}}}}}}}
status: {{phase: {phase}, capacity: {{storage: 1Gi}}}}"
        ));
        plan(&claim).to_string()
    }

    #[test]
    fn a_claim_that_outgrew_its_volume_waits_for_its_driver() {
        let waits = "event Normal ExternalExpanding: waiting for an external controller to expand this PVC\n";
        assert_eq!(told("2Gi", "Bound"), waits);
        assert_eq!(told("1024Mi", "Bound"), "");
        assert_eq!(told("2Gi", "Pending"), "");
    }
}
