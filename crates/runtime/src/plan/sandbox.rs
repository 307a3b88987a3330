//! A pod's sandbox.

use std::collections::BTreeMap;
use std::fmt::Write;

use cri::v1::{DnsConfig, NamespaceMode, PodSandboxConfig};

use super::PlanError;
use super::sysctls::sysctls;
use super::user_namespace::user_namespace;
use crate::spec::SandboxSpec;

/// What every runtime gives the memory that containers of a pod share.
const SHM_BYTES: u64 = 64 << 20;

/// The names of the files a pod's containers share.
pub const HOSTNAME: &str = "hostname";
pub const RESOLV_CONF: &str = "resolv.conf";

/// The kernel's limit for a host's name.
const MAX_HOSTNAME_BYTES: usize = 64;

/// The handlers that a RuntimeClass can name. There is one runtime, the default, which has a name too.
pub const RUNTIME_HANDLERS: &[&str] = &["", "karve"];

/// The sandbox a kubelet asks for. `runtime_handler` is the name in the pod's RuntimeClass.
pub fn sandbox(id: &str, config: &PodSandboxConfig, runtime_handler: &str) -> Result<SandboxSpec, PlanError> {
    if !RUNTIME_HANDLERS.contains(&runtime_handler) {
        return Err(PlanError::Invalid(format!(
            "no runtime for {runtime_handler:?} is configured; the handlers of a RuntimeClass on this node are: {}",
            RUNTIME_HANDLERS[1..].join(", ")
        )));
    }
    let linux = config.linux.clone().unwrap_or_default();
    let security = linux.security_context.unwrap_or_default();
    let namespaces = security.namespace_options.unwrap_or_default();
    let own_network = namespaces.network() != NamespaceMode::Node;
    let own_ipc = namespaces.ipc() != NamespaceMode::Node;
    if config.hostname.len() > MAX_HOSTNAME_BYTES {
        return Err(PlanError::Invalid(format!(
            "hostname {:?} is longer than 64 bytes",
            config.hostname
        )));
    }
    Ok(SandboxSpec {
        id: id.to_owned(),
        hostname: (own_network && !config.hostname.is_empty()).then(|| config.hostname.clone()),
        own_network,
        own_ipc,
        shared_pid: namespaces.pid() == NamespaceMode::Pod,
        sysctls: sysctls(&linux.sysctls, own_network, own_ipc)?,
        shm_bytes: SHM_BYTES,
        files: BTreeMap::new(),
        user_namespace: user_namespace(&namespaces)?,
    })
}

/// The files a pod's containers share. `host` reads one of the host's, for what the pod leaves to it.
pub fn files(spec: &SandboxSpec, dns: Option<&DnsConfig>, host: impl Fn(&str) -> String) -> BTreeMap<String, String> {
    let hostname = spec
        .hostname
        .as_ref()
        .map_or_else(|| host("/etc/hostname"), |name| format!("{name}\n"));
    let resolv_conf = resolv_conf(dns).unwrap_or_else(|| host("/etc/resolv.conf"));
    [(HOSTNAME.to_owned(), hostname), (RESOLV_CONF.to_owned(), resolv_conf)].into()
}

/// The pod's `resolv.conf`, or None where the host's is to be used.
fn resolv_conf(dns: Option<&DnsConfig>) -> Option<String> {
    let dns = dns?;
    if dns.servers.is_empty() && dns.searches.is_empty() && dns.options.is_empty() {
        return None;
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    if !dns.searches.is_empty() {
        let _ = writeln!(text, "search {}", dns.searches.join(" "));
    }
    for server in &dns.servers {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !dns.options.is_empty() {
        let _ = writeln!(text, "options {}", dns.options.join(" "));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cri::v1::{LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceOption};
    use expect_test::expect;

    fn config(namespaces: NamespaceOption) -> PodSandboxConfig {
        PodSandboxConfig {
            hostname: "web-0".into(),
            linux: Some(LinuxPodSandboxConfig {
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn an_ordinary_pod_has_its_own_network_and_memory_but_not_its_own_processes() {
        let namespaces = NamespaceOption {
            pid: NamespaceMode::Container.into(),
            ..Default::default()
        };
        let spec = sandbox("s1", &config(namespaces), "").unwrap();
        assert_eq!((spec.own_network, spec.own_ipc, spec.shared_pid), (true, true, false));
        assert_eq!(spec.hostname.as_deref(), Some("web-0"));
    }

    #[test]
    fn a_pod_in_the_hosts_network_keeps_the_hosts_name() {
        let node = NamespaceMode::Node.into();
        let namespaces = NamespaceOption {
            network: node,
            pid: node,
            ipc: node,
            ..Default::default()
        };
        let spec = sandbox("s1", &config(namespaces), "").unwrap();
        assert_eq!((spec.own_network, spec.own_ipc, spec.shared_pid), (false, false, false));
        assert_eq!(spec.hostname, None);
    }

    #[test]
    fn other_runtimes_are_not_there() {
        let error = sandbox("s1", &PodSandboxConfig::default(), "gvisor").unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"no runtime for "gvisor" is configured; the handlers of a RuntimeClass on this node are: karve"#
        );
        assert!(sandbox("s1", &PodSandboxConfig::default(), "karve").is_ok());
    }

    #[test]
    fn resolv_conf_says_what_the_pod_asks() {
        let dns = DnsConfig {
            servers: vec!["10.96.0.10".into()],
            searches: vec!["default.svc.cluster.local".into(), "svc.cluster.local".into()],
            options: vec!["ndots:5".into()],
        };
        expect![[r#"
            search default.svc.cluster.local svc.cluster.local
            nameserver 10.96.0.10
            options ndots:5
        "#]]
        .assert_eq(&resolv_conf(Some(&dns)).unwrap());
        assert_eq!(resolv_conf(Some(&DnsConfig::default())), None);
    }
}
