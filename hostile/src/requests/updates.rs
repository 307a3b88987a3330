//! Updates that would create.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::refused;
use crate::cases::Case;
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, World};

pub const PUT_CREATES: Case = Case {
    name: "requests/put-creates",
    class: "",
    must_not: "A user with only `update` creates objects by PUT, or with only `patch` by apply.",
    needs: &[],
    run: put_creates,
};

/// Group and version, plural, and the least that such an object has.
fn kinds(namespace: &Namespace<'_>) -> Vec<(&'static str, &'static str, Value)> {
    let bearer = json!({"kind": "Pod", "namespace": namespace.name, "name": "x"});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"});
    vec![
        ("/api/v1", "services", json!({"spec": {"ports": [{"port": 80}]}})),
        (
            "/api/v1",
            "limitranges",
            json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}),
        ),
        ("/api/v1", "endpoints", json!({"subsets": []})),
        (
            "/api/v1",
            "events",
            json!({"involvedObject": bearer, "reason": "x", "message": "x"}),
        ),
        ("/api/v1", "configmaps", json!({"data": {"k": "v"}})),
        ("/api/v1", "secrets", json!({"stringData": {"k": "v"}})),
        ("/api/v1", "serviceaccounts", json!({})),
        ("/apis/coordination.k8s.io/v1", "leases", json!({"spec": {}})),
        (
            "/apis/discovery.k8s.io/v1",
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": []}),
        ),
        ("/apis/rbac.authorization.k8s.io/v1", "roles", json!({"rules": []})),
        (
            "/apis/rbac.authorization.k8s.io/v1",
            "rolebindings",
            json!({"roleRef": role, "subjects": []}),
        ),
    ]
}

fn put_creates(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let updater = world.user_of(
        &namespace,
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "update"]}]),
    )?;
    let patcher = world.user_of(
        &namespace,
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "patch"]}]),
    )?;
    honest(world, &namespace, &updater, &patcher)?;

    let mut attempts = Vec::new();
    for (group, plural, mut object) in kinds(&namespace) {
        let (version, name) = (
            group.trim_start_matches("/apis/").trim_start_matches("/api/"),
            format!("made-{}", world.number()),
        );
        let path = format!("{group}/namespaces/{}/{plural}/{name}", namespace.name);
        object["metadata"] = json!({"name": name, "namespace": namespace.name});
        attempts.push(refused(&updater, "PUT", &path, Some(&object))?);
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind_of(plural));
        let name = format!("applied-{}", world.number());
        object["metadata"]["name"] = json!(name);
        let applied = patcher.apply(
            &format!("{group}/namespaces/{}/{plural}/{name}", namespace.name),
            &object,
        )?;
        attempts.push(match applied.is_success() {
            true => Verdict::Succeeded(format!("applying {plural} was answered {}", applied.status)),
            false => Verdict::Blocked(applied.summary()),
        });
    }
    for (path, object) in [
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/hostile-made",
            json!({"metadata": {"name": "hostile-made"}, "rules": []}),
        ),
        (
            "/apis/node.k8s.io/v1/runtimeclasses/hostile-made",
            json!({"metadata": {"name": "hostile-made"}, "handler": "x"}),
        ),
    ] {
        let everywhere = world.user_with(
            json!([{"apiGroups": ["*"], "resources": ["clusterroles", "runtimeclasses"], "verbs": ["get", "update"]}]),
        )?;
        attempts.push(refused(&everywhere, "PUT", path, Some(&object))?);
        // Left by an attack that got through.
        world.admin.delete(path)?;
    }
    judge(&attempts)
}

/// Both users may change what is there, and who may create does so by PUT.
fn honest(
    world: &World,
    namespace: &Namespace<'_>,
    updater: &crate::client::Client,
    patcher: &crate::client::Client,
) -> Result<()> {
    let path = namespace.path("services/there");
    let mut service = world.admin.must_post(
        &namespace.path("services"),
        &json!({"metadata": {"name": "there"}, "spec": {"ports": [{"port": 80}]}}),
    )?;
    service["metadata"]["labels"] = json!({"by": "updater"});
    let updated = updater.put(&path, &service)?;
    ensure!(updated.is_success(), "an honest update: {}", updated.summary());
    patcher.must_merge(&path, &json!({"metadata": {"labels": {"by": "patcher"}}}))?;
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "update", "create"]}]);
    let creator = world.user_of(namespace, all)?;
    let made = creator.put(
        &namespace.path("services/new"),
        &json!({"metadata": {"name": "new"}, "spec": {"ports": [{"port": 80}]}}),
    )?;
    ensure!(made.status == 201, "an honest creation by PUT: {}", made.summary());
    Ok(())
}

fn kind_of(plural: &str) -> &'static str {
    match plural {
        "services" => "Service",
        "limitranges" => "LimitRange",
        "endpoints" => "Endpoints",
        "events" => "Event",
        "configmaps" => "ConfigMap",
        "secrets" => "Secret",
        "serviceaccounts" => "ServiceAccount",
        "leases" => "Lease",
        "endpointslices" => "EndpointSlice",
        "roles" => "Role",
        _ => "RoleBinding",
    }
}
