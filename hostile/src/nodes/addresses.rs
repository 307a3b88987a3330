//! Nodes that say to be where they are not.

use anyhow::{Result, ensure};
use serde_json::json;

use super::EvilNode;
use crate::cases::Case;
use crate::client::Client;
use crate::cluster::{API_PORT, NODE_NAME};
use crate::pods::{MAIN, container, pod_spec};
use crate::verdict::{Verdict, judge};
use crate::world::World;

pub const NODE_LEADS_TO_API_SERVER: Case = Case {
    name: "nodes/node-leads-to-api-server",
    class: "",
    must_not: "A user with only nodes/proxy reads Secrets through a node that says to be at the API server's own address.",
    needs: &[],
    run: node_leads_to_api_server,
};

pub const NODE_SEES_CREDENTIALS: Case = Case {
    name: "nodes/node-sees-credentials",
    class: "",
    must_not: "A listener with a certificate that nobody signed is shown the API server's certificate for kubelets.",
    needs: &[],
    run: node_sees_credentials,
};

/// All of them lead to the API server itself.
const ADDRESSES: &[(&str, u16)] = &[
    ("127.0.0.1", API_PORT),
    ("0.0.0.0", API_PORT),
    ("::ffff:127.0.0.1", API_PORT),
    ("::ffff:10.99.0.1", API_PORT),
    ("10.99.0.1", API_PORT),
    ("10.96.0.1", 443),
    ("localhost", API_PORT),
    ("127.1.2.3", API_PORT),
];

fn monitor(world: &World) -> Result<Client> {
    let user =
        world.user_with(json!([{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get", "create"]}]))?;
    ensure!(
        user.get("/api/v1/secrets")?.status == 403,
        "the user may read secrets before the attack"
    );
    let honest = user.get(&format!("/api/v1/nodes/{NODE_NAME}/proxy/pods"))?;
    ensure!(honest.is_success(), "the proxy to an honest node: {}", honest.summary());
    Ok(user)
}

fn node_leads_to_api_server(world: &World) -> Result<Verdict> {
    let user = monitor(world)?;
    let node = EvilNode::register(world)?;
    let mut attempts = Vec::new();
    for (address, port) in ADDRESSES {
        // An address that the server does not even take is blocked as well.
        if let Err(error) = node.say_it_is_at(address, *port) {
            attempts.push(Verdict::Blocked(format!("{error:#}")));
            continue;
        }
        let answer = user.get(&format!("{}/proxy/api/v1/secrets", node.path()))?;
        attempts.push(match answer.is_success() {
            true => Verdict::Succeeded(format!("{} was read through {address}:{port}", answer.json()["kind"])),
            false => Verdict::Blocked(format!("{address}:{port}: {}", answer.summary())),
        });
    }
    node.remove(world)?;
    judge(&attempts)
}

fn node_sees_credentials(world: &World) -> Result<Verdict> {
    let user = monitor(world)?;
    let namespace = world.namespace(json!({}))?;
    let listener = namespace.pod(pod_spec(vec![container(&["serve-tls", "10250"])], json!([])))?;
    listener.running()?;
    let node = EvilNode::register(world)?;
    node.say_it_is_at(&listener.address()?, 10250)?;
    let answer = user.get(&format!("{}/proxy/pods", node.path()))?;
    node.remove(world)?;
    let asked = listener.log(MAIN)?;
    match asked.iter().find(|asked| asked.value["path"].is_string()) {
        Some(asked) if asked.value["certificate"].is_string() => {
            crate::verdict::succeeded("a listener that nobody trusts was shown the API server's certificate")
        }
        Some(_) => crate::verdict::succeeded("a listener that nobody trusts was asked"),
        None => {
            ensure!(
                !answer.is_success(),
                "an answer came from nowhere: {}",
                answer.summary()
            );
            crate::verdict::blocked(answer.summary())
        }
    }
}
