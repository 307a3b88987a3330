//! The kernel's settings that a pod may have of its own.
//!
//! Only what the kernel keeps for each namespace is a pod's to set, and only in a namespace that is the pod's:
//! everything else would be set for the whole node.

use std::collections::BTreeMap;

use super::PlanError;

/// The longest value. The kernel takes no more than a page.
const MAX_VALUE_BYTES: usize = 4096;

/// Settings of the IPC namespace, beside those below `fs.mqueue`.
const IPC: &[&str] = &[
    "kernel/msgmax",
    "kernel/msgmnb",
    "kernel/msgmni",
    "kernel/sem",
    "kernel/shm_rmid_forced",
    "kernel/shmall",
    "kernel/shmmax",
    "kernel/shmmni",
];

/// The settings as paths below `/proc/sys`. `own_network` and `own_ipc` say which namespaces are the pod's.
pub fn sysctls(
    wanted: &BTreeMap<String, String>,
    own_network: bool,
    own_ipc: bool,
) -> Result<BTreeMap<String, String>, PlanError> {
    let checked = wanted.iter().map(|(name, value)| {
        let invalid = |why: &str| PlanError::Invalid(format!("sysctl {name:?} {why}"));
        let path = path_of(name).ok_or_else(|| invalid("is not a name of a kernel setting"))?;
        if path.starts_with("net/") {
            if !own_network {
                return Err(invalid("not allowed in host network namespace"));
            }
        } else if path.starts_with("fs/mqueue/") || IPC.contains(&path.as_str()) {
            if !own_ipc {
                return Err(invalid("is not allowed in the hosts ipc namespace"));
            }
        } else {
            return Err(invalid("is not in a separate kernel namespace"));
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(invalid("has a value of more than 4096 bytes"));
        }
        Ok((path, value.clone()))
    });
    checked.collect()
}

/// The path of a setting. Its parts are separated by dots or by slashes, whichever comes first; the other of the two
/// then stands for itself, as in the name of an interface: `net.ipv4.conf.eth0/1.forwarding`.
fn path_of(name: &str) -> Option<String> {
    let separator = name.chars().find(|c| matches!(c, '.' | '/'))?;
    let part = |part: &str| {
        let part = if separator == '.' {
            part.replace('/', ".")
        } else {
            part.to_owned()
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let is_name = part.chars().all(plain) && part.chars().any(|c| c != '.');
        is_name.then_some(part)
    };
    let parts: Option<Vec<_>> = name.split(separator).map(part).collect();
    Some(parts?.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn plan(name: &str, own: bool) -> Result<BTreeMap<String, String>, PlanError> {
        sysctls(&[(name.to_owned(), "1".to_owned())].into(), own, own)
    }

    fn check(name: &str, path: &str) {
        assert_eq!(plan(name, true).unwrap().keys().collect::<Vec<_>>(), [path]);
    }

    fn check_refused(name: &str, own: bool, expect: Expect) {
        expect.assert_eq(&plan(name, own).unwrap_err().to_string());
    }

    #[test]
    fn settings_of_namespaces_are_the_pods() {
        check("net.ipv4.tcp_syncookies", "net/ipv4/tcp_syncookies");
        check("net/ipv4/tcp_syncookies", "net/ipv4/tcp_syncookies");
        check("net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding");
        check("net/ipv4/conf/eth0.1/forwarding", "net/ipv4/conf/eth0.1/forwarding");
        check("kernel.shm_rmid_forced", "kernel/shm_rmid_forced");
        check("fs.mqueue.msg_max", "fs/mqueue/msg_max");
    }

    #[test]
    fn settings_of_the_node_are_not() {
        let why = expect![[r#"sysctl "kernel.core_pattern" is not in a separate kernel namespace"#]];
        check_refused("kernel.core_pattern", true, why);
        let why = expect![[r#"sysctl "kernel.shm_next_id" is not in a separate kernel namespace"#]];
        check_refused("kernel.shm_next_id", true, why);
        let why = expect![[r#"sysctl "vm.swappiness" is not in a separate kernel namespace"#]];
        check_refused("vm.swappiness", true, why);
        let why = expect![[r#"sysctl "net.ipv4.ip_forward" not allowed in host network namespace"#]];
        check_refused("net.ipv4.ip_forward", false, why);
        let why = expect![[r#"sysctl "kernel.sem" is not allowed in the hosts ipc namespace"#]];
        check_refused("kernel.sem", false, why);
        let why = expect![[r#"sysctl "fs.mqueue.msg_max" is not allowed in the hosts ipc namespace"#]];
        check_refused("fs.mqueue.msg_max", false, why);
    }

    #[test]
    fn no_name_leads_elsewhere() {
        for name in [
            "",
            "net",
            "net.",
            ".net",
            "net..ipv4",
            "net/../kernel/core_pattern",
            "net.//.kernel.core_pattern",
            "net/./x",
            "net.ipv4.a\nb",
            "net.ipv4.a b",
            "/proc/sys/net/x",
            "net/ipv4/ä",
        ] {
            let error = plan(name, true).unwrap_err().to_string();
            assert!(error.ends_with("is not a name of a kernel setting"), "{error}");
        }
    }

    #[test]
    fn a_value_is_bounded() {
        let wanted = [("net.ipv4.tcp_rmem".to_owned(), "1".repeat(4097))].into();
        assert!(sysctls(&wanted, true, true).is_err());
    }
}
