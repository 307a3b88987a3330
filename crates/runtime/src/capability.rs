//! Capabilities by name, and the sets containers get.

/// Every capability, at the index that is its number in the kernel.
const NAMES: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// What a container has unless it says otherwise; the same in every container runtime.
const DEFAULT: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The word for all capabilities at once.
const ALL: &str = "ALL";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown capability {0:?}")]
pub struct UnknownCapability(pub String);

/// Every capability there is.
pub const fn all() -> u64 {
    (1 << NAMES.len()) - 1
}

/// The bit of a capability, with or without the `CAP_` that programs put before it.
pub fn mask(name: &str) -> Result<u64, UnknownCapability> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    match NAMES.iter().position(|known| *known == bare) {
        Some(number) => Ok(1 << number),
        None => Err(UnknownCapability(name.to_owned())),
    }
}

fn masks<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<u64, UnknownCapability> {
    names
        .into_iter()
        .filter(|name| !is_all(name))
        .try_fold(0, |mask_so_far, name| Ok(mask_so_far | mask(name)?))
}

fn is_all(name: &str) -> bool {
    name.eq_ignore_ascii_case(ALL)
}

/// The set a container holds: `ALL` on either side replaces the default set first, then single capabilities are
/// added, then single ones dropped.
pub fn held(add: &[String], drop: &[String]) -> Result<u64, UnknownCapability> {
    let mut set = masks(DEFAULT.iter().copied())?;
    if add.iter().any(|name| is_all(name)) {
        set = all();
    }
    if drop.iter().any(|name| is_all(name)) {
        set = 0;
    }
    set |= masks(add.iter().map(String::as_str))?;
    set &= !masks(drop.iter().map(String::as_str))?;
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(add: &[&str], drop: &[&str], expected: &[&str]) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let set = held(&owned(add), &owned(drop)).unwrap();
        let names: Vec<_> = (0..NAMES.len())
            .filter(|n| set & (1 << n) != 0)
            .map(|n| NAMES[n])
            .collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn all_is_dropped_before_anything_is_added() {
        check(&["NET_BIND_SERVICE"], &["ALL"], &["NET_BIND_SERVICE"]);
    }

    #[test]
    fn a_single_capability_is_dropped_from_all() {
        let without: Vec<_> = NAMES.iter().copied().filter(|name| *name != "SYS_ADMIN").collect();
        check(&["ALL"], &["CAP_SYS_ADMIN"], &without);
    }

    #[test]
    fn unknown_names_are_refused() {
        assert_eq!(mask("CAP_EVERYTHING"), Err(UnknownCapability("CAP_EVERYTHING".into())));
        assert_eq!(mask("cap_chown"), Ok(1));
        assert_eq!(mask("CHECKPOINT_RESTORE"), Ok(1 << 40));
    }
}
