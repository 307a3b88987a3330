//! What a cluster tells machines that want to join it, under the names and in the form that kubeadm gives it: who it is,
//! for everybody; how its nodes are configured, for those with a bootstrap token; and what such a token allows.

use anyhow::{Context, Result};
use api::Resource;
use api::kinds::cluster_role::CLUSTER_ROLE;
use api::kinds::cluster_role_binding::CLUSTER_ROLE_BINDING;
use api::kinds::config_map::CONFIG_MAP;
use api::kinds::role::ROLE;
use api::kinds::role_binding::ROLE_BINDING;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Client, Patch};
use network::Cidr;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::node::ClusterNetwork;

/// The group of bootstrap tokens that nodes join with.
pub const NODE_TOKENS: &str = "system:bootstrappers:kubeadm:default-node-token";
pub const INFO_NAMESPACE: &str = "kube-public";
pub const INFO: &str = "cluster-info";
const CONFIG_NAMESPACE: &str = "kube-system";
const CLUSTER_CONFIG: &str = "kubeadm-config";
const KUBELET_CONFIG: &str = "kubelet-config";
/// On the kubelets' configuration: every node runs a part of the cluster's name server.
const BUILTIN_DNS: &str = "karve.dev/builtin-dns";
const RBAC: &str = "rbac.authorization.k8s.io";

/// What is told.
#[derive(Clone, Debug)]
pub struct ClusterInfo {
    pub name: String,
    /// Where other machines reach the server.
    pub server: String,
    pub authority_pem: String,
    pub network: ClusterNetwork,
}

impl ClusterInfo {
    /// Makes it so. `admin` must be allowed to.
    pub async fn publish(&self, admin: &Client) -> Result<()> {
        for (resource, namespace, name, content) in self.objects() {
            put(admin, resource, namespace, name, content)
                .await
                .with_context(|| format!("cannot write {} {name}", resource.kind))?;
        }
        Ok(())
    }

    fn objects(&self) -> Vec<(&'static Resource, &'static str, &'static str, Value)> {
        let role = |kind: &str, name: &str| json!({"apiGroup": RBAC, "kind": kind, "name": name});
        let group = |name: &str| json!({"apiGroup": RBAC, "kind": "Group", "name": name});
        let bound =
            |kind: &str, name: &str, subjects: &[Value]| json!({"roleRef": role(kind, name), "subjects": subjects});
        let reads = |resource: &str, name: &str| json!({"rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"], "resourceNames": [name]}]});
        let (tokens, nodes) = (group(NODE_TOKENS), group("system:nodes"));
        let anybody = json!({"apiGroup": RBAC, "kind": "User", "name": "system:anonymous"});
        let signing = "system:certificates.k8s.io:certificatesigningrequests";
        let get_nodes = json!({"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]});
        let (info_role, config_role, kubelet_role) = (
            "kubeadm:bootstrap-signer-clusterinfo",
            "kubeadm:nodes-kubeadm-config",
            "kubeadm:kubelet-config",
        );
        let both = [tokens.clone(), nodes.clone()];
        let binding = &CLUSTER_ROLE_BINDING;
        vec![
            (&CONFIG_MAP, INFO_NAMESPACE, INFO, self.info()),
            (&CONFIG_MAP, CONFIG_NAMESPACE, CLUSTER_CONFIG, self.cluster_config()),
            (&CONFIG_MAP, CONFIG_NAMESPACE, KUBELET_CONFIG, self.kubelet_config()),
            (&ROLE, INFO_NAMESPACE, info_role, reads("configmaps", INFO)),
            (
                &ROLE_BINDING,
                INFO_NAMESPACE,
                info_role,
                bound("Role", info_role, &[anybody]),
            ),
            (
                &ROLE,
                CONFIG_NAMESPACE,
                config_role,
                reads("configmaps", CLUSTER_CONFIG),
            ),
            (
                &ROLE_BINDING,
                CONFIG_NAMESPACE,
                config_role,
                bound("Role", config_role, &both),
            ),
            (
                &ROLE,
                CONFIG_NAMESPACE,
                kubelet_role,
                reads("configmaps", KUBELET_CONFIG),
            ),
            (
                &ROLE_BINDING,
                CONFIG_NAMESPACE,
                kubelet_role,
                bound("Role", kubelet_role, &both),
            ),
            (&CLUSTER_ROLE, "", "kubeadm:get-nodes", get_nodes),
            (
                binding,
                "",
                "kubeadm:get-nodes",
                bound("ClusterRole", "kubeadm:get-nodes", std::slice::from_ref(&tokens)),
            ),
            (
                binding,
                "",
                "kubeadm:kubelet-bootstrap",
                bound("ClusterRole", "system:node-bootstrapper", std::slice::from_ref(&tokens)),
            ),
            (
                binding,
                "",
                "kubeadm:node-autoapprove-bootstrap",
                bound("ClusterRole", &format!("{signing}:nodeclient"), &[tokens]),
            ),
            (
                binding,
                "",
                "kubeadm:node-autoapprove-certificate-rotation",
                bound("ClusterRole", &format!("{signing}:selfnodeclient"), &[nodes]),
            ),
        ]
    }

    /// A kubeconfig without a user.
    fn info(&self) -> Value {
        let kubeconfig = format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {}\n  name: \"\"\n\
             contexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {{}}\nusers: null\n",
            STANDARD.encode(&self.authority_pem),
            self.server
        );
        json!({"data": {"kubeconfig": kubeconfig}})
    }

    fn cluster_config(&self) -> Value {
        let network = &self.network;
        let configuration = format!(
            "apiServer: {{}}\napiVersion: kubeadm.k8s.io/v1beta4\ncertificatesDir: /etc/kubernetes/pki\n\
             clusterName: {}\ncontrolPlaneEndpoint: {}\ncontrollerManager: {{}}\ndns: {{}}\nimageRepository: registry.k8s.io\n\
             kind: ClusterConfiguration\nkubernetesVersion: {}\nnetworking:\n  dnsDomain: {}\n  podSubnet: {}\n  \
             serviceSubnet: {}\nproxy: {{}}\nscheduler: {{}}\n",
            self.name,
            self.server.trim_start_matches("https://"),
            apiserver::GIT_VERSION,
            network.cluster_domain,
            network.cluster_cidr,
            network.service_cidr,
        );
        json!({"data": {"ClusterConfiguration": configuration}})
    }

    fn kubelet_config(&self) -> Value {
        let servers: Vec<String> = self.network.name_servers.iter().map(ToString::to_string).collect();
        let configuration = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nauthentication:\n  anonymous:\n    enabled: false\n  webhook:\n    \
             enabled: true\n  x509:\n    clientCAFile: /etc/kubernetes/pki/ca.crt\nauthorization:\n  mode: Webhook\n\
             clusterDNS: {}\nclusterDomain: {}\nkind: KubeletConfiguration\nrotateCertificates: true\n\
             staticPodPath: /etc/kubernetes/manifests\n",
            json!(servers),
            self.network.cluster_domain,
        );
        json!({
            "metadata": {"annotations": {BUILTIN_DNS: self.network.builtin_dns.to_string()}},
            "data": {"kubelet": configuration},
        })
    }
}

/// Creates an object, or brings what it says up to date.
async fn put(
    client: &Client,
    resource: &'static Resource,
    namespace: &str,
    name: &str,
    content: Value,
) -> client::Result<()> {
    let api = client.resource(resource).in_namespace(namespace);
    let mut object = content.clone();
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    object["metadata"]["name"] = json!(name);
    match api.create::<IgnoredAny>(&object).await {
        Err(error) if error.is_already_exists() => {
            api.patch::<IgnoredAny>(name, Patch::merge(&content)).await?;
        }
        other => drop(other?),
    }
    Ok(())
}

#[derive(Deserialize)]
struct ClusterConfiguration {
    networking: Networking,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Networking {
    #[serde(default)]
    pod_subnet: String,
    service_subnet: String,
    dns_domain: String,
}

#[derive(Deserialize)]
struct KubeletConfiguration {
    #[serde(rename = "clusterDNS", default)]
    cluster_dns: Vec<std::net::IpAddr>,
}

/// What all nodes agree on, as a cluster of ours or kubeadm's tells those with a token.
pub async fn read_network(client: &Client) -> Result<ClusterNetwork> {
    let maps = client.resource(&CONFIG_MAP).in_namespace(CONFIG_NAMESPACE);
    let map = async |name: &str| {
        let map = maps.get::<Value>(name).await;
        map.with_context(|| format!("the cluster has no configuration for nodes (ConfigMap {name})"))
    };
    parse_network(&map(CLUSTER_CONFIG).await?, &map(KUBELET_CONFIG).await?)
}

fn parse_network(cluster: &Value, kubelet: &Value) -> Result<ClusterNetwork> {
    let text = |map: &Value, key: &str| {
        let text = map["data"][key].as_str().map(str::to_owned);
        text.with_context(|| format!("{} has no {key}", map["metadata"]["name"]))
    };
    let configuration: ClusterConfiguration = serde_saphyr::from_str(&text(cluster, "ClusterConfiguration")?)
        .with_context(|| format!("failed to parse {CLUSTER_CONFIG}"))?;
    let nodes: KubeletConfiguration = serde_saphyr::from_str(&text(kubelet, "kubelet")?)
        .with_context(|| format!("failed to parse {KUBELET_CONFIG}"))?;
    let Networking {
        pod_subnet,
        service_subnet,
        dns_domain,
    } = configuration.networking;
    Ok(ClusterNetwork {
        cluster_cidr: first_cidr(&pod_subnet).context("networking.podSubnet")?,
        service_cidr: first_cidr(&service_subnet).context("networking.serviceSubnet")?,
        name_servers: nodes.cluster_dns,
        builtin_dns: kubelet["metadata"]["annotations"][BUILTIN_DNS] == "true",
        cluster_domain: dns_domain,
    })
}

/// The first of several, which is that of the cluster's first family.
fn first_cidr(text: &str) -> Result<Cidr> {
    crate::node::parse(text.split(',').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> ClusterInfo {
        ClusterInfo {
            name: "karve".to_owned(),
            server: "https://10.99.0.1:6443".to_owned(),
            authority_pem: "PEM".to_owned(),
            network: ClusterNetwork {
                cluster_cidr: "10.244.0.0/16".parse().unwrap(),
                service_cidr: "10.96.0.0/16".parse().unwrap(),
                name_servers: vec!["10.96.0.10".parse().unwrap()],
                builtin_dns: true,
                cluster_domain: "cluster.local".to_owned(),
            },
        }
    }

    #[test]
    fn what_nodes_agree_on_comes_back_whole() {
        let info = info();
        assert_eq!(
            parse_network(&info.cluster_config(), &info.kubelet_config()).unwrap(),
            info.network
        );
    }

    #[test]
    fn a_cluster_of_kubeadm_is_understood() {
        let cluster = json!({"data": {"ClusterConfiguration":
            "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: kubernetes\n\
             kubernetesVersion: v1.36.0\nnetworking:\n  dnsDomain: example.internal\n  podSubnet: 10.1.0.0/16,fd00::/64\n  \
             serviceSubnet: 10.2.0.0/16\n"}});
        let kubelet =
            json!({"data": {"kubelet": "kind: KubeletConfiguration\nclusterDNS:\n- 10.2.0.10\nclusterDomain: x\n"}});
        let network = parse_network(&cluster, &kubelet).unwrap();
        assert_eq!(network.cluster_cidr.to_string(), "10.1.0.0/16");
        assert_eq!(network.name_servers, ["10.2.0.10".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(
            (network.builtin_dns, network.cluster_domain.as_str()),
            (false, "example.internal")
        );
        let without =
            json!({"data": {"ClusterConfiguration": "networking: {serviceSubnet: 10.2.0.0/16, dnsDomain: x}"}});
        assert!(
            parse_network(&without, &kubelet).is_err(),
            "nobody knows the pods' addresses"
        );
    }

    /// Whoever reaches the server may read the one ConfigMap, and whoever has a token no more than it takes to join.
    #[test]
    fn nothing_is_given_beyond_what_joining_takes() {
        for (resource, namespace, name, object) in info().objects() {
            for subject in object["subjects"].as_array().into_iter().flatten() {
                let is_known = match subject["name"].as_str().unwrap_or_default() {
                    "system:anonymous" => namespace == INFO_NAMESPACE,
                    NODE_TOKENS => true,
                    "system:nodes" => {
                        name != "kubeadm:kubelet-bootstrap" && name != "kubeadm:node-autoapprove-bootstrap"
                    }
                    _ => false,
                };
                assert!(is_known, "{} {name}: {subject}", resource.kind);
            }
            for rule in object["rules"].as_array().into_iter().flatten() {
                assert_eq!(rule["verbs"], json!(["get"]), "{name}");
            }
        }
    }
}
