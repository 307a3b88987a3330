//! The whole proxy: objects in the API server become traffic.

use std::net::IpAddr;
use std::time::Duration;

use network::bridge::{self, BridgeOptions};
use proxy::ProxyOptions;
use serde_json::{Value, json};

use crate::fake_api::FakeApi;
use crate::support::{Pod, ask_udp, block_on, get, on_new_host, run};

fn service(address: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"clusterIP": address, "ports": [
            {"name": "http", "port": 80, "protocol": "TCP"},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ]},
    })
}

fn slice(ips: &[IpAddr]) -> Value {
    let endpoints: Vec<Value> = ips
        .iter()
        .map(|ip| json!({"addresses": [ip], "nodeName": "here"}))
        .collect();
    json!({
        "metadata": {"namespace": "default", "name": "web-x", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [
            {"name": "http", "port": 8080, "protocol": "TCP"},
            {"name": "dns", "port": 5353, "protocol": "UDP"},
        ],
    })
}

async fn until(expected: &str, ask: impl Fn() -> String) {
    let mut answer = String::new();
    for _ in 0..100 {
        answer = ask();
        if answer == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("still {answer:?}, not {expected:?}");
}

#[test]
fn objects_become_traffic() {
    on_new_host(|| {
        // This machine has no default route.
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(BridgeOptions {
            pod_cidrs: vec!["10.244.0.0/24".parse().unwrap()],
            ..BridgeOptions::new(dir.path().join("network"))
        });
        let network = network.unwrap();
        let api = FakeApi::default();
        let vip: IpAddr = "10.96.0.10".parse().unwrap();
        let service_cidrs = vec!["10.96.0.0/16".parse().unwrap()];
        block_on(async {
            let pod = async |name: &str| {
                let pod = Pod::new(name).connected(&network).await;
                pod.serve_tcp(8080);
                pod.serve_udp(5353);
                pod
            };
            let [a, b, client] = [pod("a").await, pod("b").await, pod("client").await];
            api.put("services", service("10.96.0.10"));
            api.put("endpointslices", slice(&[a.ips[0]]));
            let options = ProxyOptions {
                cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
                service_cidrs: service_cidrs.clone(),
                ..ProxyOptions::new(api.client(), "here")
            };
            let mut ready = options.ready.subscribe();
            let proxy = tokio::spawn(proxy::run(options));
            ready.wait_for(|ready| *ready).await.unwrap();
            assert_eq!(client.get(vip, 80), "a saw 10.244.0.4");
            assert_eq!(get(vip, 80), "a saw 10.244.0.1");
            assert_eq!(ask_udp(vip, 53), "a saw 10.244.0.1");

            // A client that keeps its UDP port is led to the new pod as well.
            let socket = client
                .namespace
                .run(|| std::net::UdpSocket::bind("0.0.0.0:7000"))
                .unwrap()
                .unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let ask_again = || {
                let mut buffer = [0; 64];
                let _ = socket.send_to(b"?", (vip, 53));
                let answer = socket
                    .recv_from(&mut buffer)
                    .map(|(length, _)| buffer[..length].to_vec());
                answer.map_or("nothing".to_owned(), |answer| String::from_utf8(answer).unwrap())
            };
            assert_eq!(ask_again(), "a saw 10.244.0.4");
            api.put("endpointslices", slice(&[b.ips[0]]));
            until("b saw 10.244.0.4", || client.get(vip, 80)).await;
            until("b saw 10.244.0.4", ask_again).await;

            api.delete("services", "web");
            until("connection refused", || client.get(vip, 80)).await;
            proxy.abort();
            let _ = proxy.await;
        });
        assert!(run("nft", &["list", "tables"]).contains("karve-proxy"));
        assert!(run("ip", &["route"]).contains("10.96.0.0/16"));
        proxy::remove("karve-proxy", &service_cidrs).unwrap();
        assert!(!run("nft", &["list", "tables"]).contains("karve-proxy"));
        assert!(!run("ip", &["route"]).contains("10.96.0.0/16"));
    });
}
