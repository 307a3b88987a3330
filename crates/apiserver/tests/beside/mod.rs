//! Several API servers beside each other on one etcd.

#[allow(dead_code, reason = "the store's tests need more of it")]
#[path = "../../../store/tests/contract/etcd_server.rs"]
mod etcd_server;

use std::collections::HashSet;

use etcd_server::EtcdServer;
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::json;

use crate::cluster::Cluster;

const SERVERS: usize = 3;
const SERVICES_EACH: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn no_address_and_no_port_is_given_out_twice() {
    let Some(etcd) = EtcdServer::start() else { return };
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        servers.push(Cluster::start_on(etcd.connect().await, &[]).await);
    }
    let creating = servers.iter().enumerate().flat_map(|(server, cluster)| {
        (0..SERVICES_EACH).map(move |number| async move {
            let service = json!({
                "metadata": {"name": format!("service-{server}-{number}")},
                "spec": {"type": "NodePort", "ports": [{"port": 80}]},
            });
            let (code, made) = cluster.post("/api/v1/namespaces/default/services", &service).await;
            assert_eq!(code, StatusCode::CREATED, "{made}");
            (
                made["spec"]["clusterIP"].clone(),
                made["spec"]["ports"][0]["nodePort"].clone(),
            )
        })
    });
    let made = join_all(creating).await;
    let addresses: HashSet<String> = made.iter().map(|(address, _)| address.to_string()).collect();
    let ports: HashSet<String> = made.iter().map(|(_, port)| port.to_string()).collect();
    assert_eq!((addresses.len(), ports.len()), (made.len(), made.len()));
    for cluster in &servers {
        cluster.server().stop().await;
    }
}
