//! The API server as its clients see it, on the memory engine and without sockets.

mod answers;
mod auditing;
mod authorization;
mod beside;
mod cluster;
mod connect;
mod custom;
mod documents;
mod nodes;
mod ownership;
mod parts;
mod serving;

use cluster::{Cluster, json_of, text_of};
use http::StatusCode;
use serde_json::{Value, json};

#[tokio::test]
async fn an_object_is_stored_and_read_back_with_its_revision() {
    let cluster = Cluster::start().await;
    let created = cluster
        .post("/api/v1/namespaces/default/configmaps", &config_map("a"))
        .await;
    assert_eq!(created.0, StatusCode::CREATED);
    let read = cluster.get("/api/v1/namespaces/default/configmaps/a").await;
    assert_eq!(read.0, StatusCode::OK);
    assert_eq!(read.1, created.1);
    assert!(
        read.1["metadata"]["resourceVersion"]
            .as_str()
            .is_some_and(|revision| revision.parse::<u64>().is_ok())
    );
    let again = cluster
        .post("/api/v1/namespaces/default/configmaps", &config_map("a"))
        .await;
    assert_eq!(again.1["reason"], "AlreadyExists");
    assert_eq!(again.1["message"], "configmaps \"a\" already exists");
}

#[tokio::test]
async fn a_stale_update_is_refused_and_changes_nothing() {
    let cluster = Cluster::start().await;
    let (_, first) = cluster
        .post("/api/v1/namespaces/default/configmaps", &config_map("a"))
        .await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    let mut changed = first.clone();
    changed["data"]["k"] = "new".into();
    assert_eq!(cluster.put(path, &changed).await.0, StatusCode::OK);
    changed["data"]["k"] = "late".into();
    let (code, status) = cluster.put(path, &changed).await;
    assert_eq!(
        (code, status["reason"].as_str()),
        (StatusCode::CONFLICT, Some("Conflict"))
    );
    assert_eq!(cluster.get(path).await.1["data"]["k"], "new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn patches_without_a_revision_never_conflict() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    cluster.post(path, &config_map("a")).await;
    let path = format!("{path}/a");
    let patches = (0..20).map(|number| {
        let (cluster, path) = (&cluster, &path);
        async move {
            let patch = json!({ "data": { format!("k{number}"): "v" } });
            cluster.patch(path, "application/merge-patch+json", &patch).await.0
        }
    });
    let codes = futures_util::future::join_all(patches).await;
    assert!(codes.iter().all(|code| *code == StatusCode::OK), "{codes:?}");
    let (_, after) = cluster.get(&path).await;
    assert_eq!(after["data"].as_object().map(serde_json::Map::len), Some(21));
    let stale = json!({ "metadata": { "resourceVersion": "1" }, "data": { "k": "late" } });
    let (code, _) = cluster.patch(&path, "application/merge-patch+json", &stale).await;
    assert_eq!(code, StatusCode::CONFLICT, "a patch may ask for a revision");
}

#[tokio::test]
async fn answers_say_which_flow_schema_and_level_were_theirs() {
    let cluster = Cluster::start().await;
    let flow_control = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let (_, schema) = cluster.get(&format!("{flow_control}/flowschemas/exempt")).await;
    let (_, level) = cluster
        .get(&format!("{flow_control}/prioritylevelconfigurations/exempt"))
        .await;
    let answer = cluster.send("GET", "/api/v1/namespaces/none/pods/none", None).await;
    let told = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        told("x-kubernetes-pf-flowschema-uid"),
        schema["metadata"]["uid"].as_str().unwrap()
    );
    assert_eq!(
        told("x-kubernetes-pf-prioritylevel-uid"),
        level["metadata"]["uid"].as_str().unwrap()
    );
}

#[tokio::test]
async fn an_update_that_changes_nothing_keeps_the_revision() {
    let cluster = Cluster::start().await;
    let (_, first) = cluster
        .post("/api/v1/namespaces/default/configmaps", &config_map("a"))
        .await;
    let (_, second) = cluster.put("/api/v1/namespaces/default/configmaps/a", &first).await;
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn some_kinds_are_created_by_an_update() {
    let cluster = Cluster::start().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
    let lease = json!({ "metadata": { "name": "a" }, "spec": {} });
    assert_eq!(cluster.put(path, &lease).await.0, StatusCode::CREATED);
    let (code, nameless) = cluster.put(path, &json!({ "spec": {} })).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert_eq!(
        nameless["message"],
        "the name of the object (a based on URL) was undeterminable: name must be provided"
    );
    let (code, _) = cluster
        .put("/api/v1/namespaces/default/configmaps/a", &config_map("a"))
        .await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn unknown_fields_are_refused_warned_about_or_dropped() {
    let cluster = Cluster::start().await;
    let mut odd = config_map("a");
    odd["what"] = "?".into();
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, status) = cluster.post(&format!("{path}?fieldValidation=Strict"), &odd).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert_eq!(
        status["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"what\""
    );
    let response = cluster.send("POST", path, Some(&odd)).await;
    assert_eq!(response.headers()["warning"], "299 - \"unknown field \\\"what\\\"\"");
    let stored = json_of(response).await;
    assert!(stored.get("what").is_none());
}

#[tokio::test]
async fn an_object_with_a_finalizer_waits_for_it() {
    let cluster = Cluster::start().await;
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.post("/api/v1/namespaces/default/configmaps", &held).await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    let (_, pending) = cluster.delete(path).await;
    assert!(pending["metadata"]["deletionTimestamp"].is_string());
    let patch = json!({ "metadata": { "finalizers": null } });
    assert_eq!(
        cluster.patch(path, "application/merge-patch+json", &patch).await.0,
        StatusCode::OK
    );
    assert_eq!(cluster.get(path).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn deletion_can_be_made_conditional_on_the_uid() {
    let cluster = Cluster::start().await;
    cluster
        .post("/api/v1/namespaces/default/configmaps", &config_map("a"))
        .await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    let options = json!({ "preconditions": { "uid": "another" } });
    let response = cluster.send("DELETE", path, Some(&options)).await;
    assert_eq!(response.status(), StatusCode::CONFLICT);
    assert_eq!(cluster.get(path).await.0, StatusCode::OK);
    assert_eq!(cluster.delete(path).await.1["status"], "Success");
}

#[tokio::test]
async fn a_dry_run_tells_the_result_and_stores_nothing() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, object) = cluster.post(&format!("{path}?dryRun=All"), &config_map("a")).await;
    assert_eq!((code, object["data"]["k"].as_str()), (StatusCode::CREATED, Some("v")));
    assert!(object["metadata"].get("resourceVersion").is_none());
    assert_eq!(cluster.get(&format!("{path}/a")).await.0, StatusCode::NOT_FOUND);
    let (code, _) = cluster.post(&format!("{path}?dryRun=Some"), &config_map("a")).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn pages_pin_one_revision() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    for name in ["a", "b", "c"] {
        cluster.post(path, &config_map(name)).await;
    }
    let (_, first) = cluster.get(&format!("{path}?limit=2")).await;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    cluster.post(path, &config_map("d")).await;
    let token = first["metadata"]["continue"].as_str().unwrap_or_default();
    let (_, second) = cluster.get(&format!("{path}?limit=2&continue={token}")).await;
    assert_eq!(names(&second), ["c"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn selectors_choose_by_label_and_by_field() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    for (name, tier) in [("a", "web"), ("b", "db")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({ "tier": tier });
        cluster.post(path, &object).await;
    }
    let (_, by_label) = cluster.get(&format!("{path}?labelSelector=tier%20in%20(web)")).await;
    assert_eq!(names(&by_label), ["a"]);
    let (_, by_field) = cluster.get(&format!("{path}?fieldSelector=metadata.name=b")).await;
    assert_eq!(names(&by_field), ["b"]);
    let (code, _) = cluster.get(&format!("{path}?fieldSelector=data.k=v")).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_watch_shows_what_enters_and_leaves_its_selector() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let mut watch = cluster
        .watch(&format!("{path}?watch=1&labelSelector=tier=web&resourceVersion=0"))
        .await;
    cluster.post(path, &config_map("a")).await;
    let label = |tier: Value| json!({ "metadata": { "labels": { "tier": tier } } });
    let patch = "application/merge-patch+json";
    cluster.patch(&format!("{path}/a"), patch, &label("web".into())).await;
    assert_eq!(watch.next().await, ("ADDED".to_owned(), "a".to_owned()));
    cluster
        .patch(&format!("{path}/a"), patch, &json!({ "data": { "k": "2" } }))
        .await;
    assert_eq!(watch.next().await, ("MODIFIED".to_owned(), "a".to_owned()));
    cluster.patch(&format!("{path}/a"), patch, &label(Value::Null)).await;
    assert_eq!(watch.next().await, ("DELETED".to_owned(), "a".to_owned()));
}

#[tokio::test]
async fn a_watch_goes_on_from_a_revision() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let (_, first) = cluster.post(path, &config_map("a")).await;
    cluster.post(path, &config_map("b")).await;
    let revision = first["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let mut watch = cluster
        .watch(&format!("{path}?watch=true&resourceVersion={revision}"))
        .await;
    assert_eq!(watch.next().await, ("ADDED".to_owned(), "b".to_owned()));
}

#[tokio::test]
async fn initial_events_end_with_an_annotated_bookmark() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    cluster.post(path, &config_map("a")).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = cluster.watch(&format!("{path}?{query}")).await;
    assert_eq!(watch.next().await, ("ADDED".to_owned(), "a".to_owned()));
    let bookmark = watch.next_event().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
}

#[tokio::test]
async fn a_status_write_leaves_the_spec_alone_and_the_reverse() {
    let cluster = Cluster::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let (code, created) = cluster.post(path, &deployment("web")).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    assert_eq!(created["metadata"]["generation"], 1);
    let patch = "application/merge-patch+json";
    let both = json!({ "spec": { "replicas": 7 }, "status": { "replicas": 3 } });
    let (_, object) = cluster.patch(&format!("{path}/web/status"), patch, &both).await;
    assert_eq!(
        (&object["spec"]["replicas"], &object["status"]["replicas"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(object["metadata"]["generation"], 1);
    let (_, object) = cluster.patch(&format!("{path}/web"), patch, &both).await;
    assert_eq!(
        (&object["spec"]["replicas"], &object["status"]["replicas"]),
        (&json!(7), &json!(3))
    );
    assert_eq!(object["metadata"]["generation"], 2);
    let (_, scale) = cluster.get(&format!("{path}/web/scale")).await;
    assert_eq!(
        (&scale["spec"]["replicas"], &scale["status"]["selector"]),
        (&json!(7), &json!("app=web"))
    );
}

#[tokio::test]
async fn services_get_different_addresses_at_the_same_time() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/services";
    let services: Vec<Value> = (0..16).map(|index| service(&format!("s{index}"))).collect();
    let created = futures_util::future::join_all(services.iter().map(|service| cluster.post(path, service))).await;
    let mut addresses: Vec<&str> = created
        .iter()
        .map(|(_, service)| service["spec"]["clusterIP"].as_str().unwrap_or("none"))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 16, "{addresses:?}");
    let (_, taken) = cluster
        .get(&format!("/apis/networking.k8s.io/v1/ipaddresses/{}", addresses[0]))
        .await;
    assert_eq!(taken["spec"]["parentRef"]["resource"], "services");
    cluster.delete(&format!("{path}/s0")).await;
    let (_, left) = cluster.get("/apis/networking.k8s.io/v1/ipaddresses").await;
    // Fifteen services and the API server's own.
    assert_eq!(left["items"].as_array().map(Vec::len), Some(16));
}

#[tokio::test]
async fn users_may_do_what_their_roles_allow() {
    let cluster = Cluster::start().await;
    let role = json!({
        "metadata": { "name": "reader" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }],
    });
    let binding = json!({
        "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob" }],
    });
    cluster
        .post("/api/v1/namespaces/default/configmaps", &config_map("a"))
        .await;
    let bob = cluster.as_user("bob");
    let path = "/api/v1/namespaces/default/configmaps/a";
    let (code, status) = bob.get(path).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        status["message"],
        "configmaps \"a\" is forbidden: User \"bob\" cannot get resource \"configmaps\" in API group \"\" in the \
         namespace \"default\""
    );
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    assert_eq!(
        cluster.post(&format!("{rbac}/roles"), &role).await.0,
        StatusCode::CREATED
    );
    assert_eq!(
        cluster.post(&format!("{rbac}/rolebindings"), &binding).await.0,
        StatusCode::CREATED
    );
    assert_eq!(bob.get_until_allowed(path).await, StatusCode::OK);
    assert_eq!(bob.delete(path).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn tables_and_metadata_are_made_on_request() {
    let cluster = Cluster::start().await;
    cluster
        .post("/api/v1/namespaces/default/configmaps", &config_map("a"))
        .await;
    let path = "/api/v1/namespaces/default/configmaps";
    let table = cluster
        .get_as(path, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .await;
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"][0], "a");
    let partial = cluster
        .get_as(path, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
        .await;
    assert_eq!(partial["items"][0]["kind"], "PartialObjectMetadata");
    assert!(partial["items"][0].get("data").is_none());
}

#[tokio::test]
async fn what_is_not_there_is_answered_as_upstream_does() {
    let cluster = Cluster::start().await;
    let cases = [
        (
            "GET",
            "/api/v1/namespaces/default/configmaps/none",
            StatusCode::NOT_FOUND,
        ),
        ("PUT", "/api/v1/configmaps", StatusCode::METHOD_NOT_ALLOWED),
        ("POST", "/api/v1/configmaps", StatusCode::METHOD_NOT_ALLOWED),
        (
            "GET",
            "/api/v1/namespaces/default/pods/p/nothing",
            StatusCode::NOT_FOUND,
        ),
    ];
    for (method, path, expected) in cases {
        let response = cluster.send(method, path, None).await;
        assert_eq!(response.status(), expected, "{method} {path}");
        assert_eq!(json_of(response).await["kind"], "Status", "{method} {path}");
    }
    for path in ["/apis/none.example.com/v1/things", "/nowhere"] {
        let response = cluster.send("GET", path, None).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(json_of(response).await, "404 page not found\n", "{path}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let cluster = Cluster::start().await;
    let mut large = config_map("a");
    large["data"]["k"] = "x".repeat(4 << 20).into();
    let (code, status) = cluster.post("/api/v1/namespaces/default/configmaps", &large).await;
    assert_eq!(
        (code, status["reason"].as_str()),
        (StatusCode::PAYLOAD_TOO_LARGE, Some("RequestEntityTooLarge"))
    );
}

#[tokio::test]
async fn deleting_shows_what_was_deleted_or_leaves_dependents_behind() {
    let cluster = Cluster::start().await;
    let services = "/api/v1/namespaces/default/services";
    cluster.post(services, &service("a")).await;
    let (_, deleted) = cluster.delete(&format!("{services}/a")).await;
    assert_eq!(deleted["kind"], "Service");

    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let template =
        json!({ "metadata": { "labels": { "app": "a" } }, "spec": { "containers": [{ "name": "a", "image": "a" }] } });
    let controller = json!({ "metadata": { "name": "a" }, "spec": { "replicas": 0, "template": template } });
    assert_eq!(cluster.post(controllers, &controller).await.0, StatusCode::CREATED);
    let (_, waiting) = cluster.delete(&format!("{controllers}/a")).await;
    assert_eq!(waiting["metadata"]["finalizers"], json!(["orphan"]));
}

#[tokio::test]
async fn a_balancer_that_asks_nodes_gets_a_port_to_ask_at() {
    let cluster = Cluster::start().await;
    let services = "/api/v1/namespaces/default/services";
    let ports = json!([
        { "name": "udp", "port": 53, "protocol": "UDP" }, { "name": "tcp", "port": 53, "protocol": "TCP" },
    ]);
    let spec = json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": ports });
    let (code, made) = cluster
        .post(services, &json!({ "metadata": { "name": "a" }, "spec": spec }))
        .await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    let spec = &made["spec"];
    assert!(spec["healthCheckNodePort"].as_i64().is_some_and(|port| port >= 30000));
    assert_ne!(spec["healthCheckNodePort"], spec["ports"][0]["nodePort"]);
    // Ports of one number share a port of the nodes.
    assert_eq!(spec["ports"][0]["nodePort"], spec["ports"][1]["nodePort"]);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_before_anything_is_looked_for() {
    let cluster = Cluster::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let log = "/api/v1/namespaces/default/pods/none/log";
    let cases = [
        (
            format!("{maps}?limit=x"),
            "strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
        (
            format!("{maps}?resourceVersionMatch=Exact"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden \
             unless resourceVersion is provided",
        ),
        (
            format!("{maps}?sendInitialEvents=true"),
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
        (
            format!("{maps}?fieldSelector=data.a=x"),
            "\"data.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            format!("{log}?tailLines=-1"),
            "PodLogOptions \"none\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
        ),
    ];
    for (path, expected) in cases {
        assert_eq!(cluster.get(&path).await.1["message"], expected, "{path}");
    }
    let created = json!({ "metadata": { "name": "a", "resourceVersion": "7" } });
    let (_, refused) = cluster.post(maps, &created).await;
    assert_eq!(
        refused["message"],
        "resourceVersion should not be set on objects to be created"
    );
}

#[tokio::test]
async fn a_review_asks_one_thing_about_somebody() {
    let cluster = Cluster::start().await;
    let reviews = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let attributes = json!({ "namespace": "other", "verb": "get", "resource": "pods" });
    let (code, refused) = cluster
        .post(reviews, &json!({ "spec": { "resourceAttributes": attributes } }))
        .await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let fields: Vec<&str> = refused["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|cause| cause["field"].as_str())
        .collect();
    assert_eq!(fields, ["spec.user", "spec.resourceAttributes.namespace"]);
}

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "k": "v" } })
}

fn service(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "selector": { "app": "x" }, "ports": [{ "port": 80 }] } })
}

fn deployment(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "i" }] },
            },
        },
    })
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

/// Whoever brings marks needs the right to; what is brought is bounded.
#[tokio::test]
async fn marks_of_other_processes_are_taken_in() {
    let cluster = Cluster::start().await;
    let path = "/debug/karve/marks";
    let mark = json!({ "atUs": 5, "stage": "scheduler/bound", "object": "pods/default/brought", "uid": "u1" });
    let taken = cluster.post(path, &json!({ "marks": [mark] })).await;
    assert_eq!(taken, (StatusCode::OK, json!({ "absorbed": 1 })));
    let (_, told) = cluster.get("/debug/karve/marks?prefix=pods/default/brought").await;
    assert_eq!(told["marks"], json!([mark]));

    let (code, _) = cluster.post(path, &json!({ "marks": vec![mark.clone(); 1001] })).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let (code, _) = cluster.post(path, &json!({ "marks": 1 })).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn metrics_tell_what_was_stored_watched_and_refused() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let mut watch = cluster.watch(&format!("{path}?watch=1")).await;
    cluster.post(path, &config_map("a")).await;
    while watch.next().await.1 != "a" {}
    let refused = cluster.as_user("jane").get(path).await;
    assert_eq!(refused.0, StatusCode::FORBIDDEN);
    let text = text_of(cluster.send("GET", "/metrics", None).await).await;
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).trim();
        number.parse().expect("a number")
    };
    assert!(value("apiserver_storage_objects{resource=\"configmaps\"}") >= 1);
    assert!(value("apiserver_watch_events_total{group=\"\",resource=\"configmaps\",version=\"v1\"}") >= 1);
    assert!(value("apiserver_storage_events_received_total{group=\"\",resource=\"configmaps\"}") >= 1);
    let of = "group=\"\",resource=\"configmaps\"";
    assert!(value(&format!("etcd_requests_total{{{of},operation=\"create\"}}")) >= 1);
    assert!(
        value(&format!(
            "apiserver_request_body_size_bytes_count{{{of},verb=\"create\"}}"
        )) >= 1
    );
    assert_eq!(value("authorization_attempts_total{result=\"denied\"}"), 1);
    assert!(value("authentication_attempts{result=\"success\"}") >= 3);
    let plugin = "name=\"NamespaceLifecycle\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"";
    let count = format!("apiserver_admission_controller_admission_duration_seconds_count{{{plugin}}}");
    assert_eq!(value(&count), 1);
}
