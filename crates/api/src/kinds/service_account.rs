//! ServiceAccount: who a pod is to the API.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Subresource, Value, Verb};
use serde_json::json;

pub static SERVICE_ACCOUNT: Resource =
    Resource::namespaced("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount")
        .short(&["sa"])
        .with_subresources(&[Subresource::new("token", &[Verb::Create]).with_body(
            "authentication.k8s.io",
            "v1",
            "TokenRequest",
        )])
        .returning_deleted()
        .with_rules(&ServiceAccountRules);

struct ServiceAccountRules;

impl Rules for ServiceAccountRules {
    fn prepare_create(&self, account: &mut Value) {
        keep_only_names(account);
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value) {
        keep_only_names(new);
    }

    fn columns(&self) -> &'static [Column] {
        &[NAME, AGE]
    }

    fn cells(&self, account: &Value, now: i64) -> Vec<Value> {
        vec![print::name(account), print::age(account, now)]
    }

    /// Secrets are told apart by their names, which they may be without.
    fn lacks_list_keys(&self, account: &Value) -> bool {
        account
            .list("secrets")
            .iter()
            .any(|secret| secret.text("name").is_empty())
    }
}

/// Secrets are referred to within the account's own namespace.
fn keep_only_names(account: &mut Value) {
    for secret in account.list_mut("secrets") {
        *secret = json!({"name": secret.text("name")});
    }
}
