//! Answers of servers that mean no good: they gain nothing by them, and cost the server nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use rcgen::ExtendedKeyUsagePurpose;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::kubelet::{Answer, Authority, Kubelet};
use super::{HELLO, NODES, PODS, add_pod, cluster};
use crate::cluster::Cluster;
use crate::serving::{Serving, client_builder};

const PATIENCE: Duration = Duration::from_secs(10);

/// A cluster whose node answers everything in one way.
async fn answering(answer: Answer) -> (Authority, Kubelet, Cluster) {
    let authority = Authority::new();
    let kubelet = Kubelet::serve(authority.serving("one"), &authority, answer).await;
    let cluster = cluster(&authority, "one", &kubelet).await;
    add_pod(&cluster, "web", "one", "203.0.113.7", json!({})).await;
    (authority, kubelet, cluster)
}

/// CVE-2020-8559: the server must not go where a kubelet sends it, with its own credentials.
#[tokio::test]
async fn redirects_are_for_the_client_to_follow() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = elsewhere.local_addr().expect("an address");
    for code in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let location = format!("https://{address}/api/v1/secrets");
        let moved = format!("HTTP/1.1 {code}\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let (_, kubelet, cluster) = answering(Answer::new(moved)).await;
        let proxied = cluster.send("GET", &format!("{NODES}/one/proxy/metrics"), None).await;
        assert!(proxied.status().is_redirection(), "{code}");
        assert_eq!(proxied.headers()["location"], location.as_str());
        let log = cluster.send("GET", &format!("{PODS}/web/log"), None).await;
        assert!(!log.status().is_success() && !log.status().is_redirection(), "{code}");
        for path in ["exec?command=a&stdout=1", "attach?stdout=1", "portforward?ports=1"] {
            let request = Request::post(format!("{PODS}/web/{path}"))
                .header("connection", "upgrade")
                .header("upgrade", "SPDY/3.1");
            let request = request.body(bytes::Bytes::new()).expect("a request");
            let answer = cluster.send_whole(request).await;
            assert_ne!(answer.status(), StatusCode::SWITCHING_PROTOCOLS, "{path}");
        }
        assert_eq!(kubelet.connections.load(Ordering::SeqCst), 5);
    }
    assert!(
        timeout(Duration::from_millis(50), elsewhere.accept()).await.is_err(),
        "nobody connected"
    );
}

/// CVE-2018-1002105: an upgrade that a kubelet refuses leaves no connection on which a client speaks as the server.
#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_refused_upgrade_does_not_reach_the_kubelet() {
    let refusal = Answer {
        keeps_connection: true,
        ..Answer::new("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")
    };
    let (authority, kubelet, cluster) = answering(refusal).await;
    let (chain, key) = authority.issue("root", "system:masters", ExtendedKeyUsagePurpose::ClientAuth);
    let client = |trusted| {
        client_builder(trusted)
            .with_client_auth_cert(chain, key)
            .expect("a certificate")
    };
    let serving = Serving::start_for(&cluster, authority.roots(), client).await;
    for path in [
        format!("{PODS}/web/exec?command=a&stdout=1"),
        format!("{NODES}/one/proxy/exec/default/web/c"),
    ] {
        let mut stream = serving.connect().await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("a head");
        let mut answer = vec![0; 4096];
        let read = timeout(PATIENCE, stream.read(&mut answer)).await.expect("in time");
        let answer = String::from_utf8_lossy(&answer[..read.expect("an answer")]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        // The server takes it for a request to itself, and not for the client's bytes to the kubelet.
        let smuggled = "GET /smuggled HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(smuggled.as_bytes()).await.expect("more bytes");
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("an end");
        assert!(
            String::from_utf8_lossy(&rest).contains("HTTP/1.1 404"),
            "the server's own answer"
        );
    }
    let received = String::from_utf8_lossy(&kubelet.received.lock()).into_owned();
    assert!(received.contains("POST /exec/default/web/c"), "{received}");
    assert!(!received.contains("smuggled"), "{received}");
}

/// Nobody asked for another protocol, so there is nobody to hand the connection to.
#[tokio::test]
async fn who_switches_protocols_unasked_is_not_passed_on() {
    let switched =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nGET /api HTTP/1.1\r\n\r\n";
    let (_, _, cluster) = answering(Answer::new(switched)).await;
    for path in [format!("{NODES}/one/proxy/metrics"), format!("{PODS}/web/log")] {
        let answer = cluster.send("GET", &path, None).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
    }
}

#[tokio::test]
async fn endless_headers_are_not_waited_for() {
    let endless = Answer {
        forever: b"x-more: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
        ..Answer::new("HTTP/1.1 200 OK\r\n")
    };
    let (_, _, cluster) = answering(endless).await;
    for path in [format!("{NODES}/one/proxy/metrics"), format!("{PODS}/web/log")] {
        let answer = timeout(PATIENCE, cluster.send("GET", &path, None))
            .await
            .expect("an end");
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
    }
}

/// An endless page is passed on as it comes: it is neither kept nor waited for. An endless explanation is cut.
#[tokio::test]
async fn endless_bodies_are_not_kept() {
    for (head, path, succeeds) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n",
            "nodes/one/proxy/",
            true,
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", "namespaces/default/pods/web/log", true),
        ("HTTP/1.1 500 Oh\r\n\r\n", "namespaces/default/pods/web/log", false),
    ] {
        let endless = Answer {
            forever: &[b'a'; 16 << 10],
            ..Answer::new(head)
        };
        let (_, _, cluster) = answering(endless).await;
        let path = format!("/api/v1/{path}");
        let answer = timeout(PATIENCE, cluster.send("GET", &path, None));
        let mut answer = answer.await.expect("an answer before the end");
        assert_eq!(answer.status().is_success(), succeeds, "{path}");
        if !succeeds {
            let body = timeout(PATIENCE, answer.into_body().collect()).await.expect("an end");
            assert!(body.expect("a body").to_bytes().len() < 100 << 10);
            continue;
        }
        let frame = timeout(PATIENCE, answer.frame()).await.expect("bytes");
        frame.expect("a frame").expect("a sound one");
    }
}

/// A kubelet that says nothing holds one request up, and not even that once the client is gone.
#[tokio::test]
async fn a_silent_kubelet_is_left_when_its_client_leaves() {
    let silent = Answer {
        keeps_connection: true,
        ..Answer::new("")
    };
    let (_, kubelet, cluster) = answering(silent).await;
    let path = format!("{NODES}/one/proxy/metrics");
    let given_up = timeout(Duration::from_millis(200), cluster.send("GET", &path, None)).await;
    assert!(given_up.is_err(), "there is no answer");
    // The connection ends with the request; its end is seen by whoever reads from it.
    let closed = async {
        while std::sync::Arc::strong_count(&kubelet.received) > 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, closed).await.expect("the connection is closed");
}

/// Who may not ask the server gets no further by naming a kubelet's headers.
#[tokio::test]
async fn credentials_of_the_client_are_not_passed_on() {
    let (_, kubelet, cluster) = answering(Answer::new(HELLO)).await;
    let request = Request::get(format!("{NODES}/one/proxy/metrics"))
        .header("authorization", "Bearer secret")
        .header("impersonate-user", "nobody");
    cluster
        .send_whole(request.body(bytes::Bytes::new()).expect("a request"))
        .await;
    let received = String::from_utf8_lossy(&kubelet.received.lock()).to_lowercase();
    assert!(
        !received.contains("secret") && !received.contains("impersonate"),
        "{received}"
    );
}
