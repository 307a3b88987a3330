//! The pod security standards, one row each: what is forbidden, since when, and in which words.

use api::{Fields, Value};

use super::standard::{Level, Standard};

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
        let mut found = Vec::new();
        if pod["spec"]["securityContext"]["runAsUser"] == 0 {
            found.push("pod must not set runAsUser=0".to_owned());
        }
        let roots = containers(pod).filter(|container| container["securityContext"]["runAsUser"] == 0);
        found.extend(named(roots, "must not set runAsUser=0"));
        found
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

const BASELINE_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that are safe, and the version that said so.
const SAFE_SYSCTLS: &[(&str, u32)] = &[
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

const RESTRICTED_VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().flat_map(|list| pod["spec"].list(list))
}

/// `container "a" must …` or `containers "a", "b" must …`.
fn named<'a>(found: impl Iterator<Item = &'a Value>, what: &str) -> Vec<String> {
    let names: Vec<&str> = found.map(|container| container.text("name")).collect();
    match names.is_empty() {
        true => Vec::new(),
        false => vec![format!("{} {what}", plural("container", &names))],
    }
}

fn plural(noun: &str, names: &[&str]) -> String {
    let s = if names.len() == 1 { "" } else { "s" };
    format!("{noun}{s} {}", quoted(names))
}

fn quoted(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(", ")
}

fn app_armor(pod: &Value, _standard: Standard) -> Vec<String> {
    let is_bad = |context: &Value| context["appArmorProfile"].text("type") == "Unconfined";
    let mut found = Vec::new();
    if is_bad(&pod["spec"]["securityContext"]) {
        found.push("pod must not set AppArmor profile type to \"Unconfined\"".to_owned());
    }
    let bad = containers(pod).filter(|container| is_bad(&container["securityContext"]));
    found.extend(named(bad, "must not set AppArmor profile type to \"Unconfined\""));
    let annotations = pod["metadata"].entries("annotations");
    let bad = annotations.filter(|(key, value)| {
        let profile = value.as_str().unwrap_or_default();
        let allowed = matches!(profile, "" | "runtime/default") || profile.starts_with("localhost/");
        key.starts_with("container.apparmor.security.beta.kubernetes.io/") && !allowed
    });
    found.extend(bad.map(|(key, value)| format!("{key}={value}")));
    found
}

fn added_capabilities(pod: &Value, allowed: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    let mut capabilities: Vec<&str> = Vec::new();
    for container in containers(pod) {
        let added = container["securityContext"]["capabilities"]
            .list("add")
            .iter()
            .filter_map(Value::as_str);
        let bad: Vec<&str> = added.filter(|capability| !allowed.contains(capability)).collect();
        if !bad.is_empty() {
            names.push(container.text("name"));
            capabilities.extend(bad);
        }
    }
    capabilities.sort_unstable();
    capabilities.dedup();
    match names.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "{} must not include {} in securityContext.capabilities.add",
            plural("container", &names),
            quoted(&capabilities)
        )],
    }
}

fn host_namespaces(pod: &Value) -> Vec<String> {
    let used = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod["spec"].flag(field));
    used.map(|field| format!("{field}=true")).collect()
}

fn host_paths(pod: &Value) -> Vec<String> {
    let found = pod["spec"]
        .list("volumes")
        .iter()
        .filter(|volume| volume.has("hostPath"));
    let names: Vec<&str> = found.map(|volume| volume.text("name")).collect();
    match names.is_empty() {
        true => Vec::new(),
        false => vec![plural("volume", &names)],
    }
}

fn host_ports(pod: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let mut ports: Vec<i64> = Vec::new();
    for container in containers(pod) {
        let used = container.list("ports").iter().map(|port| port.number("hostPort"));
        let used: Vec<i64> = used.filter(|port| *port != 0).collect();
        if !used.is_empty() {
            names.push(container.text("name"));
            ports.extend(used);
        }
    }
    ports.sort_unstable();
    ports.dedup();
    if names.is_empty() {
        return Vec::new();
    }
    let listed: Vec<String> = ports.iter().map(i64::to_string).collect();
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let noun = if ports.len() == 1 { "hostPort" } else { "hostPorts" };
    vec![format!(
        "{} {verb} {noun} {}",
        plural("container", &names),
        listed.join(", ")
    )]
}

fn probe_hosts(pod: &Value) -> Vec<String> {
    let handlers = [
        ("livenessProbe", ""),
        ("readinessProbe", ""),
        ("startupProbe", ""),
        ("lifecycle", "postStart"),
        ("lifecycle", "preStop"),
    ];
    let mut found = Vec::new();
    for container in containers(pod) {
        for (field, inner) in handlers {
            let handler = if inner.is_empty() {
                &container[field]
            } else {
                &container[field][inner]
            };
            let hosts = ["httpGet", "tcpSocket"]
                .into_iter()
                .map(|action| handler[action].text("host"));
            found.extend(
                hosts
                    .filter(|host| !host.is_empty())
                    .map(|host| (container.text("name"), host)),
            );
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    let mut names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    let mut hosts: Vec<&str> = found.iter().map(|(_, host)| *host).collect();
    names.dedup();
    hosts.sort_unstable();
    hosts.dedup();
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let noun = if hosts.len() == 1 { "host" } else { "hosts" };
    vec![format!(
        "{} {verb} probe or lifecycle {noun} {}",
        plural("container", &names),
        quoted(&hosts)
    )]
}

fn se_linux(pod: &Value, standard: Standard) -> Vec<String> {
    let allowed = |kind: &str| {
        matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || kind == "container_engine_t" && standard.since(31)
    };
    let bad = |options: &Value| {
        let kind = options.text("type");
        !allowed(kind) || !options.text("user").is_empty() || !options.text("role").is_empty()
    };
    let contexts = std::iter::once(&pod["spec"]["securityContext"]["seLinuxOptions"])
        .chain(containers(pod).map(|container| &container["securityContext"]["seLinuxOptions"]));
    let options: Vec<&Value> = contexts.filter(|options| bad(options)).collect();
    if options.is_empty() {
        return Vec::new();
    }
    let mut setters = Vec::new();
    if bad(&pod["spec"]["securityContext"]["seLinuxOptions"]) {
        setters.push("pod".to_owned());
    }
    let names: Vec<&str> = containers(pod)
        .filter(|container| bad(&container["securityContext"]["seLinuxOptions"]))
        .map(|container| container.text("name"))
        .collect();
    if !names.is_empty() {
        setters.push(plural("container", &names));
    }
    let mut kinds: Vec<&str> = options
        .iter()
        .map(|options| options.text("type"))
        .filter(|kind| !allowed(kind))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut data = Vec::new();
    if !kinds.is_empty() {
        let s = if kinds.len() == 1 { "" } else { "s" };
        data.push(format!("type{s} {}", quoted(&kinds)));
    }
    for field in ["user", "role"] {
        if options.iter().any(|options| !options.text(field).is_empty()) {
            data.push(format!("{field} may not be set"));
        }
    }
    vec![format!(
        "{} set forbidden securityContext.seLinuxOptions: {}",
        setters.join(" and "),
        data.join("; ")
    )]
}

fn unconfined_seccomp(pod: &Value) -> Vec<String> {
    let is_bad = |context: &Value| {
        !matches!(
            context["seccompProfile"].text("type"),
            "" | "RuntimeDefault" | "Localhost"
        )
    };
    let what = "must not set securityContext.seccompProfile.type to \"Unconfined\"";
    let mut found = Vec::new();
    if is_bad(&pod["spec"]["securityContext"]) {
        found.push(format!("pod {what}"));
    }
    found.extend(named(
        containers(pod).filter(|container| is_bad(&container["securityContext"])),
        what,
    ));
    found
}

fn seccomp(pod: &Value) -> Vec<String> {
    let unconfined = unconfined_seccomp(pod);
    if !unconfined.is_empty() {
        return unconfined;
    }
    if pod["spec"]["securityContext"].has("seccompProfile") {
        return Vec::new();
    }
    let unset = containers(pod).filter(|container| !container["securityContext"].has("seccompProfile"));
    let what = "must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"";
    named(unset, what)
        .into_iter()
        .map(|text| format!("pod or {text}"))
        .collect()
}

fn sysctls(pod: &Value, standard: Standard) -> Vec<String> {
    let used = pod["spec"]["securityContext"]
        .list("sysctls")
        .iter()
        .map(|sysctl| sysctl.text("name"));
    let safe = |name: &str| {
        SAFE_SYSCTLS
            .iter()
            .any(|(known, since)| *known == name && standard.since(*since))
    };
    used.filter(|name| !safe(name)).map(str::to_owned).collect()
}

fn host_process(pod: &Value) -> Vec<String> {
    let is_bad = |context: &Value| context["windowsOptions"].flag("hostProcess");
    let what = "must not set securityContext.windowsOptions.hostProcess=true";
    let mut found = Vec::new();
    if is_bad(&pod["spec"]["securityContext"]) {
        found.push(format!("pod {what}"));
    }
    found.extend(named(
        containers(pod).filter(|container| is_bad(&container["securityContext"])),
        what,
    ));
    found
}

fn restricted_volumes(pod: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let mut kinds: Vec<&str> = Vec::new();
    for volume in pod["spec"].list("volumes") {
        let source = volume
            .as_object()
            .into_iter()
            .flatten()
            .map(|(field, _)| field.as_str());
        let bad: Vec<&str> = source
            .filter(|field| *field != "name" && !RESTRICTED_VOLUMES.contains(field))
            .collect();
        if !bad.is_empty() {
            names.push(volume.text("name"));
            kinds.extend(bad);
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    if names.is_empty() {
        return Vec::new();
    }
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let s = if kinds.len() == 1 { "" } else { "s" };
    vec![format!(
        "{} {verb} restricted volume type{s} {}",
        plural("volume", &names),
        quoted(&kinds)
    )]
}

fn run_as_non_root(pod: &Value) -> Vec<String> {
    let of_pod = &pod["spec"]["securityContext"]["runAsNonRoot"];
    let of = |container: &Value| container["securityContext"]["runAsNonRoot"].clone();
    let refused = containers(pod).filter(|container| of(container) == false);
    let mut found = named(refused, "must not set securityContext.runAsNonRoot=false");
    if *of_pod == false && containers(pod).any(|container| of(container).is_null()) {
        found.insert(0, "pod must not set securityContext.runAsNonRoot=false".to_owned());
    }
    if !found.is_empty() || *of_pod == true {
        return found;
    }
    let unset = containers(pod).filter(|container| of(container).is_null());
    let what = "must set securityContext.runAsNonRoot=true";
    named(unset, what)
        .into_iter()
        .map(|text| format!("pod or {text}"))
        .collect()
}
