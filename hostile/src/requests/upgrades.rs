//! Requests that become connections into pods.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::client::{Client, exec_path};
use crate::pods::{MAIN, Pod};
use crate::verdict::{Verdict, judge};
use crate::wire::exec;
use crate::wire::http1::head;
use crate::world::World;

pub const GET_EXECUTES: Case = Case {
    name: "requests/get-executes",
    class: "",
    must_not: "A user with only `get` on pods/exec, pods/attach and pods/portforward executes, attaches or forwards.",
    needs: &[],
    run: get_executes,
};

const SUBRESOURCES: &[&str] = &["exec", "attach", "portforward"];

fn rules(verbs: &[&str]) -> Value {
    let resources: Vec<String> = SUBRESOURCES.iter().map(|name| format!("pods/{name}")).collect();
    json!([
        {"apiGroups": [""], "resources": resources, "verbs": verbs},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ])
}

fn get_executes(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let pod = namespace.attacker()?;
    let reader = world.user_of(&namespace, rules(&["get"]))?;
    let executor = world.user_of(&namespace, rules(&["get", "create"]))?;
    let honest = executor.execute(&namespace.name, &pod.name, MAIN, &["/hostile", "inside", "where"])?;
    ensure!(honest.succeeded(), "who may execute cannot: {honest:?}");

    let mut attempts = Vec::new();
    for (what, path) in paths(&pod) {
        attempts.push(by_websocket(&reader, what, &path)?);
        for method in ["GET", "POST"] {
            attempts.push(by_spdy(&reader, method, what, &path)?);
        }
    }
    judge(&attempts)
}

fn paths(pod: &Pod<'_>) -> Vec<(&'static str, String)> {
    let (namespace, name) = (&pod.namespace.name, &pod.name);
    vec![
        (
            "exec",
            exec_path(namespace, name, MAIN, &["/hostile", "inside", "where"]),
        ),
        ("attach", format!("{}/attach?container={MAIN}&stdout=true", pod.path())),
        ("portforward", format!("{}/portforward?ports=80", pod.path())),
    ]
}

fn by_websocket(client: &Client, what: &str, path: &str) -> Result<Verdict> {
    let mut connection = client.connect()?;
    let response = exec::open(&mut connection, path)?;
    Ok(match response.status {
        101 => Verdict::Succeeded(format!("{what} by WebSocket was opened")),
        _ => Verdict::Blocked(format!("{what} by WebSocket: {}", response.summary())),
    })
}

fn by_spdy(client: &Client, method: &str, what: &str, path: &str) -> Result<Verdict> {
    let mut connection = client.connect()?;
    let protocol = if what == "portforward" {
        "portforward.k8s.io"
    } else {
        "v4.channel.k8s.io"
    };
    let headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", protocol),
    ];
    connection.send(
        format!("{}Content-Length: 0\r\n\r\n", head(method, path, &headers)).as_bytes(),
        &[],
    )?;
    let response = connection.receive_head()?;
    Ok(match response.status {
        101 => Verdict::Succeeded(format!("{what} by {method} and SPDY was opened")),
        other => Verdict::Blocked(format!("{what} by {method} and SPDY: {other}")),
    })
}
