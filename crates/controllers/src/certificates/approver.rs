//! Approves what nodes ask for, as far as whoever asks may have it.

use std::sync::Arc;

use api::kinds::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST;
use api::kinds::subject_access_review::SUBJECT_ACCESS_REVIEW;
use api::{Fields, Value};
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Client, Key};
use serde_json::json;

use super::request::Wanted;
use super::{KUBELET_CLIENT, SigningRequest};
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::plan::{Action, Patch, Plan};

pub const ROW: Row = Row {
    name: "certificatesigningrequest-approving",
    account: "certificate-controller",
    queue: "certificate",
    workers: 5,
    start,
};

/// What a user may ask for, by the subresource whose creation stands for it.
const OWN: (&str, &str) = (
    "selfnodeclient",
    "Auto approving self kubelet client certificate after SubjectAccessReview.",
);
const ANY: (&str, &str) = (
    "nodeclient",
    "Auto approving kubelet client certificate after SubjectAccessReview.",
);

struct Controller {
    client: Client,
    requests: Arc<Cache<SigningRequest>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let requests = setup.cache::<SigningRequest>(&CERTIFICATE_SIGNING_REQUEST);
    setup.watch_own(&requests);
    Box::new(Controller {
        client: setup.client(),
        requests,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let Some(request) = self.requests.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        for (subresource, message) in grounds(&request) {
            if self.may(&request, subresource).await? {
                return Ok(approve(&request, message, attempt.now));
            }
        }
        Ok(Plan::nothing())
    }
}

impl Controller {
    async fn may(&self, request: &SigningRequest, subresource: &str) -> client::Result<bool> {
        let spec = &request.spec;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": spec["username"], "uid": spec["uid"], "groups": spec["groups"], "extra": spec["extra"],
                "resourceAttributes": {
                    "group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create",
                    "subresource": subresource,
                },
            },
        });
        let answer: Value = self.client.resource(&SUBJECT_ACCESS_REVIEW).create(&review).await?;
        Ok(answer["status"].flag("allowed"))
    }
}

/// Why the request may be approved, if whoever made it has the right to that.
fn grounds(request: &SigningRequest) -> Vec<(&'static str, &'static str)> {
    if request.is_decided() || request.spec.text("signerName") != KUBELET_CLIENT {
        return Vec::new();
    }
    let Some(Ok(wanted)) = request.pem().map(|pem| Wanted::parse(&pem)) else {
        return Vec::new();
    };
    if wanted.check_kubelet_client(&request.usages()).is_err() {
        return Vec::new();
    }
    match wanted.common_name == request.spec.text("username") {
        true => vec![OWN, ANY],
        false => vec![ANY],
    }
}

pub(super) fn approve(request: &SigningRequest, message: &str, now: Moment) -> Plan {
    let mut conditions = request.status.list("conditions").to_vec();
    conditions.push(json!({
        "type": "Approved", "status": "True", "reason": "AutoApproved", "message": message,
        "lastUpdateTime": now.to_time(),
    }));
    let body = json!({"status": {"conditions": conditions}});
    let mut patch = Patch::new(&CERTIFICATE_SIGNING_REQUEST, &request.metadata, body)
        .at_revision(&request.metadata)
        .by_update();
    patch.subresource = "approval";
    Plan {
        actions: vec![Action::Patch(patch)],
        ..Plan::default()
    }
}
