//! Which settings of the kernel pods may change: those of their own namespaces that are known to harm nobody else, and
//! those that the administrator allows.

use std::fmt;

/// The settings that a pod may change without harm to others.
const SAFE: &[&str] = &[
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

/// The settings of the IPC namespace beside those of message queues. Those with one of the last two as their beginning can
/// be allowed by a pattern.
const IPC: &[&str] = &[
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.shm",
    "kernel.msg",
];

const MAX_LENGTH: usize = 253;
/// What a name or a pattern looks like, as upstream's message says it.
const PATTERN: &str = "([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSysctl {
    #[error("sysctl {0:?} must have at most {MAX_LENGTH} characters and match regex {PATTERN}")]
    Malformed(String),
    #[error("the sysctls {0:?} are not known to be namespaced")]
    NotNamespaced(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    Ipc,
    Net,
}

impl fmt::Display for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Namespace::Ipc => "IPC",
            Namespace::Net => "Net",
        })
    }
}

/// Why a pod may not change a setting, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForbiddenSysctl {
    #[error("{0:?} not allowlisted")]
    NotAllowlisted(String),
    #[error("{name:?} not allowed with host {namespace} enabled")]
    HostNamespace { name: String, namespace: Namespace },
}

/// What may be changed.
#[derive(Clone, Debug, Default)]
pub struct SysctlRules {
    names: Vec<(String, Namespace)>,
    /// What names begin with.
    prefixes: Vec<(String, Namespace)>,
}

impl SysctlRules {
    /// Only those that are safe.
    pub fn safe() -> SysctlRules {
        // The list above is well-formed, as tests see.
        SysctlRules::new(&[]).unwrap_or_default()
    }

    /// The safe ones, and those that were allowed beside them; patterns end in `*`.
    pub fn new(allowed: &[String]) -> Result<SysctlRules, BadSysctl> {
        let mut rules = SysctlRules::default();
        for pattern in SAFE.iter().copied().chain(allowed.iter().map(String::as_str)) {
            if !is_pattern(pattern) {
                return Err(BadSysctl::Malformed(pattern.to_owned()));
            }
            let name = normalized(pattern);
            let (name, list) = match name.split_once('*') {
                Some((prefix, _)) => (prefix.to_owned(), &mut rules.prefixes),
                None => (name, &mut rules.names),
            };
            let namespace = namespace_of(&name).ok_or_else(|| BadSysctl::NotNamespaced(name.clone()))?;
            list.push((name, namespace));
        }
        Ok(rules)
    }

    /// Why a pod may not change this, if it may not. What belongs to a namespace that the pod shares with the host would be
    /// changed for the host.
    pub fn check(&self, name: &str, host_network: bool, host_ipc: bool) -> Result<(), ForbiddenSysctl> {
        let name = normalized(name);
        let by_name = self.names.iter().find(|(allowed, _)| *allowed == name);
        let found = by_name.or_else(|| self.prefixes.iter().find(|(prefix, _)| name.starts_with(prefix)));
        let Some((_, namespace)) = found else {
            return Err(ForbiddenSysctl::NotAllowlisted(name));
        };
        let is_hosts = match namespace {
            Namespace::Ipc => host_ipc,
            Namespace::Net => host_network,
        };
        match is_hosts {
            true => Err(ForbiddenSysctl::HostNamespace {
                name,
                namespace: *namespace,
            }),
            false => Ok(()),
        }
    }
}

/// A setting's name with dots between its parts. If a slash comes first, slashes separate the parts and dots belong to
/// them, as in `net/ipv4/conf/eth0.1/rp_filter`, which is `net.ipv4.conf.eth0/1.rp_filter`.
pub fn normalized(name: &str) -> String {
    match name.find(['.', '/']).map(|at| name.as_bytes()[at]) {
        Some(b'/') => name
            .chars()
            .map(|letter| match letter {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

fn namespace_of(name: &str) -> Option<Namespace> {
    match name {
        name if IPC.contains(&name) || name.starts_with("fs.mqueue.") => Some(Namespace::Ipc),
        name if name.starts_with("net.") => Some(Namespace::Net),
        _ => None,
    }
}

/// Parts of small letters, digits, dashes and underscores, with a dot or a slash between them; the last one may end in `*`.
fn is_pattern(text: &str) -> bool {
    let mut parts: Vec<&str> = text.split(['.', '/']).collect();
    let last = parts.pop().unwrap_or_default();
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let inner = |part: &str| {
        part.bytes()
            .all(|byte| edge(Some(&byte)) || byte == b'-' || byte == b'_')
    };
    let is_part = |part: &&str| inner(part) && edge(part.as_bytes().first()) && edge(part.as_bytes().last());
    let is_last = match last.strip_suffix('*') {
        Some(before) => before.is_empty() || (inner(before) && edge(before.as_bytes().first())),
        None => is_part(&last),
    };
    text.len() <= MAX_LENGTH && is_last && parts.iter().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allowed: &[&str]) -> Result<SysctlRules, BadSysctl> {
        SysctlRules::new(&allowed.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn only_settings_of_namespaces_can_be_allowed() {
        for good in [
            "kernel.msg*",
            "kernel.sem",
            "net.*",
            "net/ipv4/*",
            "fs.mqueue.*",
            "net.ipv4.conf.all-x.y_z",
        ] {
            assert!(rules(&[good]).is_ok(), "{good}");
        }
        for not_namespaced in [
            "kernel.*",
            "kernel.core_pattern",
            "vm.swappiness",
            "net*",
            "fs.mqueue*",
            "*",
        ] {
            assert!(
                matches!(rules(&[not_namespaced]), Err(BadSysctl::NotNamespaced(_))),
                "{not_namespaced}"
            );
        }
        for malformed in [
            "",
            ".",
            "net..x",
            "net.-x",
            "net.*.x",
            "Net.x",
            "net.x-",
            "net.**",
            "net.ipv4.-*",
        ] {
            assert!(
                matches!(rules(&[malformed]), Err(BadSysctl::Malformed(_))),
                "{malformed}"
            );
        }
        assert_eq!(
            rules(&["kernel.*"]).unwrap_err().to_string(),
            "the sysctls \"kernel.\" are not known to be namespaced"
        );
    }

    #[test]
    fn all_that_is_safe_is_allowed() {
        let rules = SysctlRules::safe();
        assert_eq!(rules.names.len(), SAFE.len());
        assert!(SAFE.iter().all(|name| rules.check(name, false, false).is_ok()));
    }

    #[test]
    fn what_is_not_allowed_stays_forbidden_however_it_is_written() {
        let rules = rules(&["kernel.msg*", "net.core.somaxconn"]).unwrap();
        let may = |name: &str| rules.check(name, false, false).is_ok();
        assert!(may("kernel.msgmax") && may("kernel/msgmax") && may("net.core.somaxconn"));
        for name in [
            "kernel.shmmax",
            "net.core.somaxconn2",
            "net.core/somaxconn",
            "kernel.core_pattern",
            "net/core.somaxconn",
            "",
        ] {
            assert!(!may(name), "{name}");
        }
        // What the administrator allowed is not allowed for the host either.
        assert!(rules.check("kernel.msgmax", true, false).is_ok());
        assert!(rules.check("kernel.msgmax", false, true).is_err());
        assert!(rules.check("net.core.somaxconn", true, false).is_err());
    }

    #[test]
    fn slashes_and_dots_change_places_if_a_slash_comes_first() {
        assert_eq!(
            normalized("net/ipv4/conf/eth0.1/rp_filter"),
            "net.ipv4.conf.eth0/1.rp_filter"
        );
        assert_eq!(
            normalized("net.ipv4.conf.eth0/1.rp_filter"),
            "net.ipv4.conf.eth0/1.rp_filter"
        );
        assert_eq!(normalized("kernel"), "kernel");
    }
}
