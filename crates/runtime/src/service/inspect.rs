//! What verbose status calls tell beside the status: for people with crictl, as one JSON object.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use super::Embedded;
use super::container::Container;
use super::sandbox::Sandbox;
use crate::image::Image;
use crate::protocol::ContainerState;

/// The key that other runtimes use, and tools look for.
const KEY: &str = "info";

type Info = BTreeMap<String, String>;

fn info(of: &impl Serialize) -> cri::Result<Info> {
    let text = serde_json::to_string(of).map_err(|error| cri::Error::internal(error.to_string()))?;
    Ok([(KEY.to_owned(), text)].into())
}

impl Embedded {
    pub(super) fn runtime_info(&self) -> cri::Result<Info> {
        let user_namespaces = match self.user_namespaces() {
            Ok(()) => "supported".to_owned(),
            Err(reason) => reason.to_string(),
        };
        info(&json!({
            "rootDir": self.root_dir,
            "stateDir": self.state_dir,
            "cgroupParent": self.cgroup_parent,
            "cgroupVersion": if self.layout.is_unified() { 2 } else { 1 },
            "appArmor": self.apparmor.is_enabled(),
            "userNamespaces": user_namespaces,
        }))
    }

    pub(super) fn sandbox_info(&self, sandbox: &Sandbox) -> cri::Result<Info> {
        info(&json!({
            "pid": sandbox.running().map_or(0, |running| running.pause_pid),
            "sandboxSpec": sandbox.record.spec,
        }))
    }

    pub(super) async fn container_info(&self, container: &Container) -> cri::Result<Info> {
        info(&json!({
            "sandboxID": container.record.sandbox_id,
            "pid": self.pid_of(container).await.unwrap_or(0),
            "containerSpec": container.record.spec,
        }))
    }

    pub(super) fn image_info(&self, image: &Image) -> cri::Result<Info> {
        info(&json!({ "layers": image.layers, "imageSpec": { "config": image.config } }))
    }

    /// The first process of a running container, which its supervisor knows.
    async fn pid_of(&self, container: &Container) -> Option<i32> {
        let link = self.sandbox(&container.record.sandbox_id).ok()?.link().ok()?;
        match link.hello().await.ok()?.containers.get(&container.record.id)? {
            ContainerState::Running { pid, .. } => Some(*pid),
            _ => None,
        }
    }
}
