//! Ways through the API server to where it is itself.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::client::Client;
use crate::pods::{container, pod_spec};
use crate::signals::wait_for;
use crate::verdict::{Verdict, judge};
use crate::wire::serve::{Answer, Server};
use crate::world::{Namespace, PATIENCE, World};

pub const ENDPOINTS_ON_LOOPBACK: Case = Case {
    name: "requests/endpoints-on-loopback",
    class: "CVE-2020-8562",
    must_not: "Endpoints or a pod's address lead a proxied request to the API server's own loopback or link-local addresses.",
    needs: &[],
    run: endpoints_on_loopback,
};

const HIDDEN: &str = "only-for-this-machine";

/// All of them lead to loopback, or to nowhere but this machine.
const ADDRESSES: &[(&str, &str)] = &[
    ("IPv4", "127.0.0.1"),
    ("IPv4", "127.8.8.8"),
    ("IPv4", "0.0.0.0"),
    ("IPv4", "169.254.169.254"),
    ("IPv6", "::1"),
    ("IPv6", "::"),
    ("IPv6", "::ffff:127.0.0.1"),
    ("IPv6", "::ffff:7f00:1"),
    ("IPv6", "::127.0.0.1"),
    ("IPv6", "fe80::1"),
];

fn endpoints_on_loopback(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let user = world.user_of(
        &namespace,
        json!([{"apiGroups": ["", "discovery.k8s.io"], "resources": ["*"], "verbs": ["*"]}]),
    )?;
    let hidden = Server::start((Ipv4Addr::UNSPECIFIED, 0).into(), None, |_| Answer::text(200, HIDDEN))?;
    let port = hidden.address().port();
    honest(&namespace, &user)?;
    let mut attempts = Vec::new();
    for (family, address) in ADDRESSES {
        let (pod, verdict) = by_pod(&namespace, &user, address, port)?;
        attempts.push(verdict);
        attempts.push(by_slice(&namespace, &user, &pod, (family, address, port))?);
        attempts.push(by_endpoints(&namespace, &user, &pod, (address, port))?);
    }
    judge(&attempts)
}

/// A Service without a selector, and the path by which it is asked.
fn service(namespace: &Namespace<'_>, user: &Client, port: u16) -> Result<(String, String)> {
    let name = format!("service-{}", namespace.world.number());
    user.must_post(
        &namespace.path("services"),
        &json!({"metadata": {"name": name}, "spec": {"ports": [{"name": "p", "port": 80, "targetPort": port}]}}),
    )?;
    let path = namespace.path(&format!("services/{name}:p/proxy/"));
    Ok((name, path))
}

/// What the API server proxies to: endpoints that name a pod of the Service's own namespace.
fn target(namespace: &Namespace<'_>, pod: &str) -> Value {
    json!({"kind": "Pod", "namespace": namespace.name, "name": pod})
}

fn slice(service: &str, target: Value, family: &str, address: &str, port: u16) -> Value {
    json!({
        "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": family,
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "targetRef": target}],
        "ports": [{"name": "p", "port": port, "protocol": "TCP"}],
    })
}

/// The same user reaches its own pod in this way.
fn honest(namespace: &Namespace<'_>, user: &Client) -> Result<()> {
    let pod = namespace.pod(pod_spec(vec![container(&["serve", "8080", "honest"])], json!([])))?;
    pod.running()?;
    let (name, path) = service(namespace, user, 8080)?;
    user.must_post(
        &namespace.path_in("discovery.k8s.io/v1", "endpointslices"),
        &slice(&name, target(namespace, &pod.name), "IPv4", &pod.address()?, 8080),
    )?;
    wait_for("an honest endpoint", PATIENCE, || {
        Ok(user.get(&path)?.text().contains("honest").then_some(()))
    })?;
    let answer = user.get(&format!("{}:8080/proxy/", pod.path()))?;
    ensure!(answer.text().contains("honest"), "an honest pod: {}", answer.summary());
    Ok(())
}

fn verdict(what: &str, address: &str, answer: &crate::wire::http1::Response) -> Verdict {
    match answer.text().contains(HIDDEN) {
        true => Verdict::Succeeded(format!("{what} with {address} reach what is only for this machine")),
        false => Verdict::Blocked(format!("{what} with {address}: {}", answer.summary())),
    }
}

fn by_slice(namespace: &Namespace<'_>, user: &Client, pod: &str, to: (&str, &str, u16)) -> Result<Verdict> {
    let (family, address, port) = to;
    let (name, path) = service(namespace, user, port)?;
    let slices = namespace.path_in("discovery.k8s.io/v1", "endpointslices");
    let made = user.post(&slices, &slice(&name, target(namespace, pod), family, address, port))?;
    let answer = if made.is_success() { user.get(&path)? } else { made };
    Ok(verdict("endpoint slices", address, &answer))
}

fn by_endpoints(namespace: &Namespace<'_>, user: &Client, pod: &str, to: (&str, u16)) -> Result<Verdict> {
    let (address, port) = to;
    let (name, path) = service(namespace, user, port)?;
    let subset = json!({
        "addresses": [{"ip": address, "targetRef": target(namespace, pod)}],
        "ports": [{"name": "p", "port": port}],
    });
    let made = user.post(
        &namespace.path("endpoints"),
        &json!({"metadata": {"name": name}, "subsets": [subset]}),
    )?;
    let answer = if made.is_success() { user.get(&path)? } else { made };
    Ok(verdict("endpoints", address, &answer))
}

/// A pod that no node has, whose status its owner writes; its name comes first.
fn by_pod(namespace: &Namespace<'_>, user: &Client, address: &str, port: u16) -> Result<(String, Verdict)> {
    let name = format!("pod-{}", namespace.world.number());
    let mut spec = pod_spec(vec![container(&["wait"])], json!([]));
    spec["schedulingGates"] = json!([{"name": "hostile.test/never"}]);
    user.must_post(
        &namespace.path("pods"),
        &json!({"metadata": {"name": name}, "spec": spec}),
    )?;
    let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}], "phase": "Running"}});
    let changed = user.merge(&namespace.path(&format!("pods/{name}/status")), &status)?;
    let answer = match changed.is_success() {
        true => user.get(&namespace.path(&format!("pods/{name}:{port}/proxy/")))?,
        false => changed,
    };
    let verdict = verdict("a pod's status", address, &answer);
    Ok((name, verdict))
}
