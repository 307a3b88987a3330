use api::kinds::secret::SECRET;
use api::kinds::service_account::SERVICE_ACCOUNT;
use api::kinds::service_cidr::SERVICE_CIDR;

use crate::cluster::Cluster;

const SECRET_YAML: &str = "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token,
    metadata: {name: robot-token, annotations: {kubernetes.io/service-account.name: robot}}}";

#[tokio::test]
async fn a_secret_of_an_account_gets_a_token_and_goes_with_the_account() {
    let cluster = Cluster::start().await;
    let account = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}, secrets: [{name: robot-token}]}";
    cluster.create(&SERVICE_ACCOUNT, "default", account).await;
    // Faster than any cache may be: the account must not be taken for one that is gone.
    cluster.create(&SECRET, "default", SECRET_YAML).await;
    cluster
        .until("a token", async || {
            let secret = cluster.get(&SECRET, "default", "robot-token").await;
            secret.is_some_and(|secret| {
                secret["data"]["token"].is_string()
                    && secret["data"]["namespace"] == "ZGVmYXVsdA=="
                    && secret["data"]["ca.crt"] == "UEVN"
                    && secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"].is_string()
            })
        })
        .await;
    cluster.delete(&SECRET, "default", "robot-token").await;
    cluster
        .until("no reference to the Secret", async || {
            let account = cluster.get(&SERVICE_ACCOUNT, "default", "robot").await;
            account.is_some_and(|account| account["secrets"].as_array().is_none_or(Vec::is_empty))
        })
        .await;
    cluster.create(&SECRET, "default", SECRET_YAML).await;
    cluster.delete(&SERVICE_ACCOUNT, "default", "robot").await;
    cluster
        .until("the Secret to go with its account", async || {
            cluster.get(&SECRET, "default", "robot-token").await.is_none()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_range_of_service_addresses_becomes_ready_and_is_protected() {
    let cluster = Cluster::start().await;
    let range = "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: more},
        spec: {cidrs: [10.97.0.0/24]}}";
    cluster.create(&SERVICE_CIDR, "", range).await;
    cluster
        .until("a ready range", async || {
            let range = cluster.get(&SERVICE_CIDR, "", "more").await;
            range.is_some_and(|range| {
                range["status"]["conditions"][0]["status"] == "True"
                    && range["metadata"]["finalizers"][0] == "networking.k8s.io/service-cidr-finalizer"
            })
        })
        .await;
    cluster.stop().await;
}
