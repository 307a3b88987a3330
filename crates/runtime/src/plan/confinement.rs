//! What confines a container's processes: capabilities, seccomp, AppArmor.
//!
//! A profile that was asked for and cannot be applied refuses the container; nothing runs with less than it asked for.

use cri::v1::{
    ContainerConfig, LinuxContainerSecurityContext, SeLinuxOption, SecurityProfile, security_profile::ProfileType,
};

use super::{ContainerInput, PlanError};
use crate::spec::{Capabilities, Seccomp};
use crate::{apparmor, capability, seccomp};

/// The capabilities of a container.
pub fn capabilities(security: &LinuxContainerSecurityContext) -> Result<Capabilities, PlanError> {
    if security.privileged {
        return Ok(Capabilities {
            held: capability::all(),
            ambient: 0,
        });
    }
    let asked = security.capabilities.clone().unwrap_or_default();
    let mut ambient = 0;
    for name in &asked.add_ambient_capabilities {
        ambient |= capability::mask(name)?;
    }
    let held = capability::held(&asked.add_capabilities, &asked.drop_capabilities)? | ambient;
    Ok(Capabilities { held, ambient })
}

/// The seccomp profile of a container that holds the given capabilities.
pub fn seccomp(
    input: &ContainerInput<'_>,
    security: &LinuxContainerSecurityContext,
    held: u64,
) -> Result<Seccomp, PlanError> {
    let profile = security.seccomp.as_ref();
    match profile.map(SecurityProfile::profile_type) {
        _ if security.privileged => Ok(Seccomp::Unconfined),
        None | Some(ProfileType::Unconfined) => Ok(Seccomp::Unconfined),
        Some(ProfileType::RuntimeDefault) => Ok(Seccomp::RuntimeDefault),
        Some(ProfileType::Localhost) => {
            let conditions = seccomp::Conditions {
                held,
                kernel: input.kernel,
            };
            let path = profile.map_or("", |profile| profile.localhost_ref.as_str());
            let invalid = |error: &dyn std::fmt::Display| {
                PlanError::Invalid(format!("cannot load seccomp profile {path:?}: {error}"))
            };
            let profile = seccomp::parse(input.seccomp_profile, conditions).map_err(|error| invalid(&error))?;
            // What the kernel would not take is refused here, where the reason still reaches the pod's status.
            seccomp::check(&profile).map_err(|error| invalid(&error))?;
            Ok(Seccomp::Localhost(Box::new(profile)))
        }
    }
}

/// The file of the seccomp profile that a container asks for.
pub fn seccomp_file(config: &ContainerConfig) -> Option<&str> {
    let security = config.linux.as_ref()?.security_context.as_ref()?;
    let profile = security.seccomp.as_ref()?;
    let wanted = profile.profile_type() == ProfileType::Localhost && !security.privileged;
    // Older kubelets put a word before the path.
    wanted.then(|| profile.localhost_ref.trim_start_matches("localhost/"))
}

/// What the host has of AppArmor, as far as one container is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAppArmor {
    Absent,
    /// The kernel has it. Where the default profile cannot be loaded, only those who ask for it by name go without.
    Enabled {
        default_loaded: bool,
        /// Whether the profile that the container names is loaded.
        named_loaded: bool,
    },
}

/// The AppArmor profile of a container. One that asks for none gets the default where there is one.
pub fn apparmor(host: HostAppArmor, security: &LinuxContainerSecurityContext) -> Result<Option<String>, PlanError> {
    let wanted = security.apparmor.as_ref();
    let kind = wanted.map(SecurityProfile::profile_type);
    let (default_loaded, named_loaded) = match (host, kind) {
        (_, Some(ProfileType::Unconfined)) | (HostAppArmor::Absent, None) => return Ok(None),
        (HostAppArmor::Absent, Some(_)) => return Err(PlanError::Invalid("apparmor is not supported".to_owned())),
        (
            HostAppArmor::Enabled {
                default_loaded,
                named_loaded,
            },
            _,
        ) => (default_loaded, named_loaded),
    };
    match kind {
        Some(ProfileType::Localhost) => {
            let name = apparmor_profile(security).unwrap_or_default();
            match named_loaded && apparmor::is_name(name) {
                true => Ok(Some(name.to_owned())),
                false => Err(PlanError::Invalid(format!("apparmor profile not found {name}"))),
            }
        }
        _ if security.privileged => Ok(None),
        _ if default_loaded => Ok(Some(apparmor::DEFAULT_PROFILE.to_owned())),
        None => Ok(None),
        Some(_) => Err(PlanError::Invalid(
            "the default apparmor profile is not loaded: install apparmor_parser on the node and restart it".to_owned(),
        )),
    }
}

/// Refuses a container with an SELinux label where it would mean something: this runtime sets none. On a kernel without
/// SELinux a label means nothing under any runtime.
pub fn check_selinux(enabled: bool, security: &LinuxContainerSecurityContext) -> Result<(), PlanError> {
    let given = |label: &SeLinuxOption| *label != SeLinuxOption::default();
    match enabled && security.selinux_options.as_ref().is_some_and(given) {
        true => Err(super::unsupported(
            "SELinux labels (seLinuxOptions), which this node's kernel enforces",
        )),
        false => Ok(()),
    }
}

/// The name of the AppArmor profile that a container asks for.
pub fn apparmor_profile(security: &LinuxContainerSecurityContext) -> Option<&str> {
    let profile = security.apparmor.as_ref()?;
    // Older kubelets put a word before the name.
    let name = profile.localhost_ref.trim_start_matches("localhost/");
    (profile.profile_type() == ProfileType::Localhost).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    fn check_apparmor(
        host: HostAppArmor,
        kind: Option<ProfileType>,
        privileged: bool,
        expected: Result<Option<&str>, &str>,
    ) {
        let security = LinuxContainerSecurityContext {
            apparmor: kind.map(|kind| SecurityProfile {
                profile_type: kind.into(),
                localhost_ref: if kind == ProfileType::Localhost {
                    "web".into()
                } else {
                    String::new()
                },
            }),
            privileged,
            ..Default::default()
        };
        let planned = apparmor(host, &security).map_err(|error| error.to_string());
        assert_eq!(
            planned,
            expected.map(|name| name.map(str::to_owned)).map_err(str::to_owned)
        );
    }

    #[test]
    fn apparmor_profiles_are_applied_or_the_container_is_refused() {
        use ProfileType::{Localhost, RuntimeDefault, Unconfined};
        let enabled = |default_loaded: bool, named_loaded: bool| HostAppArmor::Enabled {
            default_loaded,
            named_loaded,
        };
        let absent = HostAppArmor::Absent;
        check_apparmor(absent, None, false, Ok(None));
        check_apparmor(absent, Some(Unconfined), false, Ok(None));
        check_apparmor(absent, Some(RuntimeDefault), false, Err("apparmor is not supported"));
        check_apparmor(absent, Some(Localhost), false, Err("apparmor is not supported"));
        let default = Ok(Some(crate::apparmor::DEFAULT_PROFILE));
        check_apparmor(enabled(true, false), None, false, default);
        check_apparmor(enabled(true, false), Some(RuntimeDefault), false, default);
        check_apparmor(enabled(true, false), Some(RuntimeDefault), true, Ok(None));
        check_apparmor(enabled(true, true), Some(Unconfined), false, Ok(None));
        check_apparmor(enabled(true, true), Some(Localhost), false, Ok(Some("web")));
        // A profile that is asked for by name also holds a privileged container.
        check_apparmor(enabled(true, true), Some(Localhost), true, Ok(Some("web")));
        check_apparmor(
            enabled(true, false),
            Some(Localhost),
            false,
            Err("apparmor profile not found web"),
        );
        check_apparmor(enabled(false, false), None, false, Ok(None));
        let missing = "the default apparmor profile is not loaded: install apparmor_parser on the node and restart it";
        check_apparmor(enabled(false, false), Some(RuntimeDefault), false, Err(missing));
    }
}
