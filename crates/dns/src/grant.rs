//! The rights of the name server: to read names everywhere.

use api::kinds::cluster_role::CLUSTER_ROLE;
use api::kinds::cluster_role_binding::CLUSTER_ROLE_BINDING;
use api::{Resource, Value};
use client::{Client, Patch};
use serde::de::IgnoredAny;
use serde_json::json;

const NAMESPACE: &str = "kube-system";
/// The service account of [`NAMESPACE`] that the name server acts as; CoreDNS's, as are the names of its role.
pub const ACCOUNT: &str = "coredns";
const READER: &str = "system:coredns";

/// Gives [`ACCOUNT`] its rights. `client` must be allowed to.
pub async fn grant(client: &Client) -> Result<(), client::Error> {
    for (resource, object) in objects() {
        let api = client.resource(resource);
        match api.create::<IgnoredAny>(&object).await {
            Err(error) if error.is_already_exists() => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                api.patch::<IgnoredAny>(name, Patch::merge(&object)).await?;
            }
            other => {
                other?;
            }
        }
    }
    Ok(())
}

fn objects() -> [(&'static Resource, Value); 2] {
    let read = [
        rule("", &["services", "namespaces"], &["list", "watch"]),
        rule("discovery.k8s.io", &["endpointslices"], &["list", "watch"]),
    ];
    [
        (&CLUSTER_ROLE, role(&CLUSTER_ROLE, READER, &read)),
        (
            &CLUSTER_ROLE_BINDING,
            binding(&CLUSTER_ROLE_BINDING, &CLUSTER_ROLE, READER),
        ),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn role(resource: &Resource, name: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": {"name": name},
        "rules": rules,
    })
}

fn binding(resource: &Resource, role: &Resource, name: &str) -> Value {
    json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": role.group, "kind": role.kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    })
}
