//! What admission sees of subresources whose body is not the object that they belong to.

use http::StatusCode;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::deployment;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Denies requests for a subresource by an expression about them.
async fn deny_unless(cluster: &Cluster, (group, resource): (&str, &str), operation: &str, expression: &str) {
    let rule = json!({
        "apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource],
    });
    let policy = json!({"metadata": {"name": "rule"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "messageExpression": "'saw ' + request.kind.kind"}],
    }});
    let (code, answer) = cluster
        .post(&format!("{POLICIES}/validatingadmissionpolicies"), &policy)
        .await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    bind(cluster, "validatingadmissionpolicybindings", json!(["Deny"])).await;
}

/// Changes requests for a resource by a patch.
async fn mutate(cluster: &Cluster, (group, resource): (&str, &str), operation: &str, expression: &str) {
    let rule = json!({
        "apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource],
    });
    let policy = json!({"metadata": {"name": "rule"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }});
    let (code, answer) = cluster
        .post(&format!("{POLICIES}/mutatingadmissionpolicies"), &policy)
        .await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    bind(cluster, "mutatingadmissionpolicybindings", Value::Null).await;
}

async fn bind(cluster: &Cluster, bindings: &str, actions: Value) {
    let mut binding = json!({"metadata": {"name": "rule"}, "spec": {"policyName": "rule"}});
    if actions.is_array() {
        binding["spec"]["validationActions"] = actions;
    }
    let (code, answer) = cluster.post(&format!("{POLICIES}/{bindings}"), &binding).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
}

async fn pod(cluster: &Cluster, name: &str) {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (code, answer) = cluster.post(PODS, &pod).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
}

#[tokio::test]
async fn a_scale_is_seen_as_a_scale_before_and_after() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    cluster.post(path, &deployment("web")).await;
    let expression = "object.kind == 'Scale' && object.spec.replicas <= oldObject.spec.replicas + 1";
    deny_unless(&cluster, ("apps", "deployments/scale"), "UPDATE", expression).await;
    let scale = format!("{path}/web/scale");
    let patch = "application/merge-patch+json";
    let (code, answer) = cluster.patch(&scale, patch, &json!({"spec": {"replicas": 9}})).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert!(
        answer["message"].as_str().unwrap_or_default().ends_with("saw Scale"),
        "{answer}"
    );
    let (code, answer) = cluster.patch(&scale, patch, &json!({"spec": {"replicas": 3}})).await;
    assert_eq!((code, &answer["spec"]["replicas"]), (StatusCode::OK, &json!(3)));
    // The workload itself is another resource, that the rule is not about.
    let (code, _) = cluster
        .patch(&format!("{path}/web"), patch, &json!({"spec": {"replicas": 9}}))
        .await;
    assert_eq!(code, StatusCode::OK);
}

#[tokio::test]
async fn what_admission_makes_of_a_scale_reaches_the_workload() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    cluster.post(path, &deployment("web")).await;
    let expression = r#"[JSONPatch{op: "replace", path: "/spec/replicas", value: 4}]"#;
    mutate(&cluster, ("apps", "deployments/scale"), "UPDATE", expression).await;
    let (_, mut scale) = cluster.get(&format!("{path}/web/scale")).await;
    scale["spec"]["replicas"] = 100.into();
    let (code, answer) = cluster.put(&format!("{path}/web/scale"), &scale).await;
    assert_eq!(
        (code, &answer["spec"]["replicas"]),
        (StatusCode::OK, &json!(4)),
        "{answer}"
    );
    let (_, workload) = cluster.get(&format!("{path}/web")).await;
    assert_eq!(workload["spec"]["replicas"], 4);
}

#[tokio::test]
async fn admission_sees_all_that_a_status_is_sent_with_and_changes_the_status_alone() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    pod(&cluster, "web").await;
    let expression = r#"[
        JSONPatch{op: "add", path: "/status/message", value: object.spec.containers[0].image},
        JSONPatch{op: "add", path: "/spec/activeDeadlineSeconds", value: 5}
    ]"#;
    mutate(&cluster, ("", "pods/status"), "UPDATE", expression).await;
    let (_, before) = cluster.get(&format!("{PODS}/web")).await;
    let mut sent = before.clone();
    sent["spec"]["containers"][0]["image"] = "other".into();
    sent["status"]["phase"] = "Running".into();
    let (code, answer) = cluster.put(&format!("{PODS}/web/status"), &sent).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert_eq!(answer["spec"], before["spec"]);
    assert_eq!(answer["status"]["phase"], "Running");
    assert_eq!(answer["status"]["message"], "other");
    assert_eq!(answer["metadata"]["generation"], before["metadata"]["generation"]);
}

#[tokio::test]
async fn admission_gives_no_new_object_a_status_and_no_change_of_a_spec_one() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let expression = r#"[JSONPatch{op: "add", path: "/status", value: {"replicas": 7}}]"#;
    mutate(&cluster, ("apps", "deployments"), "*", expression).await;
    let (code, created) = cluster.post(path, &deployment("web")).await;
    assert_eq!(
        (code, &created["status"]),
        (StatusCode::CREATED, &json!({})),
        "{created}"
    );
    let patch = json!({"spec": {"replicas": 2}});
    let merge = "application/merge-patch+json";
    let (code, answer) = cluster.patch(&format!("{path}/web"), merge, &patch).await;
    assert_eq!((code, &answer["status"]), (StatusCode::OK, &json!({})), "{answer}");
    assert_eq!(answer["spec"]["replicas"], 2);
}

#[tokio::test]
async fn a_binding_is_seen_as_a_binding_and_carries_the_nodes_zone() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    let zone = "topology.kubernetes.io/zone";
    let node = json!({"metadata": {"name": "one", "labels": {zone: "a"}}});
    cluster.post("/api/v1/nodes", &node).await;
    pod(&cluster, "web").await;
    let expression = "object.kind == 'Binding' && object.target.name == 'one'";
    deny_unless(&cluster, ("", "pods/binding"), "CREATE", expression).await;
    let to = |node: &str| json!({"metadata": {"name": "web"}, "target": {"kind": "Node", "name": node}});
    let (code, answer) = cluster.post(&format!("{PODS}/web/binding"), &to("two")).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert!(
        answer["message"].as_str().unwrap_or_default().ends_with("saw Binding"),
        "{answer}"
    );
    let (code, answer) = cluster.post(&format!("{PODS}/web/binding"), &to("one")).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let (_, bound) = cluster.get(&format!("{PODS}/web")).await;
    assert_eq!(bound["spec"]["nodeName"], "one");
    assert_eq!(bound["metadata"]["labels"][zone], "a");
}

#[tokio::test]
async fn an_eviction_is_seen_as_an_eviction_and_nothing_else() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    pod(&cluster, "kept").await;
    pod(&cluster, "web").await;
    let expression = "object.kind == 'Eviction' && object.metadata.name != 'kept'";
    deny_unless(&cluster, ("", "pods/eviction"), "CREATE", expression).await;
    let evict = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let (code, answer) = cluster.post(&format!("{PODS}/kept/eviction"), &evict("kept")).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert!(
        answer["message"].as_str().unwrap_or_default().ends_with("saw Eviction"),
        "{answer}"
    );
    let (code, answer) = cluster.post(&format!("{PODS}/web/eviction"), &evict("web")).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    assert_eq!(cluster.get(&format!("{PODS}/kept")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn requests_for_tokens_are_asked_about() {
    let cluster = Cluster::start().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.post(accounts, &json!({"metadata": {"name": "web"}})).await;
    let expression = "object.kind == 'TokenRequest' && object.spec.expirationSeconds <= 3600";
    deny_unless(&cluster, ("", "serviceaccounts/token"), "CREATE", expression).await;
    let token = |seconds: i64| json!({"spec": {"audiences": ["a"], "expirationSeconds": seconds}});
    let (code, answer) = cluster.post(&format!("{accounts}/web/token"), &token(7200)).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    let (code, answer) = cluster.post(&format!("{accounts}/web/token"), &token(3600)).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    assert_ne!(answer["status"]["token"], "", "{answer}");
}

#[tokio::test]
async fn a_token_that_is_only_tried_for_is_none() {
    let cluster = Cluster::start().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.post(accounts, &json!({"metadata": {"name": "web"}})).await;
    let path = format!("{accounts}/web/token?dryRun=All");
    let (code, answer) = cluster.post(&path, &json!({"spec": {}})).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    assert_eq!(answer["status"]["token"], "", "{answer}");
    assert!(answer["status"]["expirationTimestamp"].is_string(), "{answer}");
}

#[tokio::test]
async fn an_eviction_of_a_certain_revision_costs_the_budget_of_no_other_pod() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    let pod = json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    cluster.post(PODS, &pod).await;
    let merge = "application/merge-patch+json";
    let running = json!({"status": {"phase": "Running"}});
    let (code, pod) = cluster.patch(&format!("{PODS}/web/status"), merge, &running).await;
    assert_eq!(code, StatusCode::OK, "{pod}");
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    cluster.post(budgets, &budget).await;
    let status = json!({"status": {
        "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1, "observedGeneration": 1,
    }});
    let (code, answer) = cluster.patch(&format!("{budgets}/web/status"), merge, &status).await;
    assert_eq!(code, StatusCode::OK, "{answer}");

    let evict = |preconditions: Value| {
        json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"},
            "deleteOptions": {"preconditions": preconditions, "gracePeriodSeconds": 0},
        })
    };
    let path = format!("{PODS}/web/eviction");
    for wrong in [json!({"uid": "another"}), json!({"resourceVersion": "1"})] {
        let (code, answer) = cluster.post(&path, &evict(wrong)).await;
        assert_eq!(code, StatusCode::CONFLICT, "{answer}");
    }
    let (_, kept) = cluster.get(&format!("{PODS}/web")).await;
    assert_eq!(kept["metadata"]["resourceVersion"], pod["metadata"]["resourceVersion"]);
    let (_, budget) = cluster.get(&format!("{budgets}/web")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 1);

    let right = json!({"resourceVersion": pod["metadata"]["resourceVersion"]});
    let (code, answer) = cluster.post(&path, &evict(right)).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let (_, budget) = cluster.get(&format!("{budgets}/web")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
}

#[tokio::test]
async fn pods_are_listed_by_the_name_of_their_node_and_nothing_like_it() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    for (name, node) in [("first", "one"), ("second", "one-more"), ("one", "")] {
        let pod = json!({
            "metadata": {"name": name, "labels": {"near": "one"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        });
        let (code, answer) = cluster.post(PODS, &pod).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
    }
    for (selector, expected) in [
        ("spec.nodeName%3Done", vec!["first"]),
        ("spec.nodeName%3Done-more", vec!["second"]),
        ("spec.nodeName%3D", vec!["one"]),
        ("spec.nodeName%3Dnobody", vec![]),
        ("spec.nodeName!%3Done", vec!["one", "second"]),
    ] {
        let (_, list) = cluster.get(&format!("{PODS}?fieldSelector={selector}")).await;
        let pods = list["items"].as_array().unwrap();
        let names: Vec<&str> = pods
            .iter()
            .map(|pod| pod["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, expected, "{selector}");
    }
}
