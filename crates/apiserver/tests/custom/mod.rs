//! Custom resources as clients see them.

mod conversion;

use std::time::Duration;

use crate::cluster::{Cluster, text_of};
use http::StatusCode;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";

/// How long the server may take to act on a definition, on a slow machine.
const TRIES: usize = 400;
const PAUSE: Duration = Duration::from_millis(25);

fn definition() -> Value {
    let schema = json!({
        "type": "object",
        "description": "A foo.",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "color": { "type": "string", "enum": ["red", "blue"], "description": "What it looks like." },
                    "replicas": { "type": "integer", "default": 1, "minimum": 0 },
                },
            },
            "status": { "type": "object", "properties": { "replicas": { "type": "integer" } } },
        },
    });
    json!({
        "metadata": { "name": "foos.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "foos", "singular": "foo", "kind": "Foo", "shortNames": ["fo"] },
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
                    "subresources": {
                        "status": {},
                        "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" },
                    },
                    "selectableFields": [{ "jsonPath": ".spec.color" }],
                    "additionalPrinterColumns": [{ "name": "Color", "type": "string", "jsonPath": ".spec.color" }],
                },
                { "name": "v2", "served": true, "storage": false, "schema": { "openAPIV3Schema": schema } },
            ],
        },
    })
}

fn foo(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Foo", "metadata": { "name": name }, "spec": spec })
}

pub async fn established() -> Cluster {
    established_with(&definition()).await
}

/// The same for objects in namespaces or outside of them.
pub async fn established_in_scope(scope: &str) -> Cluster {
    let mut definition = definition();
    definition["spec"]["scope"] = scope.into();
    established_with(&definition).await
}

async fn established_with(definition: &Value) -> Cluster {
    let cluster = Cluster::start().await;
    let (code, answer) = cluster.post(DEFINITIONS, definition).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    wait_for(&cluster, &format!("{DEFINITIONS}/foos.example.com"), |answer| {
        let conditions = answer["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let established = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        conditions.iter().any(established)
    })
    .await;
    cluster
}

async fn wait_for(cluster: &Cluster, path: &str, done: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    for _ in 0..TRIES {
        last = cluster.get(path).await.1;
        if done(&last) {
            return last;
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("{path} does not come to what is waited for: {last}");
}

#[tokio::test]
async fn a_definition_makes_a_resource_with_defaults_pruning_and_validation() {
    let cluster = established().await;
    let spec = json!({ "color": "red", "unknown": 1 });
    let (code, created) = cluster
        .post(&format!("{FOOS}?fieldValidation=Ignore"), &foo("a", spec.clone()))
        .await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    assert_eq!(created["spec"], json!({ "color": "red", "replicas": 1 }));
    assert_eq!(created["metadata"]["generation"], 1);

    let (code, answer) = cluster
        .post(&format!("{FOOS}?fieldValidation=Strict"), &foo("b", spec))
        .await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with("strict decoding error: unknown field \"spec.unknown\""),
        "{message}"
    );

    let (code, answer) = cluster.post(FOOS, &foo("b", json!({ "color": "green" }))).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        answer["message"],
        "Foo.example.com \"b\" is invalid: spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\""
    );
}

#[tokio::test]
async fn status_and_scale_change_their_part_only() {
    let cluster = established().await;
    cluster.post(FOOS, &foo("a", json!({ "color": "red" }))).await;
    let patch = json!({ "spec": { "color": "blue" }, "status": { "replicas": 2 } });
    let kind = "application/merge-patch+json";
    let (_, patched) = cluster.patch(&format!("{FOOS}/a/status"), kind, &patch).await;
    assert_eq!(patched["spec"]["color"], "red");
    assert_eq!(patched["status"]["replicas"], 2);
    assert_eq!(patched["metadata"]["generation"], 1);

    let (_, scaled) = cluster
        .patch(&format!("{FOOS}/a/scale"), kind, &json!({ "spec": { "replicas": 5 } }))
        .await;
    assert_eq!(
        (&scaled["spec"]["replicas"], &scaled["status"]["replicas"]),
        (&json!(5), &json!(2))
    );
    let (_, object) = cluster.get(&format!("{FOOS}/a")).await;
    assert_eq!(object["spec"]["replicas"], 5);
    assert_eq!(object["metadata"]["generation"], 2);
}

#[tokio::test]
async fn objects_are_served_in_every_version_and_selected_by_field() {
    let cluster = established().await;
    for (name, color) in [("a", "red"), ("b", "blue")] {
        cluster.post(FOOS, &foo(name, json!({ "color": color }))).await;
    }
    let (_, in_v2) = cluster.get("/apis/example.com/v2/namespaces/default/foos/a").await;
    assert_eq!(in_v2["apiVersion"], "example.com/v2");
    let (_, list) = cluster.get(&format!("{FOOS}?fieldSelector=spec.color%3Dblue")).await;
    let names: Vec<&Value> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| &item["metadata"]["name"])
        .collect();
    assert_eq!(names, ["b"]);
    assert_eq!(list["kind"], "FooList");
    let (code, _) = cluster
        .get("/apis/example.com/v2/foos?fieldSelector=spec.color%3Dblue")
        .await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "only the first version selects by it");
}

#[tokio::test]
async fn discovery_and_openapi_know_it() {
    let cluster = established().await;
    let (_, group) = cluster.get("/apis/example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let (_, resources) = cluster.get("/apis/example.com/v1").await;
    let names: Vec<&Value> = resources["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|found| &found["name"])
        .collect();
    assert_eq!(names, ["foos", "foos/status", "foos/scale"]);
    let (_, v3) = cluster.get("/openapi/v3/apis/example.com/v1").await;
    let schema = &v3["components"]["schemas"]["com.example.v1.Foo"];
    assert_eq!(
        schema["properties"]["spec"]["properties"]["color"]["description"],
        "What it looks like."
    );
    let v2 = text_of(cluster.send("GET", "/openapi/v2", None).await).await;
    // Clients refuse a document that defines something twice.
    for shared in [
        "io.k8s.api.autoscaling.v1.Scale",
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    ] {
        assert_eq!(v2.matches(&format!("\"{shared}\":{{")).count(), 1, "{shared}");
    }
    let v2: Value = serde_json::from_str(&v2).expect("the document is JSON");
    assert_eq!(v2["definitions"]["com.example.v1.Foo"]["description"], "A foo.");
    let pod = &v2["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"];
    assert_eq!(pod["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
    assert!(pod["description"].is_string());
    assert!(v2["paths"]["/apis/example.com/v1/namespaces/{namespace}/foos/{name}"]["patch"].is_object());
}

#[tokio::test]
async fn a_changed_schema_applies_to_what_is_stored() {
    let cluster = established().await;
    cluster.post(FOOS, &foo("a", json!({ "color": "red" }))).await;
    let path = format!("{DEFINITIONS}/foos.example.com");
    let (_, mut current) = cluster.get(&path).await;
    let properties = &mut current["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    properties["spec"]["properties"]["size"] = json!({ "type": "string", "default": "small" });
    let (code, answer) = cluster.put(&path, &current).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    wait_for(&cluster, &format!("{FOOS}/a"), |object| {
        object["spec"]["size"] == "small"
    })
    .await;
}

#[tokio::test]
async fn objects_go_with_their_definition() {
    let cluster = established().await;
    cluster.post(FOOS, &foo("a", json!({ "color": "red" }))).await;
    let path = format!("{DEFINITIONS}/foos.example.com");
    let (_, deleting) = cluster.delete(&path).await;
    assert_eq!(
        deleting["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    wait_for(&cluster, &path, |answer| answer["code"] == 404).await;
    wait_for(&cluster, FOOS, |answer| answer == "404 page not found\n").await;

    let (code, _) = cluster.post(DEFINITIONS, &definition()).await;
    assert_eq!(code, StatusCode::CREATED);
    let list = wait_for(&cluster, FOOS, |answer| answer["kind"] == "FooList").await;
    assert_eq!(list["items"], json!([]));
}

/// A definition gets the names that become free, though nobody touches the definition itself.
#[tokio::test]
async fn names_that_become_free_are_given_to_who_waits_for_them() {
    let cluster = established().await;
    let mut other = definition();
    other["metadata"]["name"] = "others.example.com".into();
    other["spec"]["names"] = json!({ "plural": "others", "singular": "other", "kind": "Foo" });
    let (code, answer) = cluster.post(DEFINITIONS, &other).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let path = format!("{DEFINITIONS}/others.example.com");
    let has = |answer: &Value, kind: &str, status: &str| {
        let conditions = answer["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let same = |condition: &Value| condition["type"] == kind && condition["status"] == status;
        conditions.iter().any(same)
    };
    wait_for(&cluster, &path, |answer| has(answer, "NamesAccepted", "False")).await;
    cluster.delete(&format!("{DEFINITIONS}/foos.example.com")).await;
    wait_for(&cluster, &path, |answer| has(answer, "Established", "True")).await;
    let objects = "/apis/example.com/v1/namespaces/default/others";
    let (code, answer) = cluster.post(objects, &foo("a", json!({ "color": "red" }))).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    // Its schema counts, which was read anew for this.
    let (code, _) = cluster.post(objects, &foo("b", json!({ "color": "green" }))).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}

/// What is served is made anew only for definitions that changed: watches on all others go on.
#[tokio::test]
async fn a_definition_leaves_the_others_alone() {
    let cluster = established().await;
    let mut watch = cluster.watch(&format!("{FOOS}?watch=1")).await;
    for group in ["example.com", "example.org"] {
        let mut other = definition();
        other["metadata"]["name"] = format!("bars.{group}").into();
        other["spec"]["group"] = group.into();
        other["spec"]["names"] = json!({ "plural": "bars", "singular": "bar", "kind": "Bar" });
        let (code, answer) = cluster.post(DEFINITIONS, &other).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
        let list = format!("/apis/{group}/v1/bars");
        wait_for(&cluster, &list, |answer| answer["kind"] == "BarList").await;
    }
    cluster.post(FOOS, &foo("a", json!({ "color": "red" }))).await;
    assert_eq!(watch.next().await, ("ADDED".to_owned(), "a".to_owned()));
}

#[tokio::test]
async fn a_patch_leaves_a_custom_resource_what_it_is() {
    let cluster = established().await;
    cluster.post(FOOS, &foo("a", json!({ "color": "red" }))).await;
    let path = format!("{FOOS}/a");
    for (patch, expected) in [
        (
            json!({ "kind": "Bar" }),
            "Bar.example.com \"a\" is invalid: kind: Invalid value: \"Bar\": must be Foo",
        ),
        (
            json!({ "apiVersion": "example.com/v2" }),
            "Foo.example.com \"a\" is invalid: apiVersion: Invalid value: \"example.com/v2\": must be example.com/v1",
        ),
    ] {
        let (code, answer) = cluster.patch(&path, "application/merge-patch+json", &patch).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        assert_eq!(answer["message"], expected);
    }
    let nameless = json!({ "apiVersion": "example.com/v1", "kind": "Foo" });
    let applied = format!("{FOOS}/new?fieldManager=x");
    let (code, _) = cluster.patch(&applied, "application/apply-patch+yaml", &nameless).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_definition_with_a_broken_schema_is_refused() {
    let cluster = Cluster::start().await;
    let mut broken = definition();
    broken["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({});
    let (code, answer) = cluster.post(DEFINITIONS, &broken).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        answer["message"],
        "CustomResourceDefinition.apiextensions.k8s.io \"foos.example.com\" is invalid: \
         spec.versions[0].schema.openAPIV3Schema.properties[status].type: Required value: must not be empty for \
         specified object fields"
    );
}

#[tokio::test]
async fn discovery_tells_the_version_in_which_objects_are_stored() {
    let cluster = established().await;
    for version in ["v1", "v2"] {
        let (_, list) = cluster.get(&format!("/apis/example.com/{version}")).await;
        // Upstream's for example.com/v1/Foo.
        assert_eq!(list["resources"][0]["storageVersionHash"], "4XyhoHMtUhg=", "{list}");
    }
}
