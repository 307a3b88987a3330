//! The whole server on loopback: real questions by UDP and TCP, names from an API server, others from another server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dns::DnsOptions;
use expect_test::expect;
use serde_json::json;
use tokio::task::JoinHandle;

#[path = "../../proxy/tests/root/fake_api.rs"]
mod fake_api;

use fake_api::FakeApi;

const A: u16 = 1;

fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0xab, 0xcd, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    message
}

/// The code, whether it is cut, how many answers, and the last four bytes of the last of them.
fn summary(answer: &[u8]) -> String {
    let count = u16::from_be_bytes([answer[6], answer[7]]);
    let cut = if answer[2] & 2 == 0 { "" } else { " cut" };
    let tail = &answer[answer.len() - 4..];
    let tail = if count == 0 {
        String::new()
    } else {
        format!(" {}.{}.{}.{}", tail[0], tail[1], tail[2], tail[3])
    };
    format!("code {}{cut}, {count} answers{tail}", answer[3] & 15)
}

async fn ask(server: SocketAddr, name: &str, by_tcp: bool) -> String {
    let question = question(name, A);
    let answer = tokio::task::spawn_blocking(move || {
        if by_tcp {
            let mut stream = TcpStream::connect(server).unwrap();
            stream.write_all(&(question.len() as u16).to_be_bytes()).unwrap();
            stream.write_all(&question).unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut answer).unwrap();
            return answer;
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.send_to(&question, server).unwrap();
        let mut answer = vec![0; 65535];
        let length = socket.recv(&mut answer).unwrap();
        answer.truncate(length);
        answer
    });
    summary(&answer.await.unwrap())
}

/// Another server, which answers every question with 192.0.2.7, and tells the ids of those it was asked.
fn other_server() -> (SocketAddr, Arc<Mutex<Vec<[u8; 2]>>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let ids = asked.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let mut answer = buffer[..length].to_vec();
            ids.lock().unwrap().push([answer[0], answer[1]]);
            // Somebody guesses: another id, another question.
            let mut forged = answer.clone();
            forged[2] |= 0x80;
            forged[0] ^= 0xff;
            let _ = socket.send_to(&forged, from);
            (forged[0], forged[13]) = (answer[0], b'x');
            let _ = socket.send_to(&forged, from);
            answer[2] |= 0x80;
            answer[7] = 1;
            answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
            let _ = socket.send_to(&answer, from);
        }
    });
    (address, asked)
}

fn free_port() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

/// Serves on a port that nobody has by UDP and TCP. Others may take one between its choice and its use, so that several
/// are tried.
async fn serve(api: &FakeApi, resolv_conf: &Path) -> (SocketAddr, JoinHandle<Result<(), dns::DnsError>>) {
    for _ in 0..20 {
        let server = free_port();
        let options = DnsOptions {
            resolv_conf: resolv_conf.to_owned(),
            ..DnsOptions::new(api.client(), server)
        };
        let mut ready = options.ready.subscribe();
        let running = tokio::spawn(dns::run(options));
        if ready.wait_for(|ready| *ready).await.is_ok() {
            return (server, running);
        }
        println!("cannot serve on {server}: {:?}", running.await);
    }
    panic!("no port is free by UDP and TCP");
}

#[tokio::test]
async fn names_are_answered() {
    let api = FakeApi::default();
    let endpoints: Vec<_> = (1..=60)
        .map(|host| json!({"addresses": [format!("10.244.0.{host}")]}))
        .collect();
    api.put(
        "services",
        json!({"metadata": {"namespace": "default", "name": "web"}, "spec": {"clusterIP": "10.96.0.10"}}),
    );
    api.put(
        "services",
        json!({"metadata": {"namespace": "default", "name": "many"}, "spec": {"clusterIP": "None"}}),
    );
    let alias = json!({"type": "ExternalName", "externalName": "example.com"});
    api.put(
        "services",
        json!({"metadata": {"namespace": "default", "name": "alias"}, "spec": alias}),
    );
    api.put(
        "endpointslices",
        json!({"metadata": {"namespace": "default", "name": "many-1",
        "labels": {"kubernetes.io/service-name": "many"}}, "endpoints": endpoints}),
    );

    let dir = tempfile::tempdir().unwrap();
    let resolv_conf = dir.path().join("resolv.conf");
    std::fs::write(&resolv_conf, format!("nameserver {}\n", other_server().0)).unwrap();
    let (server, running) = serve(&api, &resolv_conf).await;

    let mut out = String::new();
    for (name, by_tcp) in [
        ("web.default.svc.cluster.local", false),
        ("WEB.default.svc.Cluster.Local", true),
        ("many.default.svc.cluster.local", false),
        ("absent.default.svc.cluster.local", false),
        ("example.com", false),
        ("alias.default.svc.cluster.local", false),
    ] {
        out.push_str(&format!("{name}: {}\n", ask(server, name, by_tcp).await));
    }
    let many = ask(server, "many.default.svc.cluster.local", true).await;
    assert!(many.starts_with("code 0, 60 answers"), "{many}");
    expect![[r#"
        web.default.svc.cluster.local: code 0, 1 answers 10.96.0.10
        WEB.default.svc.Cluster.Local: code 0, 1 answers 10.96.0.10
        many.default.svc.cluster.local: code 0 cut, 0 answers
        absent.default.svc.cluster.local: code 3, 0 answers
        example.com: code 0, 1 answers 192.0.2.7
        alias.default.svc.cluster.local: code 0, 2 answers 192.0.2.7
    "#]]
    .assert_eq(&out);

    // Names follow the objects.
    api.delete("services", "web");
    for _ in 0..100 {
        if ask(server, "web.default.svc.cluster.local", false)
            .await
            .starts_with("code 3")
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        ask(server, "web.default.svc.cluster.local", false).await,
        "code 3, 0 answers"
    );
    running.abort();
}

#[tokio::test]
async fn what_others_answered_is_not_asked_for_again() {
    let (other, asked) = other_server();
    let dir = tempfile::tempdir().unwrap();
    let resolv_conf = dir.path().join("resolv.conf");
    std::fs::write(&resolv_conf, format!("nameserver {other}\n")).unwrap();
    let (server, running) = serve(&FakeApi::default(), &resolv_conf).await;
    for name in ["example.com", "example.com", "Example.COM", "example.org"] {
        assert_eq!(ask(server, name, false).await, "code 0, 1 answers 192.0.2.7");
    }
    let ids = asked.lock().unwrap().clone();
    assert_eq!(ids.len(), 2, "{ids:?}");
    // The client always uses the same id; that both were drawn like it happens once in four billion runs.
    assert!(ids.iter().any(|id| *id != [0xab, 0xcd]), "{ids:?}");
    running.abort();
}

#[tokio::test]
async fn the_cluster_is_told_where_dns_is_and_nodes_lose_what_they_could_once_write() {
    let api = FakeApi::default();
    dns::withdraw(&api.client()).await.unwrap();
    dns::publish(&api.client(), "10.96.0.10".parse().unwrap())
        .await
        .unwrap();
    expect![[r#"
        DELETE /apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/karve%3Anode-dns {"apiVersion":"v1","kind":"DeleteOptions"}
        DELETE /apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/karve%3Adns-advertiser {"apiVersion":"v1","kind":"DeleteOptions"}
        DELETE /apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/karve%3Anode-dns {"apiVersion":"v1","kind":"DeleteOptions"}
        DELETE /apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/karve%3Adns-advertiser {"apiVersion":"v1","kind":"DeleteOptions"}
        POST /api/v1/namespaces/kube-system/services {"apiVersion":"v1","kind":"Service","metadata":{"labels":{"k8s-app":"kube-dns","kubernetes.io/cluster-service":"true","kubernetes.io/name":"CoreDNS"},"name":"kube-dns","namespace":"kube-system"},"spec":{"clusterIP":"10.96.0.10","internalTrafficPolicy":"Local","ports":[{"name":"dns","port":53,"protocol":"UDP"},{"name":"dns-tcp","port":53,"protocol":"TCP"}]}}"#]].assert_eq(&api.requests().join("\n"));
}
