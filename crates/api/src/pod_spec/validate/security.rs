//! Users, groups and profiles that processes run with.

use std::collections::HashSet;

use super::mount::validate_descending;
use crate::{Fields, Path, Problems, Value};

pub fn validate_pod_context(spec: &Value, path: &Path, problems: &mut Problems) {
    let context = &spec["securityContext"];
    let path = path.child("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        validate_id(&context[field], &path, field, problems);
    }
    for (index, group) in context.list("supplementalGroups").iter().enumerate() {
        validate_id(group, &path.child("supplementalGroups").index(index), "", problems);
    }
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        problems.invalid(&path, "shareProcessNamespace", true, detail);
    }
    problems.optional_one_of(context, &path, "fsGroupChangePolicy", &["Always", "OnRootMismatch"]);
    problems.optional_one_of(context, &path, "supplementalGroupsPolicy", &["Merge", "Strict"]);
    validate_profiles(context, &path, problems);
    problems.optional_one_of(context, &path, "seLinuxChangePolicy", &["Recursive"]);
    validate_sysctls(spec, &path, problems);
    validate_windows(&context["windowsOptions"], &path.child("windowsOptions"), problems);
}

/// Names of accounts on Windows.
fn validate_windows(options: &Value, path: &Path, problems: &mut Problems) {
    if let Some(name) = options["gmsaCredentialSpecName"].as_str() {
        let found = crate::names::dns1123_subdomain(name, false);
        problems.form(path, "gmsaCredentialSpecName", name, found);
    }
    let field = "runAsUserName";
    match options[field].as_str() {
        Some("") => problems.invalid(path, field, "", "runAsUserName cannot be an empty string"),
        Some(name) if name.matches('\\').count() > 1 => {
            let detail = "runAsUserName cannot contain more than one backslash";
            problems.invalid(path, field, name, detail);
        }
        _ => {}
    }
}

/// Processes of a Windows host: all containers of a pod are that or none, and they use its network.
pub fn validate_host_process(spec: &Value, path: &Path, problems: &mut Problems) {
    let own = |object: &Value| object["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
    let of_pod = own(spec);
    let (mut all, mut on_host) = (0, 0);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in spec.list(list).iter().enumerate() {
            all += 1;
            let of_container = own(container);
            if let (Some(pod), Some(own)) = (of_pod, of_container)
                && pod != own
            {
                let path = path
                    .child(list)
                    .index(index)
                    .child("securityContext")
                    .child("windowsOptions");
                let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
                problems.invalid(&path, "hostProcess", own, detail);
            }
            on_host += usize::from(of_container == Some(true) || of_pod == Some(true));
        }
    }
    if on_host == 0 {
        return;
    }
    if on_host != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        problems.invalid(path, "", "", detail);
    }
    if !spec.flag("hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        problems.invalid(path, "hostNetwork", false, detail);
    }
}

pub fn validate_container_context(container: &Value, path: &Path, problems: &mut Problems) {
    let context = &container["securityContext"];
    let path = path.child("securityContext");
    for field in ["runAsUser", "runAsGroup"] {
        validate_id(&context[field], &path, field, problems);
    }
    problems.optional_one_of(context, &path, "procMount", &["Default", "Unmasked"]);
    validate_profiles(context, &path, problems);
    validate_windows(&context["windowsOptions"], &path.child("windowsOptions"), problems);
    if context["allowPrivilegeEscalation"] != false {
        return;
    }
    if context.flag("privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        problems.invalid(&path, "", context.clone(), detail);
    }
    if context["capabilities"]
        .list("add")
        .iter()
        .any(|capability| capability == "CAP_SYS_ADMIN")
    {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        problems.invalid(&path, "", context.clone(), detail);
    }
}

fn validate_id(id: &Value, path: &Path, field: &str, problems: &mut Problems) {
    if let Some(number) = id.as_i64()
        && !(0..=i64::from(i32::MAX)).contains(&number)
    {
        problems.invalid(path, field, number, "must be between 0 and 2147483647, inclusive");
    }
}

fn validate_profiles(context: &Value, path: &Path, problems: &mut Problems) {
    for (field, title) in [("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")] {
        let profile = &context[field];
        if !profile.is_object() {
            continue;
        }
        let path = path.child(field);
        let types = ["Localhost", "RuntimeDefault", "Unconfined"];
        if profile.text("type").is_empty() {
            problems.required(&path, "type", &format!("type is required when {field} is set"));
        } else {
            problems.optional_one_of(profile, &path, "type", &types);
        }
        let file = &profile["localhostProfile"];
        match (profile.text("type"), file.as_str()) {
            ("Localhost", None) => {
                let detail = format!("must be set when {title} type is Localhost");
                problems.required(&path, "localhostProfile", &detail);
            }
            ("Localhost", Some(file)) if field == "seccompProfile" => {
                validate_descending(file, &path, "localhostProfile", problems);
            }
            ("Localhost", Some(file)) if file.trim() != file => {
                problems.invalid(&path, "localhostProfile", file, "must not be padded with whitespace");
            }
            ("Localhost", Some(_)) | (_, None) => {}
            (_, Some(_)) => {
                let detail = format!("can only be set when {title} type is Localhost");
                problems.invalid(&path, "localhostProfile", profile.clone(), detail);
            }
        }
    }
}

const SYSCTL_BYTES: usize = 253;
const SYSCTL_REGEX: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// What [`SYSCTL_REGEX`] says: words of small letters, digits, `-` and `_`, joined by dots or slashes.
fn is_sysctl_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = [word.bytes().next(), word.bytes().last()];
        ends.iter().all(|byte| byte.is_some_and(inner)) && word.bytes().all(|byte| inner(byte) || b"-_".contains(&byte))
    };
    name.len() <= SYSCTL_BYTES && name.split(['.', '/']).all(is_word)
}

/// Kernel settings of the host are not for pods that share its namespaces.
fn validate_sysctls(spec: &Value, path: &Path, problems: &mut Problems) {
    let mut seen = HashSet::new();
    for (index, sysctl) in spec["securityContext"].list("sysctls").iter().enumerate() {
        let path = path.child("sysctls").index(index);
        let name = sysctl.text("name");
        problems.needs(sysctl, &path, "name");
        if !name.is_empty() && !is_sysctl_name(name) {
            let detail = format!("must have at most {SYSCTL_BYTES} characters and match regex {SYSCTL_REGEX}");
            problems.invalid(&path, "name", name, detail);
        }
        if !seen.insert(name) {
            problems.duplicate(&path, "name", name);
        }
        let ipc = name.starts_with("kernel.shm") || name.starts_with("kernel.msg") || name == "kernel.sem";
        if name.starts_with("net.") && spec.flag("hostNetwork") {
            problems.invalid(&path, "name", name, "may not be specified when 'hostNetwork' is true");
        }
        if (ipc || name.starts_with("fs.mqueue.")) && spec.flag("hostIPC") {
            problems.invalid(&path, "name", name, "may not be specified when 'hostIPC' is true");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernel_settings() {
        for good in ["kernel.shmmax", "net/ipv4/ip_forward", "safe-and-unsafe", "a.b_c.d"] {
            assert!(is_sysctl_name(good), "{good}");
        }
        for bad in ["foo-", "bar..", "", "A.b", ".a", "_a"] {
            assert!(!is_sysctl_name(bad), "{bad}");
        }
    }
}
