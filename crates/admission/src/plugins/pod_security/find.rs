//! What in a pod breaks a rule: one function each.

use api::{Fields, Value};

use super::standard::Standard;
use super::words::{containers, counted, named, plural, quoted, set_by, users, uses};

pub const BASELINE_CAPABILITIES: &[&str] = &[
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

pub fn app_armor(pod: &Value, _standard: Standard) -> Vec<String> {
    let is_bad = |context: &Value| context["appArmorProfile"].text("type") == "Unconfined";
    let mut found = set_by(pod, is_bad, "must not set AppArmor profile type to \"Unconfined\"");
    let annotations = pod["metadata"].entries("annotations");
    let bad = annotations.filter(|(key, value)| {
        let profile = value.as_str().unwrap_or_default();
        let allowed = matches!(profile, "" | "runtime/default") || profile.starts_with("localhost/");
        key.starts_with("container.apparmor.security.beta.kubernetes.io/") && !allowed
    });
    found.extend(bad.map(|(key, value)| format!("{key}={value}")));
    found
}

pub fn added_capabilities(pod: &Value, allowed: &[&str]) -> Vec<String> {
    let added = containers(pod).map(|container| {
        let added = container["securityContext"]["capabilities"].list("add").iter();
        let bad = added
            .filter_map(Value::as_str)
            .filter(|capability| !allowed.contains(capability));
        (container, bad.collect())
    });
    let found = users(added).map(|(names, capabilities): (_, Vec<&str>)| {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            plural("container", &names),
            quoted(&capabilities)
        )
    });
    found.into_iter().collect()
}

pub fn host_namespaces(pod: &Value) -> Vec<String> {
    let used = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod["spec"].flag(field));
    used.map(|field| format!("{field}=true")).collect()
}

pub fn host_paths(pod: &Value) -> Vec<String> {
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

pub fn host_ports(pod: &Value) -> Vec<String> {
    let used = containers(pod).map(|container| {
        let ports = container.list("ports").iter().map(|port| port.number("hostPort"));
        (container, ports.filter(|port| *port != 0).collect())
    });
    let found = users(used).map(|(names, ports): (_, Vec<i64>)| {
        let listed: Vec<String> = ports.iter().map(i64::to_string).collect();
        format!(
            "{} {} {} {}",
            plural("container", &names),
            uses(&names),
            counted("hostPort", &ports),
            listed.join(", ")
        )
    });
    found.into_iter().collect()
}

pub fn probe_hosts(pod: &Value) -> Vec<String> {
    let used = containers(pod).map(|container| {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
        let hooks = ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]);
        let handlers = probes.into_iter().chain(hooks);
        let hosts = handlers.flat_map(|handler| ["httpGet", "tcpSocket"].map(|action| handler[action].text("host")));
        (container, hosts.filter(|host| !host.is_empty()).collect())
    });
    let found = users(used).map(|(names, hosts): (_, Vec<&str>)| {
        format!(
            "{} {} probe or lifecycle {} {}",
            plural("container", &names),
            uses(&names),
            counted("host", &hosts),
            quoted(&hosts)
        )
    });
    found.into_iter().collect()
}

pub fn se_linux(pod: &Value, standard: Standard) -> Vec<String> {
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
        data.push(plural("type", &kinds));
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

pub fn unconfined_seccomp(pod: &Value) -> Vec<String> {
    let is_bad = |context: &Value| {
        !matches!(
            context["seccompProfile"].text("type"),
            "" | "RuntimeDefault" | "Localhost"
        )
    };
    let what = "must not set securityContext.seccompProfile.type to \"Unconfined\"";
    set_by(pod, is_bad, what)
}

pub fn seccomp(pod: &Value) -> Vec<String> {
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

pub fn sysctls(pod: &Value, standard: Standard) -> Vec<String> {
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

pub fn host_process(pod: &Value) -> Vec<String> {
    let is_bad = |context: &Value| context["windowsOptions"].flag("hostProcess");
    set_by(
        pod,
        is_bad,
        "must not set securityContext.windowsOptions.hostProcess=true",
    )
}

pub fn restricted_volumes(pod: &Value) -> Vec<String> {
    let used = pod["spec"].list("volumes").iter().map(|volume| {
        let fields = volume.as_object().into_iter().flatten();
        let sources = fields.map(|(field, _)| field.as_str()).filter(|field| *field != "name");
        let bad = sources.filter(|source| !RESTRICTED_VOLUMES.contains(source));
        (volume, bad.collect())
    });
    let found = users(used).map(|(names, kinds): (_, Vec<&str>)| {
        format!(
            "{} {} restricted volume {} {}",
            plural("volume", &names),
            uses(&names),
            counted("type", &kinds),
            quoted(&kinds)
        )
    });
    found.into_iter().collect()
}

pub fn run_as_non_root(pod: &Value) -> Vec<String> {
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
