//! The pod security standards, one row each: what is forbidden, since when, and in which words.

use api::{Fields, Value};

use super::find::{
    BASELINE_CAPABILITIES, added_capabilities, app_armor, app_armor_reason, host_namespaces, host_paths, host_ports,
    host_process, probe_hosts, restricted_volumes, run_as_non_root, se_linux, seccomp, seccomp_annotations, sysctls,
    unconfined_seccomp, unmasked_proc,
};
use super::standard::{Level, Standard};
use super::words::{containers, named, set_by};

/// One rule of a standard.
struct Check {
    level: Level,
    /// The first minor version that has it.
    since: u32,
    /// The first minor version that does not have it any more.
    until: u32,
    /// Whether it leaves pods for Windows alone, from 1.25 on.
    linux_only: bool,
    /// Whether it leaves pods in a user namespace of their own alone, from 1.35 on.
    relaxed_in_user_namespace: bool,
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
        until: u32::MAX,
        linux_only: false,
        relaxed_in_user_namespace: false,
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
        until: u32::MAX,
        linux_only: false,
        relaxed_in_user_namespace: false,
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

    const fn until(mut self, minor: u32) -> Check {
        self.until = minor;
        self
    }

    const fn relaxed_in_user_namespace(mut self) -> Check {
        self.relaxed_in_user_namespace = true;
        self
    }

    fn is_of(&self, standard: Standard) -> bool {
        self.level <= standard.level && standard.since(self.since) && !standard.since(self.until)
    }

    /// What the standards leave out for the pod although they have the rule.
    fn is_relaxed_for(&self, pod: &Value, standard: Standard) -> bool {
        let on_windows = pod["spec"]["os"].text("name") == "windows";
        let in_user_namespace = pod["spec"]["hostUsers"] == false;
        self.linux_only && on_windows && standard.since(25)
            || self.relaxed_in_user_namespace && in_user_namespace && standard.since(35)
    }

    fn reason_for(&self, pod: &Value) -> &'static str {
        match self.id {
            "appArmorProfile" => app_armor_reason(pod),
            _ => self.reason,
        }
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
    baseline("procMount", "procMount", |pod, _| unmasked_proc(pod)).relaxed_in_user_namespace(),
    baseline("seLinuxOptions", "seLinuxOptions", se_linux),
    baseline("seccompProfile_baseline", "seccompProfile", |pod, _| {
        seccomp_annotations(pod)
    })
    .until(19),
    baseline("seccompProfile_baseline", "seccompProfile", |pod, _| {
        unconfined_seccomp(pod)
    })
    .from(19),
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
    restricted(35, "procMount_restricted", "procMount", "procMount", |pod, _| {
        unmasked_proc(pod)
    }),
    restricted(
        0,
        "restrictedVolumes",
        "hostPathVolumes",
        "restricted volume types",
        |pod, _| restricted_volumes(pod),
    ),
    restricted(0, "runAsNonRoot", "", "runAsNonRoot != true", |pod, _| {
        run_as_non_root(pod)
    })
    .relaxed_in_user_namespace(),
    restricted(23, "runAsUser", "", "runAsUser=0", |pod, _| {
        set_by(pod, |context| context["runAsUser"] == 0, "must not set runAsUser=0")
    })
    .relaxed_in_user_namespace(),
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
    let checks = || CHECKS.iter().filter(|check| check.is_of(standard));
    let replaced: Vec<&str> = checks().map(|check| check.replaces).collect();
    checks()
        .filter(|check| !replaced.contains(&check.id) && !check.is_relaxed_for(pod, standard))
        .map(|check| (check.reason_for(pod), (check.find)(pod, standard)))
        .filter(|(_, details)| !details.is_empty())
        .collect()
}
