//! Ports of the host that pods ask for, and those who listen on them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::Path;

use network::bridge::{self, BridgeOptions};
use network::{PodNetwork, PortMapping, Protocol};

use crate::support::{Pod, block_on, eventually, get, neighbour, on_new_host, run};

fn options(data_dir: &Path) -> BridgeOptions {
    BridgeOptions {
        pod_cidrs: vec!["10.244.0.0/24".parse().unwrap()],
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        reserved_ports: [(Protocol::Tcp, 10250)].into(),
        ..BridgeOptions::new(data_dir.join("network"))
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mapping(host_ip: Option<&str>, host_port: u16, protocol: Protocol) -> PortMapping {
    PortMapping {
        host_ip: host_ip.map(ip),
        host_port,
        container_port: 80,
        protocol,
    }
}

fn bind(port: u16) -> TcpListener {
    eventually(|| TcpListener::bind(("0.0.0.0", port)))
}

async fn refusal(network: &bridge::Bridge, mapping: PortMapping) -> String {
    let pod = Pod::new("greedy").with_ports(&[mapping]);
    let refused = network.setup(&pod.sandbox).await.unwrap_err().to_string();
    assert_eq!(pod.run("ip", &["-br", "link"]).lines().count(), 1, "only lo is left");
    assert!(!run("nft", &["list", "table", "inet", "karve0-network"]).contains("elements"));
    refused
}

#[test]
fn a_port_on_which_the_host_listens_is_no_pods_to_take() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(options(dir.path())).unwrap();
        let outside = neighbour("outside");
        let server = Pod {
            namespace: network::netlink::Namespace::open(Path::new("/proc/thread-self/ns/net")).unwrap(),
            ..Pod::new("host")
        };
        server.serve_tcp(6443);
        let _kubelet = TcpListener::bind("192.0.2.1:10251").unwrap();
        let _loopback = TcpListener::bind("127.0.0.1:2379").unwrap();
        let _dns = UdpSocket::bind("0.0.0.0:10053").unwrap();
        let in_use = |port, protocol| {
            format!(
                "host port {port}/{protocol} is in use on this node: a program or another pod listens on it; choose \
                 another hostPort"
            )
        };
        block_on(async {
            for (address, port, protocol) in [
                (None, 6443, Protocol::Tcp),
                (None, 10251, Protocol::Tcp),
                (None, 2379, Protocol::Tcp),
                (None, 10053, Protocol::Udp),
                (Some("192.0.2.1"), 6443, Protocol::Tcp),
                (Some("0.0.0.0"), 6443, Protocol::Tcp),
            ] {
                let refused = refusal(&network, mapping(address, port, protocol)).await;
                assert_eq!(refused, in_use(port, protocol), "{address:?}");
            }
            let refused = refusal(&network, mapping(Some("127.0.0.9"), 10250, Protocol::Tcp)).await;
            assert_eq!(
                refused,
                "host port 10250/TCP is reserved for the node's own components; choose another hostPort"
            );
            // Other addresses and other protocols are free.
            let free = [
                mapping(Some("127.0.0.1"), 10251, Protocol::Tcp),
                mapping(None, 6443, Protocol::Udp),
                mapping(None, 10250, Protocol::Udp),
                mapping(None, 10053, Protocol::Sctp),
            ];
            let _a = Pod::new("a").with_ports(&free).connected(&network).await;
            assert_eq!(outside.get(ip("192.0.2.1"), 6443), "host saw 192.0.2.2");
        });
    });
}

#[test]
fn a_pods_port_is_its_own_until_it_goes() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(options(dir.path())).unwrap();
        let ports = [mapping(None, 8080, Protocol::Tcp), mapping(None, 5353, Protocol::Udp)];
        block_on(async {
            let a = Pod::new("a").with_ports(&ports).connected(&network).await;
            network.setup(&a.sandbox).await.unwrap();
            a.serve_tcp(80);
            let taken = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::AddrInUse);
            taken(TcpListener::bind("127.0.0.1:8080").unwrap_err());
            taken(UdpSocket::bind("127.0.0.1:5353").unwrap_err());
            assert_eq!(get(ip("127.0.0.1"), 8080), "a saw 10.244.0.1");
            let refused = network.setup(&Pod::new("b").with_ports(&ports[..1]).sandbox).await;
            assert!(refused.unwrap_err().to_string().contains("8080/TCP is in use"));
            assert_eq!(
                get(ip("127.0.0.1"), 8080),
                "a saw 10.244.0.1",
                "a refused pod closes nothing"
            );
            network.teardown(&a.sandbox).await.unwrap();
            bind(8080);
            eventually(|| UdpSocket::bind("127.0.0.1:5353"));
        });
    });
}

#[test]
fn a_connection_from_a_port_is_no_obstacle() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(options(dir.path())).unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let asking = UdpSocket::bind("127.0.0.1:5353").unwrap();
        asking.connect("127.0.0.1:53").unwrap();
        let ports = [mapping(None, port, Protocol::Tcp), mapping(None, 5353, Protocol::Udp)];
        block_on(async {
            let a = Pod::new("a").with_ports(&ports).connected(&network).await;
            a.serve_tcp(80);
            assert_eq!(get(ip("127.0.0.1"), port), "a saw 10.244.0.1");
        });
    });
}

#[test]
fn after_a_restart_the_host_has_the_first_choice() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let without = BridgeOptions {
            reserved_ports: BTreeSet::new(),
            ..options(dir.path())
        };
        let network = bridge::open(without).unwrap();
        let ports = [8080, 8081, 10250].map(|port| mapping(None, port, Protocol::Tcp));
        let a = block_on(Pod::new("a").with_ports(&ports).connected(&network));
        a.serve_tcp(80);
        drop(network);
        let _new = bind(8081);
        let network = eventually(|| bridge::open(options(dir.path())));
        block_on(network.reconcile(std::slice::from_ref(&a.sandbox))).unwrap();
        assert_eq!(get(ip("127.0.0.1"), 8080), "a saw 10.244.0.1");
        assert_eq!(
            TcpListener::bind("0.0.0.0:8080").unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        assert_eq!(
            get(ip("127.0.0.1"), 8081),
            "operation would block",
            "the host's own program, which says nothing"
        );
        assert_eq!(get(ip("127.0.0.1"), 10250), "connection refused", "it is reserved now");
        bind(10250);
    });
}

#[test]
fn a_node_port_of_a_service_comes_before_a_pods_port() {
    for proxy_first in [true, false] {
        on_new_host(|| check_node_port(proxy_first));
    }
}

/// What a proxy does with node port 30080, by its own table.
fn lead_node_port() {
    run("nft", &["add", "table", "ip", "p"]);
    for hook in ["prerouting", "output"] {
        let chain = format!("{{ type nat hook {hook} priority -100; }}");
        run("nft", &["add", "chain", "ip", "p", hook, &chain]);
        let dnat = ["tcp", "dport", "30080", "dnat", "to", "10.244.0.2:80"];
        run("nft", &[&["add", "rule", "ip", "p", hook][..], &dnat].concat());
    }
}

fn check_node_port(proxy_first: bool) {
    if proxy_first {
        lead_node_port();
    }
    let dir = tempfile::tempdir().unwrap();
    let network = bridge::open(options(dir.path())).unwrap();
    let outside = neighbour("outside");
    block_on(async {
        let ports = [mapping(None, 30080, Protocol::Tcp)];
        let service = Pod::new("service").connected(&network).await;
        let greedy = Pod::new("greedy").with_ports(&ports).connected(&network).await;
        service.serve_tcp(80);
        greedy.serve_tcp(80);
        if !proxy_first {
            assert_eq!(outside.get(ip("192.0.2.1"), 30080), "greedy saw 192.0.2.2");
            lead_node_port();
        }
        assert_eq!(outside.get(ip("192.0.2.1"), 30080), "service saw 192.0.2.2");
        assert_eq!(get(ip("192.0.2.1"), 30080), "service saw 192.0.2.1");
    });
}
