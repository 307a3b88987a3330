//! Connections that go on after their request.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::client::exec_path;
use crate::pods::{MAIN, container, pod_spec};
use crate::signals::wait_for;
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::wire::http1::head;
use crate::wire::websocket;
use crate::world::{PATIENCE, World};

pub const AFTER_A_REFUSED_UPGRADE: Case = Case {
    name: "requests/after-a-refused-upgrade",
    class: "CVE-2018-1002105",
    must_not: "After an upgrade that the kubelet refused, a client goes on asking the kubelet as the API server.",
    needs: &[],
    run: after_a_refused_upgrade,
};

pub const REDIRECTS: Case = Case {
    name: "requests/redirects",
    class: "CVE-2020-8559",
    must_not: "The API server follows a redirect of a pod or a node, with or without its credentials.",
    needs: &[],
    run: redirects,
};

fn after_a_refused_upgrade(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let user = world.user_of(
        &namespace,
        json!([{"apiGroups": [""], "resources": ["pods/exec", "pods/attach"], "verbs": ["get", "create"]}]),
    )?;
    // The kubelet refuses to execute in a container that has ended.
    let pod = namespace.pod(pod_spec(vec![container(&["where"])], json!([])))?;
    pod.ended()?;
    let mut attempts = Vec::new();
    for second in ["/pods", "/runningpods/", "/api/v1/secrets", "/metrics"] {
        for (upgrade, headers) in [
            ("WebSocket", websocket::upgrade_headers("v5.channel.k8s.io")),
            (
                "SPDY",
                vec![
                    ("Connection", "Upgrade"),
                    ("Upgrade", "SPDY/3.1"),
                    ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
                ],
            ),
        ] {
            let mut connection = user.connect()?;
            connection
                .stream()
                .sock
                .set_read_timeout(Some(Duration::from_secs(5)))?;
            let path = exec_path(&namespace.name, &pod.name, MAIN, &["id"]);
            connection.send(format!("{}\r\n", head("GET", &path, &headers)).as_bytes(), &[])?;
            let first = connection.receive(false)?;
            ensure!(first.status >= 400, "the upgrade was not refused: {}", first.summary());
            let sent = connection.send(format!("{}\r\n", head("GET", second, &[])).as_bytes(), &[]);
            let answer = sent
                .map_err(anyhow::Error::from)
                .and_then(|()| connection.receive(false));
            attempts.push(match answer {
                Ok(answer) if answer.is_success() => {
                    Verdict::Succeeded(format!("{second} after {upgrade} was answered {}", answer.summary()))
                }
                Ok(answer) => Verdict::Blocked(format!("{second} after {upgrade}: {}", answer.summary())),
                Err(_) => Verdict::Blocked(format!("{second} after {upgrade}: the connection was closed")),
            });
        }
    }
    judge(&attempts)
}

fn redirects(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let target = namespace.pod(pod_spec(vec![container(&["serve-tls", "8443"])], json!([])))?;
    target.running()?;
    let plain_target = namespace.pod(pod_spec(vec![container(&["serve-redirect", "8080", "/"])], json!([])))?;
    plain_target.running()?;
    let (tls, plain) = (
        format!("https://{}:8443/stolen", target.address()?),
        format!("http://{}:8080/stolen", plain_target.address()?),
    );
    for location in [&tls, &plain] {
        let sender = namespace.pod(pod_spec(
            vec![container(&["serve-redirect", "8080", location])],
            json!([]),
        ))?;
        sender.running()?;
        let path = format!("{}:8080/proxy/", sender.path());
        let answer = world.admin.get(&path)?;
        // The supervisor writes the log after the pod has answered.
        wait_for("the redirecting pod to log that it was asked", PATIENCE, || {
            Ok((!sender.log_text(MAIN)?.is_empty()).then_some(()))
        })?;
        let mut connection = world.admin.connect()?;
        connection.send(
            format!("{}\r\n", head("GET", &path, &websocket::upgrade_headers("x"))).as_bytes(),
            &[],
        )?;
        let upgraded = connection.receive_head()?;
        if answer.is_success() || upgraded.status == 101 {
            return succeeded(format!("a redirect was followed: {}", answer.summary()));
        }
    }
    for pod in [&target, &plain_target] {
        let asked = pod.log_text(MAIN)?;
        if asked.contains("stolen") {
            return succeeded(format!("the API server went where it was sent: {asked}"));
        }
    }
    blocked("4 redirects were handed to the client")
}
