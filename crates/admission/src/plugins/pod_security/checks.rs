//! The pod security standards, one row each: what is forbidden, since when, and in which words.

use api::{Fields, Value};

use super::find::{
    BASELINE_CAPABILITIES, added_capabilities, app_armor, host_namespaces, host_paths, host_ports, host_process,
    probe_hosts, restricted_volumes, run_as_non_root, se_linux, seccomp, sysctls, unconfined_seccomp,
};
use super::standard::{Level, Standard};
use super::words::{containers, named, set_by};

/// One rule of a standard.
struct Check {
    level: Level,
    /// The first minor version that has it.
    since: u32,
    /// Whether it leaves pods for Windows alone, from 1.25 on.
    linux_only: bool,
    /// The rule of the lower level that it replaces, from `since` on.
    replaces: &'static str,
    id: &'static str,
    reason: &'static str,
    /// What breaks the rule, or nothing.
    find: fn(&Value, Standard) -> Vec<String>,
}

const fn baseline(id: &'static str, reason: &'static str, find: fn(&Value, Standard) -> Vec<String>) -> Check {
    Check {
        level: Level::Baseline,
        since: 0,
        linux_only: false,
        replaces: "",
        id,
        reason,
        find,
    }
}

const fn restricted(
    since: u32,
    id: &'static str,
    replaces: &'static str,
    reason: &'static str,
    find: fn(&Value, Standard) -> Vec<String>,
) -> Check {
    Check {
        level: Level::Restricted,
        since,
        linux_only: false,
        replaces,
        id,
        reason,
        find,
    }
}

impl Check {
    const fn on_linux(mut self) -> Check {
        self.linux_only = true;
        self
    }

    const fn from(mut self, minor: u32) -> Check {
        self.since = minor;
        self
    }
}

/// In the order in which violations are told.
static CHECKS: &[Check] = &[
    baseline("appArmorProfile", "forbidden AppArmor profile", app_armor),
    baseline("capabilities_baseline", "non-default capabilities", |pod, _| {
        added_capabilities(pod, BASELINE_CAPABILITIES)
    }),
    baseline("hostNamespaces", "host namespaces", |pod, _| host_namespaces(pod)),
    baseline("hostPathVolumes", "hostPath volumes", |pod, _| host_paths(pod)),
    baseline("hostPorts", "hostPort", |pod, _| host_ports(pod)),
    baseline("hostProbesAndHostLifecycle", "probe or lifecycle host", |pod, _| {
        probe_hosts(pod)
    })
    .from(34),
    baseline("privileged", "privileged", |pod, _| {
        let found = containers(pod).filter(|container| container["securityContext"].flag("privileged"));
        named(found, "must not set securityContext.privileged=true")
    }),
    baseline("procMount", "procMount", |pod, _| {
        let found = containers(pod)
            .filter(|container| !matches!(container["securityContext"].text("procMount"), "" | "Default"));
        named(found, "must not set securityContext.procMount to \"Unmasked\"")
    }),
    baseline("seLinuxOptions", "seLinuxOptions", se_linux),
    baseline("seccompProfile_baseline", "seccompProfile", |pod, _| {
        unconfined_seccomp(pod)
    }),
    baseline("sysctls", "forbidden sysctls", sysctls),
    baseline("windowsHostProcess", "hostProcess", |pod, _| host_process(pod)),
    restricted(
        8,
        "allowPrivilegeEscalation",
        "",
        "allowPrivilegeEscalation != false",
        |pod, _| {
            let found =
                containers(pod).filter(|container| container["securityContext"]["allowPrivilegeEscalation"] != false);
            named(found, "must set securityContext.allowPrivilegeEscalation=false")
        },
    )
    .on_linux(),
    restricted(
        22,
        "capabilities_restricted",
        "capabilities_baseline",
        "unrestricted capabilities",
        |pod, _| {
            let undropped = containers(pod).filter(|container| {
                let dropped = container["securityContext"]["capabilities"].list("drop");
                !dropped.iter().any(|capability| capability == "ALL")
            });
            let mut found = named(undropped, "must set securityContext.capabilities.drop=[\"ALL\"]");
            found.extend(added_capabilities(pod, &["NET_BIND_SERVICE"]));
            match found.is_empty() {
                true => found,
                false => vec![found.join("; ")],
            }
        },
    )
    .on_linux(),
    restricted(
        0,
        "restrictedVolumes",
        "hostPathVolumes",
        "restricted volume types",
        |pod, _| restricted_volumes(pod),
    ),
    restricted(0, "runAsNonRoot", "", "runAsNonRoot != true", |pod, _| {
        run_as_non_root(pod)
    }),
    restricted(23, "runAsUser", "", "runAsUser=0", |pod, _| {
        set_by(pod, |context| context["runAsUser"] == 0, "must not set runAsUser=0")
    }),
    restricted(
        19,
        "seccompProfile_restricted",
        "seccompProfile_baseline",
        "seccompProfile",
        |pod, _| seccomp(pod),
    )
    .on_linux(),
];

/// Every rule that the pod breaks, with what breaks it.
pub fn violations(standard: Standard, pod: &Value) -> Vec<String> {
    let found = broken(standard, pod).into_iter();
    found
        .map(|(reason, details)| format!("{reason} ({})", details.join(", ")))
        .collect()
}

/// The rules alone.
pub fn reasons(standard: Standard, pod: &Value) -> Vec<String> {
    broken(standard, pod)
        .into_iter()
        .map(|(reason, _)| reason.to_owned())
        .collect()
}

fn broken(standard: Standard, pod: &Value) -> Vec<(&'static str, Vec<String>)> {
    let applies = |check: &&Check| check.level <= standard.level && standard.since(check.since);
    let replaced: Vec<&str> = CHECKS.iter().filter(applies).map(|check| check.replaces).collect();
    let on_windows = pod["spec"]["os"].text("name") == "windows" && standard.since(25);
    let rows = CHECKS
        .iter()
        .filter(applies)
        .filter(|check| !replaced.contains(&check.id));
    rows.filter(|check| !(check.linux_only && on_windows))
        .map(|check| (check.reason, (check.find)(pod, standard)))
        .filter(|(_, details)| !details.is_empty())
        .collect()
}
