//! Services that take what belongs to others.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::network::NODE;
use crate::pods::{container, pod_spec};
use crate::signals::{self, wait_for};
use crate::verdict::{Verdict, judge};
use crate::world::{PATIENCE, World};

pub const EXTERNAL_ADDRESS: Case = Case {
    name: "network/external-address",
    class: "CVE-2020-8554",
    must_not: "A Service with externalIPs takes the traffic to another pod, to a Service or to the node.",
    needs: &[],
    run: external_address,
};

/// How long rules that must not come are waited for.
const WATCHED: std::time::Duration = std::time::Duration::from_secs(2);

fn external_address(world: &World) -> Result<Verdict> {
    let (owner, thief) = (world.namespace(json!({}))?, world.namespace(json!({}))?);
    let serving = |text: &str| pod_spec(vec![container(&["serve", "8080", text])], json!([]));
    let victim = owner.pod(serving("victim"))?;
    let stealing = thief.pod_with(json!({"labels": {"app": "thief"}}), serving("stolen"))?;
    let client = owner.attacker()?;
    victim.running()?;
    stealing.running()?;
    let address = victim.address()?;
    let node = NODE.to_string();
    let kubernetes =
        world.admin.must_get("/api/v1/namespaces/default/services/kubernetes")?["spec"]["clusterIP"].clone();
    let kubernetes = kubernetes.as_str().unwrap_or("10.96.0.1").to_owned();

    let ports = json!([{"name": "a", "port": 8080, "targetPort": 8080}, {"name": "b", "port": 443, "targetPort": 8080}, {"name": "c", "port": 6443, "targetPort": 8080}]);
    let honest = thief_service(
        world,
        &thief,
        "honest",
        json!({"selector": {"app": "thief"}, "ports": [{"port": 8080}]}),
    )?;
    let cluster_ip = honest["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    wait_for("an honest Service", PATIENCE, || {
        Ok(client
            .act(&["ask", &cluster_ip, "8080", "/"])?
            .text()
            .contains("stolen")
            .then_some(()))
    })?;
    let external = json!({"selector": {"app": "thief"}, "ports": ports, "externalIPs": [address, node, kubernetes, "198.51.100.7"]});
    let made = world.admin.post(
        &thief.path("services"),
        &json!({"metadata": {"name": "external"}, "spec": external}),
    )?;
    ensure!(
        made.is_success() || made.status == 403,
        "the Service: {}",
        made.summary()
    );
    signals::sleep(WATCHED)?;

    let mut attempts = Vec::new();
    for (what, address, port) in [
        ("another pod", &address, "8080"),
        ("the node", &node, "6443"),
        ("the API server's Service", &kubernetes, "443"),
    ] {
        let answer = client.act(&["ask", address, port, "/"])?;
        attempts.push(match answer.text().contains("stolen") {
            true => Verdict::Succeeded(format!("the traffic to {what} at {address}:{port} comes to the thief")),
            false => Verdict::Blocked(format!("{what}: not the thief")),
        });
    }
    let still = client.act(&["ask", &address, "8080", "/"])?;
    ensure!(
        still.text().contains("victim") || matches!(attempts[0], Verdict::Succeeded(_)),
        "the victim does not answer: {still:?}"
    );
    world.admin.delete(&thief.path("services/external"))?;
    judge(&attempts)
}

fn thief_service(
    world: &World,
    namespace: &crate::world::Namespace<'_>,
    name: &str,
    spec: serde_json::Value,
) -> Result<serde_json::Value> {
    world.admin.must_post(
        &namespace.path("services"),
        &json!({"metadata": {"name": name}, "spec": spec}),
    )
}
