//! Security contexts as the CRI takes them.

use std::path::Path;
use std::sync::OnceLock;

use cri::v1;

use crate::pod::{Container, Pod, Profile, SelinuxOptions};
use crate::user_namespaces::HostIds;

/// Why a pod or container cannot have the security context that it asks for, in upstream's words where it has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    #[error("container's runAsUser breaks non-root policy (pod: {pod:?}, container: {container})")]
    RunAsRoot { pod: String, container: String },
    #[error("container has runAsNonRoot and image will run as root (pod: {pod:?}, container: {container})")]
    ImageRunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \
         {pod:?}, container: {container})"
    )]
    UnverifiableUser {
        user: String,
        pod: String,
        container: String,
    },
    #[error("localhostProfile must be set if seccompProfile type is Localhost.")]
    NoSeccompProfile,
    #[error("localhostProfile {0:?} of the seccompProfile is outside of the node's directory of seccomp profiles")]
    SeccompProfileOutside(String),
    #[error("the pod has not been assigned a user namespace")]
    NoUserNamespace,
}

/// Who an image runs as by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUser {
    pub uid: Option<i64>,
    pub name: String,
}

/// What the container's processes may not see, or not change, of the host in `/proc` and `/sys`.
const MASKED_PATHS: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// The highest number of a processor; no kernel is built for more.
const MAX_PROCESSOR: u32 = 8191;

const READONLY_PATHS: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// `seccomp_root` is where the node keeps its seccomp profiles.
pub fn container(
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
    target_id: &str,
    host_ids: Option<HostIds>,
    seccomp_root: &Path,
) -> Result<v1::LinuxContainerSecurityContext, SecurityError> {
    let (own, pods) = (&container.security_context, &pod.spec.security_context);
    let run_as_user = own.run_as_user.or(pods.run_as_user);
    verify_non_root(pod, container, run_as_user, image_user)?;
    let hidden = own.proc_mount.as_deref() != Some("Unmasked") && !own.privileged;
    let paths = |paths: &[&str]| match hidden {
        true => paths.iter().map(|path| (*path).to_owned()).collect(),
        false => Vec::new(),
    };
    // Without a user of the pod's, the image's applies: by number if it has one, or else by name.
    let by_name = run_as_user.is_none() && image_user.uid.is_none();
    Ok(v1::LinuxContainerSecurityContext {
        capabilities: Some(v1::Capability {
            add_capabilities: own.capabilities.add.clone(),
            drop_capabilities: own.capabilities.drop.clone(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: own.privileged,
        namespace_options: Some(namespaces(pod, target_id, host_ids)?),
        selinux_options: own
            .se_linux_options
            .as_ref()
            .or(pods.se_linux_options.as_ref())
            .map(selinux),
        run_as_user: run_as_user.or(image_user.uid).map(int),
        run_as_username: if by_name {
            image_user.name.clone()
        } else {
            String::new()
        },
        run_as_group: own.run_as_group.or(pods.run_as_group).map(int),
        readonly_rootfs: own.read_only_root_filesystem,
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if hidden { masked_paths().to_vec() } else { Vec::new() },
        readonly_paths: paths(READONLY_PATHS),
        seccomp: Some(seccomp(
            own.seccomp_profile.as_ref().or(pods.seccomp_profile.as_ref()),
            own.privileged,
            seccomp_root,
        )?),
        apparmor: own
            .app_armor_profile
            .as_ref()
            .or(pods.app_armor_profile.as_ref())
            .map(profile),
        ..v1::LinuxContainerSecurityContext::default()
    })
}

pub fn sandbox(pod: &Pod, host_ids: Option<HostIds>) -> Result<v1::LinuxSandboxSecurityContext, SecurityError> {
    let pods = &pod.spec.security_context;
    // A sandbox must be privileged for a privileged container to be allowed in it.
    let privileged = pod
        .all_containers()
        .any(|(_, container)| container.security_context.privileged);
    Ok(v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod, "", host_ids)?),
        selinux_options: pods.se_linux_options.as_ref().map(selinux),
        run_as_user: pods.run_as_user.map(int),
        run_as_group: pods.run_as_group.filter(|_| pods.run_as_user.is_some()).map(int),
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        privileged,
        // The pause process is the runtime's own, so it gets the runtime's profile whatever the pod says.
        seccomp: Some(v1::SecurityProfile {
            profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
            localhost_ref: String::new(),
        }),
        ..v1::LinuxSandboxSecurityContext::default()
    })
}

/// `target_id` is the container whose processes an ephemeral container wants to see, `host_ids` what a pod with users
/// of its own was given.
fn namespaces(pod: &Pod, target_id: &str, host_ids: Option<HostIds>) -> Result<v1::NamespaceOption, SecurityError> {
    use v1::NamespaceMode::{Container, Node, Pod as Shared, Target};
    let spec = &pod.spec;
    let userns_options = match (spec.host_users, host_ids) {
        (Some(false), Some(ids)) => Some(ids.options()),
        // Never in the host's user namespace instead.
        (Some(false), None) => return Err(SecurityError::NoUserNamespace),
        _ => None,
    };
    let pid = match (spec.host_pid, spec.share_process_namespace, target_id) {
        (true, ..) => Node,
        (_, true, _) => Shared,
        (_, _, "") => Container,
        _ => Target,
    };
    let host_or_pod = |host: bool| if host { Node } else { Shared };
    Ok(v1::NamespaceOption {
        network: host_or_pod(spec.host_network).into(),
        pid: pid.into(),
        ipc: host_or_pod(spec.host_ipc).into(),
        target_id: target_id.to_owned(),
        userns_options,
    })
}

fn verify_non_root(
    pod: &Pod,
    container: &Container,
    user: Option<i64>,
    image: &ImageUser,
) -> Result<(), SecurityError> {
    let own = container.security_context.run_as_non_root;
    if own.or(pod.spec.security_context.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let (pod, container) = (pod.full_name(), container.name.clone());
    match (user, image.uid) {
        (Some(0), _) => Err(SecurityError::RunAsRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, Some(0)) => Err(SecurityError::ImageRunsAsRoot { pod, container }),
        (None, Some(_)) => Ok(()),
        (None, None) if image.name.is_empty() => Err(SecurityError::ImageRunsAsRoot { pod, container }),
        (None, None) => Err(SecurityError::UnverifiableUser {
            user: image.name.clone(),
            pod,
            container,
        }),
    }
}

fn groups(pod: &Pod) -> Vec<i64> {
    let context = &pod.spec.security_context;
    context
        .supplemental_groups
        .iter()
        .copied()
        .chain(context.fs_group)
        .collect()
}

fn groups_policy(pod: &Pod) -> i32 {
    match pod.spec.security_context.supplemental_groups_policy.as_deref() {
        Some("Strict") => v1::SupplementalGroupsPolicy::Strict.into(),
        _ => v1::SupplementalGroupsPolicy::Merge.into(),
    }
}

/// Without a profile a container is unconfined, as upstream's kubelet leaves it by default.
fn seccomp(wanted: Option<&Profile>, privileged: bool, root: &Path) -> Result<v1::SecurityProfile, SecurityError> {
    let unconfined = v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::Unconfined.into(),
        localhost_ref: String::new(),
    };
    let Some(wanted) = wanted.filter(|_| !privileged) else {
        return Ok(unconfined);
    };
    let mut profile = profile(wanted);
    if profile.profile_type() == v1::security_profile::ProfileType::Localhost {
        // The runtime is given a path; in the pod it is one below the node's directory of profiles.
        let file = Path::new(&profile.localhost_ref);
        let descends = |part: std::path::Component<'_>| matches!(part, std::path::Component::Normal(_));
        if profile.localhost_ref.is_empty() {
            return Err(SecurityError::NoSeccompProfile);
        }
        if !file.components().all(descends) {
            return Err(SecurityError::SeccompProfileOutside(profile.localhost_ref));
        }
        profile.localhost_ref = root.join(file).to_string_lossy().into_owned();
    }
    Ok(profile)
}

/// [`MASKED_PATHS`], and what tells of the temperature of each processor, where this machine has it.
fn masked_paths() -> &'static [String] {
    static PATHS: OnceLock<Vec<String>> = OnceLock::new();
    PATHS.get_or_init(|| {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        let throttles = processors(&possible).into_iter().map(|number| {
            // The runtime is not bothered with what this machine does not have.
            format!("/sys/devices/system/cpu/cpu{number}/thermal_throttle")
        });
        let throttles = throttles.filter(|path| Path::new(path).exists());
        MASKED_PATHS
            .iter()
            .map(|path| (*path).to_owned())
            .chain(throttles)
            .collect()
    })
}

/// The numbers in a list of the kernel's, such as `0-3,8`.
fn processors(list: &str) -> Vec<u32> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?.min(MAX_PROCESSOR))
    });
    ranges.flatten().collect()
}

fn profile(wanted: &Profile) -> v1::SecurityProfile {
    use v1::security_profile::ProfileType;
    let kind = match wanted.kind.as_str() {
        "RuntimeDefault" => ProfileType::RuntimeDefault,
        "Localhost" => ProfileType::Localhost,
        _ => ProfileType::Unconfined,
    };
    v1::SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: wanted.localhost_profile.clone().unwrap_or_default(),
    }
}

fn selinux(options: &SelinuxOptions) -> v1::SeLinuxOption {
    v1::SeLinuxOption {
        user: options.user.clone(),
        role: options.role.clone(),
        r#type: options.kind.clone(),
        level: options.level.clone(),
    }
}

fn int(value: i64) -> v1::Int64Value {
    v1::Int64Value { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(spec: &str, image: ImageUser) -> Result<v1::LinuxContainerSecurityContext, SecurityError> {
        let pod: Pod =
            serde_saphyr::from_str(&format!("metadata: {{name: p, namespace: n, uid: u}}\nspec: {spec}")).unwrap();
        let seccomp = Path::new("/node/seccomp");
        container(
            &pod,
            &pod.spec.containers[0],
            &image,
            "",
            Some(HostIds { first: 65536 }),
            seccomp,
        )
    }

    fn uid(uid: i64) -> ImageUser {
        ImageUser {
            uid: Some(uid),
            name: String::new(),
        }
    }

    #[test]
    fn the_containers_user_stands_before_the_pods_and_the_images() {
        let user = |spec: &str| context(spec, uid(7)).unwrap().run_as_user.unwrap().value;
        assert_eq!(user("{containers: [{name: a}]}"), 7);
        assert_eq!(user("{securityContext: {runAsUser: 5}, containers: [{name: a}]}"), 5);
        assert_eq!(
            user("{securityContext: {runAsUser: 5}, containers: [{name: a, securityContext: {runAsUser: 6}}]}"),
            6
        );
    }

    #[test]
    fn non_root_is_verified_against_the_image() {
        let spec = "{containers: [{name: a, securityContext: {runAsNonRoot: true}}]}";
        assert!(context(spec, uid(7)).is_ok());
        assert_eq!(
            context(spec, uid(0)).unwrap_err().to_string(),
            "container has runAsNonRoot and image will run as root (pod: \"p_n(u)\", container: a)"
        );
        let named = ImageUser {
            uid: None,
            name: "www".to_owned(),
        };
        assert_eq!(
            context(spec, named).unwrap_err().to_string(),
            "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root (pod: \
             \"p_n(u)\", container: a)"
        );
    }

    #[test]
    fn a_seccomp_profile_of_the_node_is_one_below_its_directory() {
        let with = |file: &str| {
            let profile = format!("{{type: Localhost, localhostProfile: {file:?}}}");
            context(
                &format!("{{containers: [{{name: a, securityContext: {{seccompProfile: {profile}}}}}]}}"),
                uid(0),
            )
        };
        let found = with("team/a.json").unwrap().seccomp.unwrap();
        assert_eq!(found.localhost_ref, "/node/seccomp/team/a.json");
        for outside in ["../../etc/shadow", "/etc/shadow", "a/../../b"] {
            let error = with(outside).unwrap_err();
            assert_eq!(error, SecurityError::SeccompProfileOutside(outside.to_owned()));
        }
        let error = with("").unwrap_err();
        assert_eq!(
            error.to_string(),
            "localhostProfile must be set if seccompProfile type is Localhost."
        );
    }

    #[test]
    fn only_a_pod_without_the_hosts_users_has_its_own() {
        let users = |spec: &str| {
            let namespaces = context(spec, uid(0)).unwrap().namespace_options.unwrap();
            namespaces.userns_options.map(|options| options.uids[0].host_id)
        };
        assert_eq!(users("{hostUsers: false, containers: [{name: a}]}"), Some(65536));
        assert_eq!(users("{hostUsers: true, containers: [{name: a}]}"), None);
        assert_eq!(users("{containers: [{name: a}]}"), None);
        let pod: Pod = serde_saphyr::from_str("spec: {hostUsers: false, containers: [{name: a}]}").unwrap();
        assert_eq!(sandbox(&pod, None).unwrap_err(), SecurityError::NoUserNamespace);
    }

    #[test]
    fn processors_are_counted_in_ranges() {
        assert_eq!(processors("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert!(processors("").is_empty());
        assert_eq!(processors("0-4294967295").len(), 8192);
    }

    #[test]
    fn privileged_containers_see_everything() {
        let plain = context("{containers: [{name: a}]}", uid(0)).unwrap();
        assert!(!plain.masked_paths.is_empty());
        let privileged = "{containers: [{name: a, securityContext: {privileged: true}}]}";
        let privileged = context(privileged, uid(0)).unwrap();
        assert!(privileged.privileged && privileged.masked_paths.is_empty());
    }
}
