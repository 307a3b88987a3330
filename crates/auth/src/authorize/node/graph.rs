//! Which objects belong to which node, through its pods.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use api::local_volumes::node_of_provisioned_volume;
use api::{Fields, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Pod,
    Secret,
    ConfigMap,
    Claim,
    Volume,
    ServiceAccount,
    ResourceClaim,
    Attachment,
    Slice,
}

/// Kind, namespace and name.
type Key = (Kind, Box<str>, Box<str>);

#[derive(Default)]
pub struct Graph {
    /// What an object leads to: a pod to what it refers to, a claim to its volume, a volume to its secrets.
    targets: HashMap<Key, Vec<Key>>,
    /// What leads to an object.
    sources: HashMap<Key, HashSet<Key>>,
    /// The node that a pod, volume attachment, resource slice or the directory of a volume is on.
    nodes: HashMap<Key, Box<str>>,
}

impl Graph {
    pub fn set(&mut self, resource: &str, object: &Value) {
        let metadata = &object["metadata"];
        let Some(kind) = kind_of(resource) else {
            return;
        };
        let key = key(kind, metadata.text("namespace"), metadata.text("name"));
        self.clear(&key);
        let (node, targets) = match kind {
            Kind::Pod => (object["spec"].text("nodeName"), pod_targets(object)),
            Kind::Claim => ("", claim_targets(object)),
            Kind::Volume => (
                node_of_provisioned_volume(object).unwrap_or_default(),
                volume_targets(object),
            ),
            _ => (object["spec"].text("nodeName"), Vec::new()),
        };
        if kind == Kind::Pod && node.is_empty() {
            return;
        }
        if !node.is_empty() {
            self.nodes.insert(key.clone(), node.into());
        }
        for target in &targets {
            self.sources.entry(target.clone()).or_default().insert(key.clone());
        }
        self.targets.insert(key, targets);
    }

    pub fn remove(&mut self, resource: &str, namespace: &str, name: &str) {
        if let Some(kind) = kind_of(resource) {
            self.clear(&key(kind, namespace, name));
        }
    }

    /// Whether the object is on the node, or something on the node leads to it.
    pub fn relates(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let namespace = if matches!(kind, Kind::Volume | Kind::Attachment | Kind::Slice) {
            ""
        } else {
            namespace
        };
        let mut pending = vec![key(kind, namespace, name)];
        let mut seen = HashSet::new();
        while let Some(key) = pending.pop() {
            if self.nodes.get(&key).is_some_and(|on| **on == *node) {
                return true;
            }
            let sources = self.sources.get(&key).into_iter().flatten();
            pending.extend(sources.filter(|source| seen.insert((*source).clone())).cloned());
        }
        false
    }

    /// Whether the data of a volume is a directory that this node's kubelet made.
    pub fn keeps_volume(&self, node: &str, name: &str) -> bool {
        let on = self.nodes.get(&key(Kind::Volume, "", name));
        on.is_some_and(|on| **on == *node)
    }

    fn clear(&mut self, key: &Key) {
        self.nodes.remove(key);
        for target in self.targets.remove(key).unwrap_or_default() {
            if let Some(sources) = self.sources.get_mut(&target) {
                sources.remove(key);
                if sources.is_empty() {
                    self.sources.remove(&target);
                }
            }
        }
    }
}

fn kind_of(resource: &str) -> Option<Kind> {
    match resource {
        "pods" => Some(Kind::Pod),
        "persistentvolumeclaims" => Some(Kind::Claim),
        "persistentvolumes" => Some(Kind::Volume),
        "volumeattachments" => Some(Kind::Attachment),
        "resourceslices" => Some(Kind::Slice),
        _ => None,
    }
}

fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    (kind, namespace.into(), name.into())
}

/// What a pod leads to. A mirror pod leads to nothing: its kubelet made it, and could otherwise help itself to any
/// secret.
fn pod_targets(pod: &Value) -> Vec<Key> {
    if pod["metadata"]["annotations"].has("kubernetes.io/config.mirror") {
        return Vec::new();
    }
    let namespace = pod["metadata"].text("namespace");
    let references = pod_references(pod).into_iter();
    let mut targets: Vec<Key> = references.map(|(kind, name)| key(kind, namespace, &name)).collect();
    targets.sort_unstable_by(|a, b| (a.0 as u8, &a.2).cmp(&(b.0 as u8, &b.2)));
    targets.dedup();
    targets
}

/// The objects of its namespace that a pod refers to by name.
pub fn pod_references(pod: &Value) -> Vec<(Kind, Cow<'_, str>)> {
    let spec = &pod["spec"];
    let mut found: Vec<(Kind, &str)> = vec![(Kind::ServiceAccount, spec.text("serviceAccountName"))];
    for secret in spec.list("imagePullSecrets") {
        found.push((Kind::Secret, secret.text("name")));
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in spec.list(list) {
            container_targets(container, &mut found);
        }
    }
    for volume in spec.list("volumes") {
        source_targets(volume, &mut found);
    }
    for claim in spec.list("resourceClaims") {
        found.push((Kind::ResourceClaim, claim.text("resourceClaimName")));
    }
    for claim in pod["status"].list("resourceClaimStatuses") {
        found.push((Kind::ResourceClaim, claim.text("resourceClaimName")));
    }
    let named = found.into_iter().filter(|(_, name)| !name.is_empty());
    let named = named.map(|(kind, name)| (kind, Cow::Borrowed(name)));
    let ephemeral = spec.list("volumes").iter().filter(|volume| volume.has("ephemeral"));
    let generated = ephemeral.map(|volume| {
        let claim = format!("{}-{}", pod["metadata"].text("name"), volume.text("name"));
        (Kind::Claim, Cow::Owned(claim))
    });
    named.chain(generated).collect()
}

fn container_targets<'a>(container: &'a Value, found: &mut Vec<(Kind, &'a str)>) {
    for variable in container.list("env") {
        let source = &variable["valueFrom"];
        found.push((Kind::Secret, source["secretKeyRef"].text("name")));
        found.push((Kind::ConfigMap, source["configMapKeyRef"].text("name")));
    }
    for source in container.list("envFrom") {
        found.push((Kind::Secret, source["secretRef"].text("name")));
        found.push((Kind::ConfigMap, source["configMapRef"].text("name")));
    }
}

/// What one volume of a pod refers to.
fn source_targets<'a>(volume: &'a Value, found: &mut Vec<(Kind, &'a str)>) {
    found.push((Kind::Secret, volume["secret"].text("secretName")));
    found.push((Kind::ConfigMap, volume["configMap"].text("name")));
    found.push((Kind::Claim, volume["persistentVolumeClaim"].text("claimName")));
    for source in volume["projected"].list("sources") {
        found.push((Kind::Secret, source["secret"].text("name")));
        found.push((Kind::ConfigMap, source["configMap"].text("name")));
    }
    for driver in ["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
        found.push((Kind::Secret, volume[driver]["secretRef"].text("name")));
    }
    found.push((Kind::Secret, volume["azureFile"].text("secretName")));
    found.push((Kind::Secret, volume["csi"]["nodePublishSecretRef"].text("name")));
}

fn claim_targets(claim: &Value) -> Vec<Key> {
    match claim["spec"].text("volumeName") {
        "" => Vec::new(),
        volume => vec![key(Kind::Volume, "", volume)],
    }
}

/// The secrets with which a volume is mounted. The volume leads to them, its claim leads to the volume.
fn volume_targets(volume: &Value) -> Vec<Key> {
    let csi = &volume["spec"]["csi"];
    let references = [
        "nodePublishSecretRef",
        "nodeStageSecretRef",
        "nodeExpandSecretRef",
        "controllerPublishSecretRef",
    ];
    let secrets = references
        .iter()
        .map(|field| &csi[*field])
        .filter(|secret| !secret.text("name").is_empty());
    secrets
        .map(|secret| key(Kind::Secret, secret.text("namespace"), secret.text("name")))
        .collect()
}
