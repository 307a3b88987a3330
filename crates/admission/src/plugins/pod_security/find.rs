//! What in a pod breaks a rule: one function each.

use api::{Fields, Value};

use super::standard::Standard;
use super::words::{containers, contexts, counted, named, plural, quoted, quoted_once, set_by, setters, users, uses};

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

const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

fn is_bad_app_armor(profile: &str) -> bool {
    !matches!(profile, "RuntimeDefault" | "Localhost")
}

/// The annotations that name a forbidden profile, as `key="profile"`.
fn bad_app_armor_annotations(pod: &Value) -> Vec<String> {
    let annotations = pod["metadata"].entries("annotations");
    let bad = annotations.filter(|(key, value)| {
        let profile = value.as_str().unwrap_or_default();
        let allowed = matches!(profile, "" | "runtime/default") || profile.starts_with("localhost/");
        key.starts_with(APP_ARMOR_ANNOTATION) && !allowed
    });
    bad.map(|(key, value)| format!("{key}={value}")).collect()
}

pub fn app_armor(pod: &Value, _standard: Standard) -> Vec<String> {
    let is_bad =
        |context: &Value| context.has("appArmorProfile") && is_bad_app_armor(context["appArmorProfile"].text("type"));
    let mut setters = setters(pod, is_bad);
    let annotations = bad_app_armor_annotations(pod);
    if !annotations.is_empty() {
        setters.push(counted("annotation", &annotations));
    }
    if setters.is_empty() {
        return Vec::new();
    }
    // Upstream puts annotations in quotes without escaping their own.
    let values = bad_app_armor_types(pod).into_iter().chain(annotations);
    let values: Vec<String> = values.map(|value| format!("\"{value}\"")).collect();
    let who = setters.join(" and ");
    vec![format!(
        "{who} must not set AppArmor profile type to {}",
        values.join(", ")
    )]
}

fn bad_app_armor_types(pod: &Value) -> Vec<String> {
    let profiles = contexts(pod).filter(|context| context.has("appArmorProfile"));
    let mut bad: Vec<String> = profiles
        .map(|context| context["appArmorProfile"].text("type").to_owned())
        .filter(|profile| is_bad_app_armor(profile))
        .collect();
    bad.sort_unstable();
    bad.dedup();
    bad
}

/// In the plural when several profiles are forbidden.
pub fn app_armor_reason(pod: &Value) -> &'static str {
    match bad_app_armor_types(pod).len() + bad_app_armor_annotations(pod).len() {
        1 => "forbidden AppArmor profile",
        _ => "forbidden AppArmor profiles",
    }
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
    let setters = setters(pod, |context| bad(&context["seLinuxOptions"]));
    if setters.is_empty() {
        return Vec::new();
    }
    let options: Vec<&Value> = contexts(pod)
        .map(|context| &context["seLinuxOptions"])
        .filter(|options| bad(options))
        .collect();
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

const SECCOMP_POD_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER_ANNOTATION: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// What the standards before v1.19 looked at: annotations, for the field was not there yet.
pub fn seccomp_annotations(pod: &Value) -> Vec<String> {
    let keys = containers(pod)
        .map(|container| format!("{SECCOMP_CONTAINER_ANNOTATION}{}", container.text("name")))
        .chain([SECCOMP_POD_ANNOTATION.to_owned()]);
    let annotations = &pod["metadata"]["annotations"];
    let bad = keys.filter(|key| {
        let profile = annotations.text(key);
        let allowed = matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/");
        annotations.has(key) && !allowed
    });
    let mut found: Vec<String> = bad.map(|key| format!("{key}={:?}", annotations.text(&key))).collect();
    found.sort_unstable();
    found.dedup();
    match found.is_empty() {
        true => found,
        false => vec![format!(
            "forbidden {} {}",
            counted("annotation", &found),
            found.join(", ")
        )],
    }
}

fn is_bad_seccomp(context: &Value) -> bool {
    context.has("seccompProfile") && !matches!(context["seccompProfile"].text("type"), "RuntimeDefault" | "Localhost")
}

pub fn unconfined_seccomp(pod: &Value) -> Vec<String> {
    let bad = contexts(pod).filter(|context| is_bad_seccomp(context));
    let types = quoted_once(bad.map(|context| context["seccompProfile"].text("type")));
    let what = format!("must not set securityContext.seccompProfile.type to {types}");
    set_by(pod, is_bad_seccomp, &what)
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

pub fn unmasked_proc(pod: &Value) -> Vec<String> {
    let field = |container: &Value| container["securityContext"]["procMount"].clone();
    let bad: Vec<&Value> = containers(pod)
        .filter(|container| field(container).as_str().is_some_and(|mount| mount != "Default"))
        .collect();
    let types = quoted_once(
        bad.iter()
            .map(|container| container["securityContext"].text("procMount")),
    );
    let what = format!("must not set securityContext.procMount to {types}");
    named(bad.into_iter(), &what)
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
        let mut sources = sources.peekable();
        if sources.peek().is_none() {
            return (volume, vec!["unknown"]);
        }
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
    let field = |container: &Value| container["securityContext"]["runAsNonRoot"].clone();
    let is_bad = |context: &Value| context["runAsNonRoot"] == false;
    let found = set_by(pod, is_bad, "must not set securityContext.runAsNonRoot=false");
    if !found.is_empty() || *of_pod == true {
        return found;
    }
    let unset = containers(pod).filter(|container| field(container).is_null());
    let what = "must set securityContext.runAsNonRoot=true";
    named(unset, what)
        .into_iter()
        .map(|text| format!("pod or {text}"))
        .collect()
}
