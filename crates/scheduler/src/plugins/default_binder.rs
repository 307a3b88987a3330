//! Binds pods by writing a Binding.

use api::kinds::pod::POD;
use async_trait::async_trait;
use client::Client;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::framework::Plugin;
use crate::pod::Pod;

pub struct DefaultBinder;

#[async_trait]
impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    async fn bind(&self, client: &Client, pod: &Pod, node: &str) -> client::Result<bool> {
        let metadata = &pod.metadata;
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let pods = client.resource(&POD).in_namespace(metadata.namespace.clone());
        pods.subresource("binding")
            .create_for::<IgnoredAny>(&metadata.name, &binding)
            .await?;
        Ok(true)
    }
}
