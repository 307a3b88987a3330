//! ResourceClaim: a wish for devices.

use crate::devices::{validate_claim, validate_status};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static RESOURCE_CLAIM: Resource = Resource::namespaced(
    "resource.k8s.io",
    "v1",
    "ResourceClaim",
    "resourceclaims",
    "resourceclaim",
)
.with_subresources(&[Subresource::STATUS])
.returning_deleted()
.resetting_on_status_update(&[&["spec"], &["metadata"]])
.with_rules(&ResourceClaimRules);

struct ResourceClaimRules;

impl Rules for ResourceClaimRules {
    fn default(&self, claim: &mut Value) {
        default_claim_spec(claim.ensure("spec"));
    }

    fn prepare_create(&self, claim: &mut Value) {
        claim.set("status", json!({}));
    }

    fn validate_create(&self, claim: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("spec").child("devices");
        validate_claim(&claim["spec"]["devices"], &path, &mut problems);
        problems.into_vec()
    }

    /// Devices may be allocated by what a claim says, so that it stays as it was.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(new, old, &Path::default(), "spec");
        problems.into_vec()
    }

    /// Devices that a claim has, it keeps until it gives them back.
    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("status");
        validate_status(new, &path, &mut problems);
        let (new, old) = (&new["status"], &old["status"]);
        if new.has("allocation") && old.has("allocation") {
            problems.immutable(new, old, &path, "allocation");
        }
        problems.into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, claim: &Value, now: i64) -> Vec<Value> {
        vec![print::name(claim), state(claim).into(), print::age(claim, now)]
    }
}

/// A claim, or a template of one: a request asks for one device unless it says otherwise.
pub(super) fn default_claim_spec(spec: &mut Value) {
    let Some(devices) = spec.child_mut("devices") else {
        return;
    };
    for request in devices.list_mut("requests") {
        if let Some(exactly) = request.child_mut("exactly") {
            default_request(exactly);
        }
        request.list_mut("firstAvailable").iter_mut().for_each(default_request);
    }
}

fn default_request(request: &mut Value) {
    request.fill("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.fill_zero("count", 1);
    }
    for toleration in request.list_mut("tolerations") {
        toleration.fill("operator", "Equal");
    }
}

fn state(claim: &Value) -> String {
    let deleted = claim["metadata"].has("deletionTimestamp");
    let allocated = claim["status"].has("allocation");
    let reserved = allocated && !claim["status"].list("reservedFor").is_empty();
    let states = [
        (deleted, "deleted"),
        (!allocated && !deleted, "pending"),
        (allocated, "allocated"),
        (reserved, "reserved"),
    ];
    let holding: Vec<&str> = states
        .iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, state)| *state)
        .collect();
    holding.join(",")
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("State", "Whether devices are allocated, and reserved for pods."),
    AGE,
];
