use api::selector::parse_fields;
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::User;

fn authorizer() -> NodeAuthorizer {
    let authorizer = NodeAuthorizer::default();
    let pod = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "nodeName": "one", "serviceAccountName": "robot",
            "containers": [{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env"}}}]}],
            "volumes": [
                {"name": "a", "configMap": {"name": "settings"}},
                {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
            ],
        },
    });
    authorizer.set("pods", &pod);
    let claim = json!({"metadata": {"name": "data", "namespace": "default"}, "spec": {"volumeName": "disk"}});
    authorizer.set("persistentvolumeclaims", &claim);
    authorizer
}

fn check(attributes: Attributes, expect: Expect) {
    expect.assert_eq(&format!("{:?}", authorizer().authorize(&attributes)));
}

fn node(name: &str) -> User {
    User::new(format!("system:node:{name}"), &["system:nodes"])
}

#[test]
fn a_node_reads_what_its_pods_refer_to() {
    let one = node("one");
    let get = |resource, name| Attributes::resource(&one, "get", "", resource).named("default", name);
    for (resource, name) in [
        ("pods", "web"),
        ("secrets", "env"),
        ("configmaps", "settings"),
        ("persistentvolumeclaims", "data"),
        ("serviceaccounts", "robot"),
    ] {
        check(get(resource, name), expect![[r#"Allow("")"#]]);
    }
    let volume = Attributes::resource(&one, "get", "", "persistentvolumes").named("", "disk");
    check(volume, expect![[r#"Allow("")"#]]);
    check(
        get("secrets", "other"),
        expect![[r#"NoOpinion("no relationship found between node 'one' and this object")"#]],
    );
    let two = node("two");
    check(
        Attributes::resource(&two, "get", "", "secrets").named("default", "env"),
        expect![[r#"NoOpinion("no relationship found between node 'two' and this object")"#]],
    );
    let token = Attributes::resource(&one, "create", "", "serviceaccounts").named("default", "robot");
    check(token.subresource("token"), expect![[r#"Allow("")"#]]);
}

#[test]
fn a_node_lists_only_its_own_pods_and_reads_only_its_own_node() {
    let one = node("one");
    let list = Attributes::resource(&one, "list", "", "pods");
    check(
        list,
        expect![[r#"NoOpinion("can only list/watch pods with spec.nodeName field selector")"#]],
    );
    let own = parse_fields("spec.nodeName=one").unwrap();
    check(
        Attributes {
            field_selector: Some(&own),
            ..list
        },
        expect![[r#"Allow("")"#]],
    );
    let get = Attributes::resource(&one, "get", "", "nodes");
    check(get.named("", "one"), expect![[r#"Allow("")"#]]);
    check(
        get.named("", "two"),
        expect![[r#"NoOpinion("node 'one' cannot read 'two', only its own Node object")"#]],
    );
    let lease = Attributes::resource(&one, "update", "coordination.k8s.io", "leases");
    check(lease.named("kube-node-lease", "one"), expect![[r#"Allow("")"#]]);
    check(
        lease.named("kube-node-lease", "two"),
        expect![[r#"NoOpinion("can only access node lease with the same name as the requesting node")"#]],
    );
}

#[test]
fn what_is_nobodys_follows_the_nodes_role_and_others_are_not_judged() {
    let one = node("one");
    check(
        Attributes::resource(&one, "list", "", "services"),
        expect![[r#"Allow("")"#]],
    );
    check(
        Attributes::resource(&one, "delete", "", "services"),
        expect![[r#"NoOpinion("")"#]],
    );
    let jane = User::new("jane", &["system:nodes"]);
    check(
        Attributes::resource(&jane, "list", "", "services"),
        expect![[r#"NoOpinion("")"#]],
    );
}

#[test]
fn a_node_patches_only_the_volumes_whose_directories_it_keeps() {
    let authorizer = authorizer();
    let volume = |name: &str, by: &str, node: &str| {
        let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let volume = json!({
            "metadata": {"name": name, "annotations": {"karve.dev/provisioned-by": by}},
            "spec": {
                "local": {"path": "/v"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            },
        });
        authorizer.set("persistentvolumes", &volume);
    };
    volume("own", "local", "one");
    volume("others", "local", "two");
    volume("disk", "somebody", "one");
    let one = node("one");
    let allowed = |verb: &'static str, name: &str| {
        let asked = Attributes::resource(&one, verb, "", "persistentvolumes").named("", name);
        matches!(authorizer.authorize(&asked), Decision::Allow(_))
    };
    assert!(allowed("patch", "own") && allowed("get", "own"));
    assert!(!allowed("patch", "others") && !allowed("get", "others"));
    // It may read what a pod of it uses, but not change it.
    assert!(!allowed("patch", "disk") && allowed("get", "disk"));
    assert!(!allowed("update", "own") && !allowed("delete", "own") && !allowed("list", ""));
    let listed = |verb: &'static str, labels: &str| {
        let labels = api::selector::parse_labels(labels).unwrap();
        let asked = Attributes {
            label_selector: Some(&labels),
            ..Attributes::resource(&one, verb, "", "persistentvolumes")
        };
        matches!(authorizer.authorize(&asked), Decision::Allow(_))
    };
    assert!(listed("list", "karve.dev/node=one") && listed("watch", "karve.dev/node=one,a=b"));
    for labels in [
        "karve.dev/node=two",
        "karve.dev/node in (one,two)",
        "karve.dev/node!=one",
        "a=one",
    ] {
        assert!(!listed("list", labels) && !listed("watch", labels), "{labels}");
    }
    assert!(!listed("deletecollection", "karve.dev/node=one"));
    authorizer.remove("persistentvolumes", "", "own");
    assert!(!allowed("patch", "own"));
}
