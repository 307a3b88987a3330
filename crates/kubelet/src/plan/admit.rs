//! Pods that this node does not let in.

use super::{PodView, Stop};

/// The kernel settings that a pod may change without harm to others.
const SAFE_SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Why a pod is not let in. One that has run here before was let in then.
pub(super) fn refusal(view: PodView<'_>) -> Option<Stop> {
    if !view.observed.is_empty() {
        return None;
    }
    let sysctls = &view.pod.spec.security_context.sysctls;
    let unsafe_sysctl = sysctls
        .iter()
        .find(|sysctl| !SAFE_SYSCTLS.contains(&sysctl.name.replace('/', ".").as_str()));
    unsafe_sysctl.map(|sysctl| Stop::Rejected {
        reason: "SysctlForbidden".to_owned(),
        message: format!("forbidden sysctl: {:?} not allowlisted", sysctl.name),
    })
}
