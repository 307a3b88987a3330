//! The whole proxy: objects in the API server become traffic.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;

use network::bridge::{self, BridgeOptions};
use proxy::ProxyOptions;
use serde_json::{Value, json};

use crate::fake_api::FakeApi;
use crate::support::{Pod, ask_udp, block_on, get, neighbour, on_new_host, run};

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
    for _ in 0..1000 {
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

            // The way to Services' addresses is one of the things that others remove.
            run("ip", &["route", "del", "10.96.0.0/16"]);
            until("a saw 10.244.0.1", || get(vip, 80)).await;

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

#[test]
fn rules_that_others_flush_are_restored() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(BridgeOptions {
            pod_cidrs: vec!["10.244.0.0/24".parse().unwrap()],
            ..BridgeOptions::new(dir.path().join("network"))
        });
        let network = network.unwrap();
        let api = FakeApi::default();
        let vip: IpAddr = "10.96.0.10".parse().unwrap();
        block_on(async {
            let [web, client] = [Pod::new("web"), Pod::new("client")];
            let (web, client) = (web.connected(&network).await, client.connected(&network).await);
            web.serve_tcp(8080);
            api.put("services", service("10.96.0.10"));
            api.put("endpointslices", slice(&[web.ips[0]]));
            let options = ProxyOptions {
                cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
                ..ProxyOptions::new(api.client(), "here")
            };
            let mut ready = options.ready.subscribe();
            let proxy = tokio::spawn(proxy::run(options));
            ready.wait_for(|ready| *ready).await.unwrap();
            let table = || run("nft", &["list", "tables"]);
            for flush in [
                &["flush", "ruleset"][..],
                &["delete", "table", "ip", "karve-proxy"],
                &["flush", "table", "ip", "karve-proxy"],
            ] {
                run("nft", flush);
                until("web saw 10.244.0.3", || client.get(vip, 80)).await;
                assert!(table().contains("karve-proxy"));
            }
            assert!(!proxy.is_finished());
            proxy.abort();
        });
    });
}

/// What a server answers to a request for a path, from its first line to its last.
fn http_get(address: &str, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return "no connection".to_owned();
    };
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn balanced(name: &str, port: u16, more: Value) -> Value {
    let mut service = json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"type": "LoadBalancer", "clusterIP": format!("10.96.0.{}", 10 + name.len()), "ports": [
            {"name": "http", "port": port, "protocol": "TCP"},
        ]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}},
    });
    for (field, value) in more.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    service
}

/// A load balancer at the address of the node leads to pods, but never takes a port on which a program of the node listens.
#[test]
fn load_balancers_at_the_nodes_address_take_free_ports_only() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(BridgeOptions {
            pod_cidrs: vec!["10.244.0.0/24".parse().unwrap()],
            ..BridgeOptions::new(dir.path().join("network"))
        });
        let network = network.unwrap();
        let outside = neighbour("outside");
        let node: IpAddr = "192.0.2.1".parse().unwrap();
        let program = TcpListener::bind("0.0.0.0:2222").unwrap();
        std::thread::spawn(move || {
            for stream in program.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = write!(stream, "the node's own");
            }
        });
        let api = FakeApi::default();
        block_on(async {
            let web = Pod::new("web").connected(&network).await;
            web.serve_tcp(8080);
            api.put(
                "nodes",
                json!({"metadata": {"name": "here"}, "status": {"addresses": [{"type": "InternalIP", "address": node}]}}),
            );
            api.put("services", balanced("web", 80, json!({})));
            api.put("services", balanced("thief", 2222, json!({})));
            let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30500});
            api.put("services", balanced("checked", 81, local));
            for name in ["web", "thief", "checked"] {
                let mut slice = slice(&[web.ips[0]]);
                slice["metadata"]["name"] = format!("{name}-x").into();
                slice["metadata"]["labels"]["kubernetes.io/service-name"] = name.into();
                api.put("endpointslices", slice);
            }
            let options = ProxyOptions {
                cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
                healthz_address: Some("127.0.0.1:10256".parse().unwrap()),
                ..ProxyOptions::new(api.client(), "here")
            };
            let mut ready = options.ready.subscribe();
            let proxy = tokio::spawn(proxy::run(options));
            ready.wait_for(|ready| *ready).await.unwrap();
            until("web saw 10.244.0.1", || outside.get(node, 80)).await;
            assert_eq!(outside.get(node, 81), "web saw 192.0.2.2");
            assert_eq!(outside.get(node, 2222), "the node's own");
            assert_eq!(
                TcpListener::bind((node, 80)).unwrap_err().kind(),
                std::io::ErrorKind::AddrInUse
            );
            let events = || {
                api.requests()
                    .iter()
                    .any(|line| line.contains("LoadBalancerPortInUse"))
                    .to_string()
            };
            until("true", events).await;

            let checked = || tokio::task::spawn_blocking(|| http_get("127.0.0.1:30500", "/"));
            let answer = checked().await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
            assert!(answer.contains("x-load-balancing-endpoint-weight: 1"), "{answer}");
            let health = tokio::task::spawn_blocking(|| http_get("127.0.0.1:10256", "/healthz"));
            assert!(health.await.unwrap().starts_with("HTTP/1.1 200 OK"));
            let mut gone = slice(&[]);
            gone["metadata"]["name"] = "checked-x".into();
            gone["metadata"]["labels"]["kubernetes.io/service-name"] = "checked".into();
            api.put("endpointslices", gone);
            let mut answer = String::new();
            for _ in 0..1000 {
                answer = checked().await.unwrap();
                if answer.starts_with("HTTP/1.1 503") {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(answer.contains("\"localEndpoints\":0"), "{answer}");
            api.delete("services", "web");
            until("true", || TcpListener::bind((node, 80)).is_ok().to_string()).await;
            proxy.abort();
        });
    });
}
