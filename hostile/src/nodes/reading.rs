//! Those who may only read from nodes.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::client::{Client, percent_encoded};
use crate::cluster::NODE_NAME;
use crate::pods::{MAIN, Pod};
use crate::verdict::{Verdict, judge};
use crate::wire::exec;
use crate::wire::http1::head;
use crate::world::World;

pub const READING_EXECUTES: Case = Case {
    name: "nodes/reading-executes",
    class: "",
    must_not: "A user with only `get` on nodes/proxy executes, attaches or forwards, at the kubelet or through the API server.",
    needs: &[],
    run: reading_executes,
};

fn rules(verbs: &[&str]) -> Value {
    json!([{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": verbs}])
}

fn reading_executes(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let pod = namespace.attacker()?;
    let name = format!("reader-{}", world.number());
    let reader = world.user(&name, &[])?;
    world.grant_everywhere(&name, rules(&["get"]))?;
    let at_kubelet = world.at(world.cluster.kubelet(), &name, &[])?;
    let proxy = format!("/api/v1/nodes/{NODE_NAME}/proxy");
    let honest = reader.get(&format!("{proxy}/pods"))?;
    ensure!(honest.is_success(), "who may read cannot: {}", honest.summary());
    let executor = world.user_with(rules(&["get", "create"]))?;
    let opened = exec::open(&mut executor.connect()?, &format!("{proxy}{}", exec_of(&pod, "exec")))?;
    ensure!(opened.status == 101, "who may execute cannot: {}", opened.summary());

    let mut attempts = Vec::new();
    for path in [
        exec_of(&pod, "exec"),
        exec_of(&pod, "/exec"),
        exec_of(&pod, "%65xec"),
        exec_of(&pod, "./exec"),
        format!("/attach/{}/{}/{MAIN}?output=1", namespace.name, pod.name),
        format!("/portForward/{}/{}?port=80", namespace.name, pod.name),
    ] {
        attempts.push(by_websocket(&reader, "the API server", &format!("{proxy}{path}"))?);
        attempts.push(by_websocket(&at_kubelet, "the kubelet", &path)?);
        attempts.push(by_spdy(&reader, "the API server", &format!("{proxy}{path}"))?);
        attempts.push(by_spdy(&at_kubelet, "the kubelet", &path)?);
    }
    for path in [exec_of(&pod, "run"), exec_of(&pod, "exec")] {
        for (what, client, path) in [
            ("the API server", &reader, format!("{proxy}{path}")),
            ("the kubelet", &at_kubelet, path),
        ] {
            let answer = client.send("POST", &path, &[], &[])?;
            attempts.push(match answer.status {
                403 => Verdict::Blocked(format!("POST {path} by {what}: {}", answer.summary())),
                other => Verdict::Succeeded(format!("POST {path} by {what} was answered {other}")),
            });
        }
    }
    judge(&attempts)
}

/// The kubelet's path for a command in a pod, below whatever word.
fn exec_of(pod: &Pod<'_>, word: &str) -> String {
    let command: Vec<String> = ["/hostile", "inside", "where"]
        .iter()
        .map(|word| format!("&command={}", percent_encoded(word)))
        .collect();
    let (namespace, name) = (&pod.namespace.name, &pod.name);
    format!("/{word}/{namespace}/{name}/{MAIN}?output=1{}", command.concat())
}

fn by_websocket(client: &Client, what: &str, path: &str) -> Result<Verdict> {
    let response = exec::open(&mut client.connect()?, path)?;
    Ok(match response.status {
        101 => Verdict::Succeeded(format!("{path} by WebSocket was opened by {what}")),
        _ => Verdict::Blocked(format!("{path} by WebSocket, {what}: {}", response.summary())),
    })
}

fn by_spdy(client: &Client, what: &str, path: &str) -> Result<Verdict> {
    let headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
    ];
    let mut connection = client.connect()?;
    connection.send(format!("{}\r\n", head("GET", path, &headers)).as_bytes(), &[])?;
    let response = connection.receive_head()?;
    Ok(match response.status {
        101 => Verdict::Succeeded(format!("{path} by SPDY was opened by {what}")),
        other => Verdict::Blocked(format!("{path} by SPDY, {what}: {other}")),
    })
}
