use api::kinds::job::JOB;
use api::kinds::pod::POD;
use client::{DeleteOptions, Propagation};
use serde_json::{Value, json};

use crate::cluster::Cluster;

const WORK: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completions: 4
  parallelism: 2
  completionMode: Indexed
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: 'work:1'}]}}
";

/// What a kubelet does for pods whose containers end at once.
async fn finish_pods(cluster: &Cluster) {
    let pods = cluster
        .client
        .resource(&POD)
        .in_namespace("default")
        .subresource("status");
    for pod in cluster.list(&POD, "default").await {
        if pod["status"]["phase"] != "Succeeded" {
            let status = json!({"status": {"phase": "Succeeded"}});
            let name = pod["metadata"]["name"].as_str().unwrap();
            pods.patch::<Value>(name, client::Patch::strategic(&status))
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_job_counts_each_of_its_pods_once_and_ends() {
    let cluster = Cluster::start().await;
    cluster.create(&JOB, "default", WORK).await;
    cluster
        .until("the end of the job", async || {
            finish_pods(&cluster).await;
            let job = cluster.get(&JOB, "default", "work").await.unwrap();
            let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["type"] == "Complete")
        })
        .await;
    let status = cluster.get(&JOB, "default", "work").await.unwrap()["status"].clone();
    assert_eq!(status["succeeded"], 4);
    assert_eq!(status["completedIndexes"], "0-3");
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert!(status["completionTime"].is_string());
    let pods = cluster.list(&POD, "default").await;
    assert_eq!(pods.len(), 4);
    assert!(pods.iter().all(|pod| pod["metadata"]["finalizers"].is_null()));

    // As kubectl does it: without a word, a job leaves its pods behind.
    let background = DeleteOptions::propagation(Propagation::Background);
    let jobs = cluster.client.resource(&JOB).in_namespace("default");
    jobs.delete("work", &background).await.unwrap();
    cluster
        .until("the end of the pods", async || {
            cluster.list(&POD, "default").await.is_empty()
        })
        .await;
    cluster.stop().await;
}
