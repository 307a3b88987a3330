//! The objects every cluster begins with.

use std::net::{IpAddr, SocketAddr};

use api::kinds;
use registry::{Registry, Seed};
use serde_json::json;

/// What the first objects depend on.
pub struct ClusterFacts {
    /// Where clients inside the cluster reach this server.
    pub advertise: IpAddr,
    pub secure_port: u16,
    /// PEM of the authority that signed this server's certificate.
    pub authority: String,
    /// PEM of the authority for client certificates.
    pub client_authority: String,
    /// The node that runs in this process, if one does.
    pub local_node: Option<LocalNode>,
    /// The service account of `kube-system` that approves the serving certificates of kubelets, if one does.
    pub serving_approver: Option<&'static str>,
    /// Whether nodes get the addresses of their pods from a controller, so that they must not choose them.
    pub allocates_node_cidrs: bool,
}

impl ClusterFacts {
    /// Whether scheduler and controllers are in this process: only there is an approver that it knows of.
    pub fn runs_all_components(&self) -> bool {
        self.serving_approver.is_some()
    }
}

/// A node in the same process as the server, about which the server need not take anybody's word.
#[derive(Clone, Debug)]
pub struct LocalNode {
    pub name: String,
    /// Where its kubelet serves.
    pub kubelet: SocketAddr,
    /// The addresses of its pods.
    pub pod_cidrs: Vec<String>,
}

/// Everything that must exist before the server is ready.
pub fn seeds(registry: &Registry, facts: &ClusterFacts) -> Vec<Seed> {
    let mut seeds: Vec<Seed> = ["default", "kube-node-lease", "kube-public", "kube-system"]
        .into_iter()
        .map(|name| Seed::new(&kinds::namespace::NAMESPACE, json!({ "metadata": { "name": name } })))
        .collect();
    seeds.extend(auth::bootstrap::objects().into_iter().filter_map(|(plural, value)| {
        Some(Seed::new(
            kinds::find("rbac.authorization.k8s.io", "v1", plural)?,
            value,
        ))
    }));
    seeds.extend(mark_writers());
    seeds.extend(metrics_readers());
    seeds.extend(kubelet_client());
    seeds.extend(facts.serving_approver.into_iter().flat_map(serving_approver));
    seeds.extend(priority_classes());
    seeds.extend(crate::fairness::seeds());
    seeds.extend(own_service(registry, facts));
    seeds.push(service_network(registry));
    seeds.extend(crate::aggregation::seeds());
    seeds
}

/// The identity that servers make for themselves to ask kubelets. It has no group, and no server answers it: what it may
/// is for kubelets to find out.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

fn kubelet_client() -> Option<Seed> {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": format!("karve:{KUBELET_CLIENT}") },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "system:kubelet-api-admin" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": KUBELET_CLIENT }],
    });
    Some(Seed::new(kinds::find(group, "v1", "clusterrolebindings")?, binding))
}

/// Nobody but administrators may approve for this signer by upstream's roles.
fn serving_approver(account: &str) -> Vec<Seed> {
    let (name, group) = ("karve:kubelet-serving-approver", "rbac.authorization.k8s.io");
    let role = json!({
        "metadata": { "name": name },
        "rules": [
            {
                "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval"],
                "verbs": ["update"],
            },
            {
                "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["approve"],
                "resourceNames": ["kubernetes.io/kubelet-serving"],
            },
        ],
    });
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "namespace": "kube-system", "name": account }],
    });
    let rows = [("clusterroles", role), ("clusterrolebindings", binding)];
    let seed = |(plural, value)| Some(Seed::new(kinds::find(group, "v1", plural)?, value));
    rows.into_iter().filter_map(seed).collect()
}

/// Components may tell where their objects are on their way, for `karve trace`. The one role that upstream has not.
fn mark_writers() -> Vec<Seed> {
    let name = "karve:mark-writer";
    let group = "rbac.authorization.k8s.io";
    let subject = |kind: &str, name: &str| json!({ "apiGroup": group, "kind": kind, "name": name });
    let role = json!({
        "metadata": { "name": name },
        "rules": [{ "nonResourceURLs": ["/debug/karve/marks"], "verbs": ["post"] }],
    });
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [
            subject("User", "system:kube-controller-manager"),
            subject("User", "system:kube-scheduler"),
            subject("User", "system:kube-proxy"),
            subject("Group", "system:nodes"),
        ],
    });
    let rows = [("clusterroles", role), ("clusterrolebindings", binding)];
    let seed = |(plural, value)| Some(Seed::new(kinds::find(group, "v1", plural)?, value));
    rows.into_iter().filter_map(seed).collect()
}

/// Whoever may view may see what is used, by the role that metrics-server brings along.
fn metrics_readers() -> Option<Seed> {
    let aggregated = |role: &str| format!("rbac.authorization.k8s.io/aggregate-to-{role}");
    let role = json!({
        "metadata": {
            "name": "system:aggregated-metrics-reader",
            "labels": { aggregated("admin"): "true", aggregated("edit"): "true", aggregated("view"): "true" },
        },
        "rules": [{
            "apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"],
        }],
    });
    Some(Seed::new(
        kinds::find("rbac.authorization.k8s.io", "v1", "clusterroles")?,
        role,
    ))
}

fn priority_classes() -> Vec<Seed> {
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)]
        .into_iter()
        .map(|(name, value)| {
            let description = match name {
                "system-node-critical" => "Used for system critical pods that must not be moved from their current node.",
                _ => "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
            };
            let object = json!({
                "metadata": { "name": name }, "value": value, "preemptionPolicy": "PreemptLowerPriority",
                "description": description,
            });
            Seed::new(&kinds::priority_class::PRIORITY_CLASS, object)
        })
        .collect()
}

/// The `kubernetes` Service, always at the first address of the network, and its endpoints.
fn own_service(registry: &Registry, facts: &ClusterFacts) -> Vec<Seed> {
    let labels = json!({ "component": "apiserver", "provider": "kubernetes" });
    let service = json!({
        "metadata": { "name": "kubernetes", "namespace": "default", "labels": labels },
        "spec": {
            "clusterIP": registry.services.network.address(1).to_string(), "sessionAffinity": "None",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": facts.secure_port }],
        },
    });
    vec![Seed::new(&kinds::service::SERVICE, service)]
}

/// The endpoints of the `kubernetes` Service, which follow the server's address.
///
/// An address of the loopback is nobody else's to use, and endpoints refuse it: then there are none.
pub fn own_endpoints(facts: &ClusterFacts) -> Vec<Seed> {
    if facts.advertise.is_loopback() {
        return Vec::new();
    }
    let address = facts.advertise.to_string();
    let endpoints = json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": { "endpointslice.kubernetes.io/skip-mirror": "true" },
        },
        "subsets": [{
            "addresses": [{ "ip": address }],
            "ports": [{ "name": "https", "port": facts.secure_port, "protocol": "TCP" }],
        }],
    });
    let slice = json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": { "kubernetes.io/service-name": "kubernetes" },
        },
        "addressType": if facts.advertise.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": facts.secure_port, "protocol": "TCP" }],
    });
    vec![
        Seed::new(&kinds::endpoints::ENDPOINTS, endpoints),
        Seed::new(&kinds::endpoint_slice::ENDPOINT_SLICE, slice),
    ]
}

fn service_network(registry: &Registry) -> Seed {
    let network = registry.services.network;
    let cidr = format!("{}/{}", network.base, network.prefix_length);
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": schema::time::format(schema::time::now()),
    });
    Seed::new(
        &kinds::service_cidr::SERVICE_CIDR,
        json!({
            "metadata": { "name": "kubernetes" }, "spec": { "cidrs": [cidr] }, "status": { "conditions": [ready] },
        }),
    )
}
