//! What a kubelet may do, and from when on.

use http::StatusCode;
use serde_json::json;

use crate::cluster::Cluster;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Its watch is told before the authorizers look by themselves, and a refusal would cost the pod a retry's pause.
#[tokio::test]
async fn a_node_that_hears_of_a_pod_may_at_once_have_what_it_refers_to() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    for name in ["a", "b", "c"] {
        let node = cluster.as_node(name);
        let wanted = format!("{CONFIG_MAPS}/{name}");
        cluster.post(CONFIG_MAPS, &json!({"metadata": {"name": name}})).await;
        assert_eq!(node.get(&wanted).await.0, StatusCode::FORBIDDEN);
        let mut watch = node
            .watch(&format!("{PODS}?watch=1&fieldSelector=spec.nodeName%3D{name}"))
            .await;
        // A task of its own, as the authorizers' are, so that it runs in the order in which they are woken.
        let kubelet = tokio::spawn(async move {
            watch.next().await;
            node.get(&wanted).await
        });
        let container = json!({"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": name}}]});
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": name, "containers": [container]}});
        let (code, answer) = cluster.post(PODS, &pod).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
        let (code, answer) = kubelet.await.expect("an answer");
        assert_eq!(code, StatusCode::OK, "{answer}");
    }
}
