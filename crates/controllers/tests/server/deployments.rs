use api::kinds::deployment::DEPLOYMENT;
use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::pod::POD;
use api::kinds::replica_set::REPLICA_SET;
use api::kinds::service::SERVICE;
use serde_json::{Value, json};

use crate::cluster::Cluster;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'web:1', ports: [{name: http, containerPort: 8080}]}]}
";

const WEB_SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
";

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|one| one["type"] == kind));
    found.unwrap_or(&Value::Null)
}

async fn is_rolled_out(cluster: &Cluster, image: &str) -> bool {
    cluster.run_pods("default").await;
    let Some(deployment) = cluster.get(&DEPLOYMENT, "default", "web").await else {
        return false;
    };
    let status = &deployment["status"];
    let pods = cluster.list(&POD, "default").await;
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && [
            &status["replicas"],
            &status["updatedReplicas"],
            &status["availableReplicas"],
        ]
        .iter()
        .all(|count| **count == deployment["spec"]["replicas"])
        && pods.len() == 3
        && pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == image)
}

#[tokio::test]
async fn a_deployment_brings_up_its_pods_and_replaces_them() {
    let cluster = Cluster::start().await;
    cluster.create(&SERVICE, "default", WEB_SERVICE).await;
    cluster.create(&DEPLOYMENT, "default", WEB).await;
    cluster
        .until("three pods of the first image", async || {
            is_rolled_out(&cluster, "web:1").await
        })
        .await;
    let deployment = cluster.get(&DEPLOYMENT, "default", "web").await.unwrap();
    assert_eq!(condition(&deployment, "Available")["status"], "True");
    assert_eq!(
        condition(&deployment, "Progressing")["reason"],
        "NewReplicaSetAvailable"
    );
    assert_eq!(
        deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "1"
    );

    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}});
    cluster.patch(&DEPLOYMENT, "default", "web", image).await;
    cluster
        .until("three pods of the second image", async || {
            is_rolled_out(&cluster, "web:2").await
        })
        .await;
    let sets = cluster.list(&REPLICA_SET, "default").await;
    let sizes: Vec<i64> = sets
        .iter()
        .map(|set| set["spec"]["replicas"].as_i64().unwrap())
        .collect();
    assert_eq!(sizes.iter().sum::<i64>(), 3, "{sizes:?}");
    assert_eq!(sets.len(), 2);
    cluster.stop().await;
}

#[tokio::test]
async fn a_service_has_the_addresses_of_its_ready_pods() {
    let cluster = Cluster::start().await;
    cluster.create(&DEPLOYMENT, "default", WEB).await;
    cluster.create(&SERVICE, "default", WEB_SERVICE).await;
    cluster
        .until("three ready endpoints", async || {
            cluster.run_pods("default").await;
            let slices = cluster.list(&ENDPOINT_SLICE, "default").await;
            let ours = slices
                .iter()
                .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == "web");
            let endpoints = ours.flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
            endpoints
                .filter(|endpoint| endpoint["conditions"]["ready"] == true)
                .count()
                == 3
        })
        .await;
    let slices = cluster.list(&ENDPOINT_SLICE, "default").await;
    let slice = slices
        .iter()
        .find(|slice| slice["metadata"]["generateName"] == "web-")
        .unwrap();
    assert_eq!(slice["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
    cluster.stop().await;
}

#[tokio::test]
async fn settled_controllers_write_nothing() {
    let cluster = Cluster::start().await;
    cluster.create(&DEPLOYMENT, "default", WEB).await;
    cluster.create(&SERVICE, "default", WEB_SERVICE).await;
    cluster
        .until("the rollout", async || is_rolled_out(&cluster, "web:1").await)
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let revisions = async || {
        let mut revisions = Vec::new();
        for resource in [&DEPLOYMENT, &REPLICA_SET, &POD, &ENDPOINT_SLICE] {
            for object in cluster.list(resource, "default").await {
                revisions.push(object["metadata"]["resourceVersion"].clone());
            }
        }
        revisions
    };
    let before = revisions().await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(revisions().await, before);
    cluster.stop().await;
}
