//! The rights that enforcing policies takes: to read pods, namespaces and policies everywhere.

use api::kinds::cluster_role::CLUSTER_ROLE;
use api::kinds::cluster_role_binding::CLUSTER_ROLE_BINDING;
use client::{Client, Patch};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

const ROLE: &str = "karve:network-policy";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Lets all nodes read what policies depend on, and nothing more. `client` must be allowed to.
pub async fn grant(client: &Client) -> Result<(), client::Error> {
    let read = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]});
    let role = json!({"rules": [
        read("", &["namespaces", "pods"]),
        read("discovery.k8s.io", &["endpointslices"]),
        read("networking.k8s.io", &["networkpolicies"]),
    ]});
    let binding = json!({
        "roleRef": {"apiGroup": RBAC, "kind": CLUSTER_ROLE.kind, "name": ROLE},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:nodes"}],
    });
    for (resource, content) in [(&CLUSTER_ROLE, role), (&CLUSTER_ROLE_BINDING, binding)] {
        let mut object: Value = content.clone();
        object["apiVersion"] = json!(resource.api_version());
        object["kind"] = json!(resource.kind);
        object["metadata"] = json!({"name": ROLE});
        let api = client.resource(resource);
        match api.create::<IgnoredAny>(&object).await {
            Err(error) if error.is_already_exists() => {
                api.patch::<IgnoredAny>(ROLE, Patch::merge(&content)).await?;
            }
            other => drop(other?),
        }
    }
    Ok(())
}
