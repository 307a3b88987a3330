//! Nodes that are not what they say.

mod addresses;
mod dns;
mod kubelet;
mod reading;
mod rights;

use anyhow::Result;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::client::Client;
use crate::world::World;

pub const CASES: &[Case] = &[
    addresses::NODE_LEADS_TO_API_SERVER,
    addresses::NODE_SEES_CREDENTIALS,
    dns::NODE_TAKES_DNS,
    rights::OBJECTS_OF_OTHERS,
    rights::TOKENS_FOR_OTHERS,
    rights::MIRROR_PODS,
    rights::ROUTES_OF_A_VICTIM,
    kubelet::KUBELET_PATHS,
    reading::READING_EXECUTES,
];

/// A node in the hands of an attacker, which has registered itself.
struct EvilNode {
    name: String,
    client: Client,
}

impl EvilNode {
    fn register(world: &World) -> Result<Self> {
        let name = format!("evil-{}", world.number());
        let client = world.user(&format!("system:node:{name}"), &["system:nodes"])?;
        let unschedulable = json!([{"key": "hostile", "effect": "NoSchedule"}]);
        client.must_post(
            "/api/v1/nodes",
            &json!({"metadata": {"name": name}, "spec": {"taints": unschedulable}}),
        )?;
        Ok(Self { name, client })
    }

    fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.name)
    }

    /// Tells where its kubelet is said to be.
    fn say_it_is_at(&self, address: &str, port: u16) -> Result<Value> {
        let status = json!({
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        });
        self.client
            .must_merge(&format!("{}/status", self.path()), &json!({"status": status}))
    }

    fn remove(&self, world: &World) -> Result<()> {
        world.admin.must_delete(&self.path()).map(drop)
    }
}
