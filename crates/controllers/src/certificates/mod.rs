//! Requests for certificates: `approver` says yes to nodes as clients and `serving_approver` to kubelets as servers,
//! `signer` signs what was approved, `cleaner` removes what nobody needs any more.

pub mod approver;
pub mod cleaner;
mod request;
pub mod serving_approver;
pub mod signer;

use api::{Fields, ObjectMeta, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use crate::conditions;
use crate::model::with_metadata;

const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SigningRequest {
    metadata: ObjectMeta,
    spec: Value,
    status: Value,
}

with_metadata!(SigningRequest);

impl SigningRequest {
    fn is_decided(&self) -> bool {
        self.has("Approved") || self.has("Denied")
    }

    fn has(&self, condition: &str) -> bool {
        conditions::find(self.status.list("conditions"), condition).is_some()
    }

    /// The request itself, as PEM.
    fn pem(&self) -> Option<String> {
        let bytes = BASE64.decode(self.spec.text("request")).ok()?;
        String::from_utf8(bytes).ok()
    }

    fn usages(&self) -> Vec<&str> {
        self.spec.list("usages").iter().filter_map(Value::as_str).collect()
    }
}
