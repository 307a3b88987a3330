use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::bootstrap;

fn cluster() -> Rbac {
    let rbac = Rbac::default();
    for (resource, object) in bootstrap::objects() {
        rbac.set(resource, &object);
    }
    rbac
}

fn check(rbac: &Rbac, attributes: Attributes, expect: Expect) {
    expect.assert_eq(&format!("{:?}", rbac.authorize(&attributes)));
}

#[test]
fn the_default_roles_let_everyone_discover_and_components_work() {
    let rbac = cluster();
    let jane = User::new("jane", &["system:authenticated"]);
    check(
        &rbac,
        Attributes::path(&jane, "get", "/apis/apps"),
        expect![[
            r#"Allow("RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \"system:authenticated\"")"#
        ]],
    );
    check(
        &rbac,
        Attributes::resource(&jane, "list", "", "pods"),
        expect![[r#"NoOpinion("")"#]],
    );
    let scheduler = User::new("system:kube-scheduler", &["system:authenticated"]);
    check(
        &rbac,
        Attributes::resource(&scheduler, "create", "", "pods")
            .named("default", "web")
            .subresource("binding"),
        expect![[
            r#"Allow("RBAC: allowed by ClusterRoleBinding \"system:kube-scheduler\" of ClusterRole \"system:kube-scheduler\" to User \"system:kube-scheduler\"")"#
        ]],
    );
    let signer = User::service_account("kube-system", "bootstrap-signer", "1");
    check(
        &rbac,
        Attributes::resource(&signer, "list", "", "secrets").named("kube-system", ""),
        expect![[
            r#"Allow("RBAC: allowed by RoleBinding \"system:controller:bootstrap-signer/kube-system\" of Role \"system:controller:bootstrap-signer\" to ServiceAccount \"bootstrap-signer/kube-system\"")"#
        ]],
    );
}

/// `admin` has no rules of its own: it gathers those of `edit`, which gathers those of `view`.
#[test]
fn aggregated_roles_hold_what_they_gather() {
    let rbac = cluster();
    let binding = json!({
        "metadata": {"name": "jane", "namespace": "team"},
        "roleRef": {"kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "jane"}],
    });
    rbac.set("rolebindings", &binding);
    let jane = User::new("jane", &[]);
    let ask = |verb, group, resource, namespace| {
        let attributes = Attributes::resource(&jane, verb, group, resource).named(namespace, "");
        matches!(rbac.authorize(&attributes), Decision::Allow(_))
    };
    assert!(ask("list", "", "pods", "team"));
    assert!(ask("create", "apps", "deployments", "team"));
    assert!(!ask("create", "apps", "deployments", "other"));
    assert!(!ask("create", "example.com", "widgets", "team"));

    let widgets = json!({
        "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}},
        "rules": [{"verbs": ["*"], "apiGroups": ["example.com"], "resources": ["widgets"]}],
    });
    rbac.set("clusterroles", &widgets);
    assert!(ask("create", "example.com", "widgets", "team"));
    rbac.remove("clusterroles", "", "widgets");
    assert!(!ask("create", "example.com", "widgets", "team"));
    rbac.remove("rolebindings", "team", "jane");
    assert!(!ask("list", "", "pods", "team"));
}

#[test]
fn rules_can_be_narrowed_to_names_subresources_and_paths() {
    let rbac = Rbac::default();
    rbac.set(
        "clusterroles",
        &json!({"metadata": {"name": "r"}, "rules": [
            {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"]},
            {"verbs": ["update"], "apiGroups": ["*"], "resources": ["*/scale"]},
            {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]},
        ]}),
    );
    rbac.set(
        "clusterrolebindings",
        &json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
                "subjects": [{"kind": "Group", "name": "g"}]}),
    );
    let jane = User::new("jane", &["g"]);
    let ask = |attributes: Attributes| matches!(rbac.authorize(&attributes), Decision::Allow(_));
    let map = |name| Attributes::resource(&jane, "get", "", "configmaps").named("default", name);
    assert!(ask(map("one")) && !ask(map("two")) && !ask(map("")));
    let deployments = Attributes::resource(&jane, "update", "apps", "deployments");
    assert!(ask(deployments.subresource("scale")) && !ask(deployments) && !ask(deployments.subresource("status")));
    let path = |path| Attributes::path(&jane, "get", path);
    assert!(ask(path("/healthz")) && ask(path("/logs/x")) && !ask(path("/healthz/x")));
}

#[test]
fn a_missing_role_is_told() {
    let rbac = Rbac::default();
    let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "gone"},
                         "subjects": [{"kind": "User", "name": "jane"}]});
    rbac.set("clusterrolebindings", &binding);
    let jane = User::new("jane", &[]);
    check(
        &rbac,
        Attributes::resource(&jane, "get", "", "pods"),
        expect![[r#"NoOpinion("RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found")"#]],
    );
}

#[test]
fn granting_more_than_one_holds_is_seen() {
    let rbac = cluster();
    let binding = json!({"metadata": {"name": "jane", "namespace": "team"},
                         "roleRef": {"kind": "ClusterRole", "name": "view"},
                         "subjects": [{"kind": "User", "name": "jane"}]});
    rbac.set("rolebindings", &binding);
    let wanted = Rule::parse_all(&json!([{"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["pods"]}]));
    let uncovered = rbac.uncovered(&User::new("jane", &[]), "team", &wanted);
    expect![[r#"[Rule { verbs: ["delete"], api_groups: [""], resources: ["pods"], resource_names: [], non_resource_urls: [] }]"#]]
        .assert_eq(&format!("{uncovered:?}"));
}

/// Reviews may name the subresource with the resource, as prometheus-operator does.
#[test]
fn resource_and_subresource_may_come_as_one_text() {
    let rbac = Rbac::default();
    let role = json!({
        "metadata": {"name": "status"},
        "rules": [
            {"verbs": ["update"], "apiGroups": ["monitoring.coreos.com"], "resources": ["prometheuses/status"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["*/log"]},
        ],
    });
    let binding = json!({
        "metadata": {"name": "operator"},
        "roleRef": {"kind": "ClusterRole", "name": "status"},
        "subjects": [{"kind": "User", "name": "operator"}],
    });
    rbac.set("clusterroles", &role);
    rbac.set("clusterrolebindings", &binding);
    let operator = User::new("operator", &[]);
    let ask = |verb, group, resource, subresource| {
        let attributes = Attributes::resource(&operator, verb, group, resource).subresource(subresource);
        matches!(rbac.authorize(&attributes), Decision::Allow(_))
    };
    assert!(ask("update", "monitoring.coreos.com", "prometheuses/status", ""));
    assert!(ask("update", "monitoring.coreos.com", "prometheuses", "status"));
    assert!(!ask("update", "monitoring.coreos.com", "prometheuses", ""));
    assert!(ask("get", "", "pods", "log"));
    assert!(
        !ask("get", "", "pods/log", ""),
        "a rule for all resources needs to know which part is which"
    );
}
