//! What every node could do to the cluster's names.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::EvilNode;
use crate::cases::Case;
use crate::verdict::{Verdict, judge};
use crate::world::World;

pub const NODE_TAKES_DNS: Case = Case {
    name: "nodes/node-takes-dns",
    class: "",
    must_not: "A node makes Services in kube-system or changes the endpoints of the cluster's DNS.",
    needs: &[],
    run: node_takes_dns,
};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";

fn node_takes_dns(world: &World) -> Result<Verdict> {
    // Whatever rights nodes get beyond upstream's, they have them from the first token on.
    let token = world.cluster.command(&["token", "create", "evil"]).output()?;
    ensure!(
        token.status.success(),
        "karve token create: {}",
        String::from_utf8_lossy(&token.stderr)
    );
    let node = EvilNode::register(world)?;
    let slices = world.admin.must_get(SLICES)?;
    let slices = slices["items"].as_array().context("no slices")?;
    let slice = slices
        .iter()
        .find(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == "kube-dns");
    let slice = slice.context("the cluster's DNS has no endpoints")?;
    let name = slice["metadata"]["name"].as_str().context("a slice without a name")?;

    let mut attempts = Vec::new();
    let stolen = json!({"endpoints": [{"addresses": ["203.0.113.66"], "conditions": {"ready": true}}]});
    let path = format!("{SLICES}/{name}");
    for (what, answer) in [
        ("patching the DNS's endpoints", node.client.merge(&path, &stolen)?),
        (
            "making a Service in kube-system",
            node.client.post(
                "/api/v1/namespaces/kube-system/services",
                &json!({"metadata": {"name": "hostile"}, "spec": {"ports": [{"port": 53}]}}),
            )?,
        ),
        (
            "making endpoints for the DNS",
            node.client.post(
                SLICES,
                &json!({
                    "metadata": {"name": "hostile", "labels": {"kubernetes.io/service-name": "kube-dns"}},
                    "addressType": "IPv4",
                    "endpoints": [{"addresses": ["203.0.113.66"]}],
                    "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}],
                }),
            )?,
        ),
        (
            "changing the DNS's Service",
            node.client.merge(
                "/api/v1/namespaces/kube-system/services/kube-dns",
                &json!({"spec": {"externalIPs": ["203.0.113.66"]}}),
            )?,
        ),
    ] {
        attempts.push(match answer.is_success() {
            true => Verdict::Succeeded(format!("{what} was answered {}", answer.status)),
            false => Verdict::Blocked(format!("{what}: {}", answer.summary())),
        });
    }
    let after = world.admin.must_get(&path)?;
    if after.to_string().contains("203.0.113.66") {
        world
            .admin
            .must_merge(&path, &json!({"endpoints": slice["endpoints"]}))?;
    }
    for left in [
        "/api/v1/namespaces/kube-system/services/hostile".to_owned(),
        format!("{SLICES}/hostile"),
    ] {
        world.admin.delete(&left)?;
    }
    node.remove(world)?;
    judge(&attempts)
}
