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

/// Pods of an account with this annotation have only the Secrets that it lists.
const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

struct ServiceAccountRules;

impl Rules for ServiceAccountRules {
    fn prepare_create(&self, account: &mut Value) {
        keep_only_names(account);
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value) {
        keep_only_names(new);
    }

    fn warnings(&self, account: &Value) -> Vec<String> {
        let instead = "prefer separate namespaces to isolate access to mounted secrets";
        match limits_secrets(account) {
            true => vec![format!(
                "metadata.annotations[{MOUNTABLE_SECRETS}]: deprecated in v1.32+; {instead}"
            )],
            false => Vec::new(),
        }
    }

    fn warns_on_update(&self, _new: &Value, old: &Value) -> bool {
        !limits_secrets(old)
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

fn limits_secrets(account: &Value) -> bool {
    account["metadata"]["annotations"].has(MOUNTABLE_SECRETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_begins_to_limit_secrets_is_warned_once() {
        let plain = json!({"metadata": {"name": "a"}});
        let limited = json!({"metadata": {"name": "a", "annotations": {MOUNTABLE_SECRETS: "true"}}});
        let rules = ServiceAccountRules;
        assert_eq!(
            rules.warnings(&limited),
            [
                "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate \
                 namespaces to isolate access to mounted secrets"
            ]
        );
        assert!(rules.warnings(&plain).is_empty());
        assert!(rules.warns_on_update(&limited, &plain) && !rules.warns_on_update(&limited, &limited));
    }
}
