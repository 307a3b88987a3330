//! What a kubelet is given to start with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::kinds::network_policy::ENFORCED_ON_NODE;
use client::Client;
use cri::Runtime;
use network::{Cidr, PodNetwork, Protocol};
use rustls::server::ResolvesServerCert;
use serde_json::json;

use crate::admission::SysctlRules;
use crate::auth::{Authenticator, Authorizer};
use crate::node::Reserved;
use crate::pressure::Thresholds;

#[derive(Clone)]
pub struct KubeletOptions {
    pub client: Client,
    pub runtime: Arc<dyn Runtime>,
    pub node_name: String,
    /// The node's addresses, the primary one first.
    pub node_ips: Vec<IpAddr>,
    /// Upstream's `/var/lib/kubelet`.
    pub root_dir: PathBuf,
    /// Upstream's `/var/log/pods`.
    pub pod_logs_dir: PathBuf,
    /// Where the directories of the StorageClass `local` are; without it, this node makes and removes none.
    pub local_volumes_dir: Option<PathBuf>,
    /// The cgroup below which pods are placed; `/` on a machine of its own.
    pub cgroup_root: String,
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    /// The resolver configuration that pods inherit.
    pub resolv_conf: PathBuf,
    /// Labels beside the well-known ones.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the node's object beside the well-known one. That policies are enforced is for those to say who do
    /// it.
    pub annotations: BTreeMap<String, String>,
    /// Taints the node registers with, as in `spec.taints`.
    pub taints: Vec<serde_json::Value>,
    pub provider_id: String,
    /// The blocks of the node's pods, if they are known already.
    pub pod_cidrs: Vec<Cidr>,
    /// Whether the node, and not a controller, decides about them: then it registers with them.
    pub registers_pod_cidrs: bool,
    /// Told the node's blocks, beside the runtime.
    pub pod_network: Option<Arc<dyn PodNetwork>>,
    pub max_pods: u32,
    /// Processes of a pod at most; without it, as many as all pods may have.
    pub pod_max_pids: Option<u64>,
    /// What pods may change of the kernel.
    pub sysctls: SysctlRules,
    /// Below these the node is under pressure; pods are promised none of it.
    pub eviction_hard: Thresholds,
    /// What pods are not promised either: it is the machine's own.
    pub reserved: Reserved,
    pub image_gc: ImageGcOptions,
    pub container_logs: LogOptions,
    /// Where the kubelet serves; `None` if it is only called in process.
    pub server: Option<ServerOptions>,
    /// The port that the node's object names.
    pub port: u16,
    /// Ports of the host that other components of the node listen on, which no pod may have.
    pub reserved_ports: BTreeSet<(Protocol, u16)>,
    /// A directory, or a file, of static pods.
    pub static_pod_path: Option<PathBuf>,
    /// How often that is read even though nothing seems to have changed.
    pub file_check: Duration,
    /// A URL of static pods.
    pub manifest_url: Option<ManifestUrl>,
    /// Whether the logs of the node's services can be asked for at `/logs/`.
    pub system_log_query: bool,
    /// As the node's object shows it.
    pub version: String,
}

/// When unused images are removed: their disk is brought from one mark down to another.
#[derive(Clone, Copy, Debug)]
pub struct ImageGcOptions {
    /// 100 removes none.
    pub high_percent: u64,
    pub low_percent: u64,
}

/// Where static pods are asked for, and how often.
#[derive(Clone, Debug)]
pub struct ManifestUrl {
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub check: Duration,
}

/// How large logs grow and how many of a container are kept, the current one included.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    pub max_bytes: u64,
    /// At least two.
    pub max_files: usize,
}

/// Where the certificate comes from that the kubelet serves with.
#[derive(Clone)]
pub enum ServingCertificate {
    /// A certificate chain and its key, PEM.
    Given { chain: Vec<u8>, key: Vec<u8> },
    /// One that somebody else in this process replaces from time to time.
    Renewed(Arc<dyn ResolvesServerCert>),
    /// One that the cluster signs for this node, asked for by a CertificateSigningRequest and renewed.
    Requested {
        /// Where it is kept.
        directory: PathBuf,
        /// PEM of who signs, if that is known.
        authority: Option<Vec<u8>>,
    },
}

#[derive(Clone)]
pub struct ServerOptions {
    pub address: SocketAddr,
    pub certificate: ServingCertificate,
    /// PEM; clients that present a certificate of it are who it says.
    pub client_ca: Option<Vec<u8>>,
    /// Knows bearer tokens; without one they are refused.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    pub authorizer: Arc<dyn Authorizer>,
}

impl KubeletOptions {
    /// Upstream's defaults, for a node of this name.
    pub fn new(client: Client, runtime: Arc<dyn Runtime>, node_name: impl Into<String>) -> KubeletOptions {
        KubeletOptions {
            client,
            runtime,
            node_name: node_name.into(),
            node_ips: Vec::new(),
            root_dir: PathBuf::from("/var/lib/kubelet"),
            pod_logs_dir: PathBuf::from("/var/log/pods"),
            local_volumes_dir: None,
            cgroup_root: "/".to_owned(),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            labels: BTreeMap::new(),
            annotations: BTreeMap::from([(ENFORCED_ON_NODE.to_owned(), false.to_string())]),
            taints: Vec::new(),
            provider_id: String::new(),
            pod_cidrs: Vec::new(),
            registers_pod_cidrs: false,
            pod_network: None,
            max_pods: 110,
            pod_max_pids: None,
            sysctls: SysctlRules::safe(),
            eviction_hard: Thresholds::upstream(),
            reserved: Reserved::default(),
            image_gc: ImageGcOptions {
                high_percent: 85,
                low_percent: 80,
            },
            container_logs: LogOptions {
                max_bytes: 10 << 20,
                max_files: 5,
            },
            server: None,
            port: 10250,
            reserved_ports: BTreeSet::new(),
            static_pod_path: None,
            file_check: Duration::from_secs(20),
            manifest_url: None,
            system_log_query: false,
            version: "v1.36.4".to_owned(),
        }
    }

    /// The options as far as a KubeletConfiguration has fields for them.
    pub(crate) fn configuration(&self) -> serde_json::Value {
        let seconds = |duration: Duration| crate::text::go_duration(duration);
        let server = self.server.as_ref();
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": server.map_or("0.0.0.0".to_owned(), |server| server.address.ip().to_string()),
            "port": self.port,
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": server.is_some_and(|server| server.authenticator.is_some())},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup_root,
            "clusterDNS": self.cluster_dns,
            "clusterDomain": self.cluster_domain,
            "containerLogMaxFiles": self.container_logs.max_files,
            "containerLogMaxSize": self.container_logs.max_bytes.to_string(),
            "cpuManagerPolicy": "none",
            "enableSystemLogHandler": true,
            "enableSystemLogQuery": self.system_log_query,
            "evictionHard": self.eviction_hard.amounts(),
            "failSwapOn": false,
            "fileCheckFrequency": seconds(self.file_check),
            "imageGCHighThresholdPercent": self.image_gc.high_percent,
            "imageGCLowThresholdPercent": self.image_gc.low_percent,
            "maxPods": self.max_pods,
            "podLogsDir": self.pod_logs_dir,
            "podPidsLimit": self.pod_max_pids.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX)),
            "providerID": self.provider_id,
            "registerNode": true,
            "registerWithTaints": self.taints,
            "resolvConf": self.resolv_conf,
            "serializeImagePulls": false,
            "staticPodPath": self.static_pod_path,
            "staticPodURL": self.manifest_url.as_ref().map(|url| &url.url),
        })
    }

    /// The kubelet's own port, and those of others.
    pub(crate) fn reserved_ports(&self) -> BTreeSet<(Protocol, u16)> {
        let own = (Protocol::Tcp, self.port);
        self.reserved_ports.iter().copied().chain([own]).collect()
    }
}
