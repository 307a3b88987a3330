//! What the loads create, and the little they read back.

use anyhow::{Context, Result};
use memchr::memmem;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http1::{Connection, encode};
use crate::http2::JSON;
use crate::target::Target;

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const NODES: &str = "/api/v1/nodes";
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// What a request without work of its own adds to a ConfigMap's data.
const CONFIG_MAP_FRAME: usize = 124;

/// A ConfigMap that takes about so many bytes as JSON.
pub fn config_map(name: &str, size: usize) -> Vec<u8> {
    stamped(name, size, "")
}

/// The same with a text by which a watcher knows the change.
pub fn stamped(name: &str, size: usize, stamp: &str) -> Vec<u8> {
    let payload = "x".repeat(size.saturating_sub(CONFIG_MAP_FRAME));
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
        "data": { "payload": payload, "stamp": format!("[{stamp}]") },
    })
    .to_string()
    .into_bytes()
}

/// The stamp of a ConfigMap in an event.
pub fn stamp(line: &[u8]) -> Option<&str> {
    let begin = memmem::find(line, br#""stamp":"["#)? + 10;
    let end = memmem::find(&line[begin..], b"]")?;
    std::str::from_utf8(&line[begin..begin + end]).ok()
}

/// A node as its kubelet registers it.
pub fn node(name: &str, now: &str) -> Vec<u8> {
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "hollow",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let resources = json!({ "cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": format!("zone-{}", name.len() % 3),
        } },
        "status": {
            "capacity": resources, "allocatable": resources,
            "addresses": [{ "type": "Hostname", "address": name }],
            "nodeInfo": {
                "machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "6", "osImage": "hollow",
                "containerRuntimeVersion": "hollow://1", "kubeletVersion": "v1.36.4", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
        },
    })
    .to_string()
    .into_bytes()
}

/// A pod that goes to any node, whatever the controllers have said of it so far.
pub fn pod(name: &str) -> Vec<u8> {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": "load" } },
        "spec": {
            "automountServiceAccountToken": false, "tolerations": [{ "operator": "Exists" }],
            "containers": [{
                "name": "main", "image": "registry.k8s.io/pause:3.10.2",
                "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
            }],
        },
    })
    .to_string()
    .into_bytes()
}

/// A pod with what most pods of a Deployment have; as it is stored it takes some 3 KiB.
pub fn replica(name: &str) -> Vec<u8> {
    let probe =
        |path: &str| json!({ "httpGet": { "path": path, "port": "http" }, "periodSeconds": 5, "timeoutSeconds": 2 });
    let variable =
        |name: &str, field: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": field } } });
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6b7f6d8c9d", "controller": true,
        "blockOwnerDeletion": true, "uid": "5f0c2a3e-8a8f-4c1e-9d53-0a4f7c3b2d11",
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "ownerReferences": [owner],
            "labels": { "app": "web", "tier": "front", "pod-template-hash": "6b7f6d8c9d" },
        },
        "spec": {
            "containers": [{
                "name": "web", "image": "registry.example.com/shop/web:v1.36.4",
                "args": ["serve", "--port=8080"],
                "ports": [{ "name": "http", "containerPort": 8080 }],
                "env": [{ "name": "MODE", "value": "production" }, variable("POD_NAME", "metadata.name")],
                "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
                "readinessProbe": probe("/ready"),
            }],
        },
    })
    .to_string()
    .into_bytes()
}

/// A watch event of a pod, as far as it matters here.
#[derive(Deserialize)]
pub struct PodEvent {
    #[serde(rename = "type")]
    pub kind: String,
    pub object: Pod,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    pub metadata: Metadata,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub resource_version: String,
    pub deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(default)]
    pub node_name: String,
}

#[derive(Default, Deserialize)]
pub struct PodStatus {
    #[serde(default)]
    pub phase: String,
}

/// The revision in an object or a list.
pub fn revision(body: &[u8]) -> Result<String> {
    #[derive(Deserialize)]
    struct Versioned {
        metadata: Version,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        resource_version: String,
    }
    let read: Versioned = serde_json::from_slice(body).context("the answer has no revision")?;
    Ok(read.metadata.resource_version)
}

/// Pods are refused in a namespace without its service account, which a controller makes where there is one.
pub async fn ensure_service_account(target: &Target) -> Result<()> {
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    let mut connection = Connection::open(target).await?;
    let body: Value = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    let request = encode("POST", ACCOUNTS, JSON, body.to_string().as_bytes());
    let made = connection.ask(&request).await;
    let there = encode("GET", &format!("{ACCOUNTS}/default"), JSON, &[]);
    connection.ask(&there).await.map(drop).or_else(|_| made.map(drop))
}

/// Now, as objects write it.
pub fn now() -> String {
    let now = time::UtcDateTime::now();
    let (date, (hour, minute, second, micro)) = (now.date(), now.time().as_hms_micro());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z")
}

/// The same without a fraction.
pub fn now_in_seconds() -> String {
    format!("{}Z", &now()[..19])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_map_has_the_size_asked_for_and_carries_its_stamp() {
        let body = config_map("some-name-12", 1024);
        assert!((1000..1050).contains(&body.len()), "{}", body.len());
        assert_eq!(stamp(&stamped("a", 300, "12345")), Some("12345"));
        assert_eq!(stamp(b"{}"), None);
    }

    #[test]
    fn times_are_written_as_upstream_does() {
        assert_eq!(now().len(), "2026-01-02T03:04:05.678901Z".len());
        assert_eq!(now_in_seconds().len(), "2026-01-02T03:04:05Z".len());
    }
}
