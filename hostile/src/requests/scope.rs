//! Cluster-scoped kinds under the path of a namespace.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::refused;
use crate::cases::Case;
use crate::signals::wait_for;
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, PATIENCE, World};

pub const CLUSTER_KIND_IN_NAMESPACE: Case = Case {
    name: "requests/cluster-kind-in-namespace",
    class: "",
    must_not: "A user who may do everything in one namespace reaches cluster-scoped objects through its path.",
    needs: &[],
    run: cluster_kind_in_namespace,
};

/// Group and version, plural, and an object that there is already.
const KINDS: &[(&str, &str, &str)] = &[
    (
        "/apis/rbac.authorization.k8s.io/v1",
        "clusterrolebindings",
        "cluster-admin",
    ),
    ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", "cluster-admin"),
    ("/api/v1", "nodes", "victim"),
    ("/api/v1", "persistentvolumes", "none"),
    ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "none"),
    (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        "none",
    ),
    (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicies",
        "none",
    ),
    ("/apis/storage.k8s.io/v1", "storageclasses", "none"),
    ("/apis/scheduling.k8s.io/v1", "priorityclasses", "system-node-critical"),
    ("/apis/certificates.k8s.io/v1", "certificatesigningrequests", "none"),
    ("/apis/apiregistration.k8s.io/v1", "apiservices", "v1.apps"),
    ("/apis/flowcontrol.apiserver.k8s.io/v1", "flowschemas", "catch-all"),
];

fn cluster_kind_in_namespace(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let (user, name) = world.stranger()?;
    namespace.grant(&name, everything)?;
    // The same user is let in where it belongs.
    user.must_post(&namespace.path("configmaps"), &json!({"metadata": {"name": "own"}}))?;
    let custom = custom_kind(world)?;

    let mut attempts = vec![become_administrator(&namespace, &user, &name)?];
    for (group, plural, known) in KINDS.iter().copied().chain([(custom.as_str(), "widgets", "none")]) {
        let base = format!("{group}/namespaces/{}/{plural}", namespace.name);
        let object = json!({"metadata": {"name": format!("hostile-{}", world.number())}});
        for (method, path, body) in [
            ("GET", base.clone(), None),
            ("GET", format!("{base}?watch=true&timeoutSeconds=1"), None),
            ("POST", base.clone(), Some(&object)),
            ("GET", format!("{base}/{known}"), None),
            ("PATCH", format!("{base}/{known}"), Some(&object)),
            ("DELETE", format!("{base}/hostile-none"), None),
        ] {
            attempts.push(refused(&user, method, &path, body)?);
        }
    }
    let group = custom.trim_start_matches("/apis/").trim_end_matches("/v1");
    world.admin.must_delete(&format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}"
    ))?;
    judge(&attempts)
}

/// Binds itself to cluster-admin and reads everybody's secrets.
fn become_administrator(namespace: &Namespace<'_>, user: &crate::client::Client, name: &str) -> Result<Verdict> {
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    let before = user.get("/api/v1/secrets")?;
    ensure!(before.status == 403, "the user may read all secrets before the attack");
    let made = user.post(
        &namespace.path_in("rbac.authorization.k8s.io/v1", "clusterrolebindings"),
        &binding,
    )?;
    let after = user.get("/api/v1/secrets")?;
    if after.is_success() {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}");
        namespace.world.admin.must_delete(&path)?;
        return Ok(Verdict::Succeeded(format!(
            "a ClusterRoleBinding was answered {}, and the user reads all secrets",
            made.status
        )));
    }
    Ok(Verdict::Blocked(made.summary()))
}

/// A custom resource that is cluster-scoped; returns its group's path.
fn custom_kind(world: &World) -> Result<String> {
    let group = format!("case{}.hostile.test", world.number());
    let definition: Value = json!({
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    world
        .admin
        .must_post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)?;
    let path = format!("/apis/{group}/v1");
    wait_for("the custom resource", PATIENCE, || {
        Ok(world.admin.get(&format!("{path}/widgets"))?.is_success().then_some(()))
    })?;
    Ok(path)
}
