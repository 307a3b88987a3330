//! The sandbox's configuration.

use cri::v1;

use super::dns::{self, ClusterDns, Resolver};
use super::security::SecurityError;
use super::{labels, resources, security};
use crate::admission;
use crate::paths::Paths;
use crate::pod::Pod;
use crate::pod::resources::pod_compute;
use crate::user_namespaces::HostIds;

/// What sandboxes take from the node.
#[derive(Clone, Debug)]
pub struct SandboxContext<'a> {
    pub paths: &'a Paths,
    pub host_resolver: &'a Resolver,
    pub cluster_dns: &'a ClusterDns,
    pub node_name: &'a str,
    pub cgroup_parent: String,
    /// The ids of a pod with users of its own.
    pub host_ids: Option<HostIds>,
}

/// What the kernel takes.
const MAX_HOSTNAME_BYTES: usize = 64;

/// Why a sandbox has no configuration, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {hostname} is too long ({MAX_HOSTNAME_BYTES} \
         characters is the max, {} characters requested)",
        hostname.len()
    )]
    HostnameTooLong { hostname: String },
    #[error(transparent)]
    Security(#[from] SecurityError),
}

pub fn config(pod: &Pod, attempt: u32, context: &SandboxContext<'_>) -> Result<v1::PodSandboxConfig, SandboxError> {
    let metadata = &pod.metadata;
    Ok(v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            namespace: metadata.namespace.clone(),
            attempt,
        }),
        hostname: hostname(pod, context)?,
        log_directory: context.paths.pod_logs(pod).to_string_lossy().into_owned(),
        dns_config: Some(dns::config(pod, context.host_resolver, context.cluster_dns)),
        port_mappings: port_mappings(pod),
        labels: labels::sandbox_labels(pod),
        annotations: labels::sandbox_annotations(pod),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: context.cgroup_parent.clone(),
            security_context: Some(security::sandbox(pod, context.host_ids)?),
            sysctls: sysctls(pod),
            overhead: None,
            resources: Some(resources::of_compute(pod_compute(pod))),
        }),
    })
}

/// A pod on the host's network has the host's name.
fn hostname(pod: &Pod, context: &SandboxContext<'_>) -> Result<String, SandboxError> {
    if pod.spec.host_network {
        return Ok(String::new());
    }
    let domain = dns::domain_name(pod, &context.cluster_dns.domain);
    match domain.filter(|_| pod.spec.set_hostname_as_fqdn) {
        Some(hostname) if hostname.len() > MAX_HOSTNAME_BYTES => Err(SandboxError::HostnameTooLong { hostname }),
        Some(name) => Ok(name),
        None => Ok(pod.hostname()),
    }
}

fn port_mappings(pod: &Pod) -> Vec<v1::PortMapping> {
    if pod.spec.host_network {
        return Vec::new();
    }
    let ports = pod.all_containers().flat_map(|(_, container)| &container.ports);
    let mapping = |port: &crate::pod::ContainerPort| v1::PortMapping {
        protocol: match port.protocol.as_str() {
            "UDP" => v1::Protocol::Udp,
            "SCTP" => v1::Protocol::Sctp,
            _ => v1::Protocol::Tcp,
        }
        .into(),
        container_port: i32::from(port.container_port),
        host_port: i32::from(port.host_port),
        host_ip: port.host_ip.clone(),
    };
    ports.filter(|port| port.host_port > 0).map(mapping).collect()
}

fn sysctls(pod: &Pod) -> std::collections::BTreeMap<String, String> {
    let sysctls = &pod.spec.security_context.sysctls;
    // Upstream accepts slashes for dots; runtimes want dots, and this is what admission has looked at.
    sysctls
        .iter()
        .map(|sysctl| (admission::normalized(&sysctl.name), sysctl.value.clone()))
        .collect()
}
