//! The user namespace of a pod, and which of its volumes show its ids.

use cri::v1::{IdMapping, NamespaceMode, NamespaceOption, PodSandboxConfig};

use super::PlanError;
use crate::spec::{IdMappings, IdRange};

/// The user namespace that a sandbox asks for; none for the host's.
pub fn user_namespace(namespaces: &NamespaceOption) -> Result<Option<IdMappings>, PlanError> {
    let Some(options) = &namespaces.userns_options else {
        return Ok(None);
    };
    match options.mode() {
        NamespaceMode::Node => return Ok(None),
        NamespaceMode::Pod => {}
        other => {
            let mode = other.as_str_name();
            return Err(PlanError::Invalid(format!("unsupported user namespace mode {mode}")));
        }
    }
    for (kind, mode) in [
        ("network", namespaces.network()),
        ("process", namespaces.pid()),
        ("IPC", namespaces.ipc()),
    ] {
        if mode == NamespaceMode::Node {
            return Err(PlanError::Invalid(format!(
                "a pod with a user namespace cannot use the host's {kind} namespace"
            )));
        }
    }
    Ok(Some(IdMappings {
        uids: range("uid", &options.uids)?,
        gids: range("gid", &options.gids)?,
    }))
}

/// The only range of a mapping. Its first id is root's, which the host's root must not be.
fn range(kind: &str, mappings: &[IdMapping]) -> Result<IdRange, PlanError> {
    let invalid = |why: &str| PlanError::Invalid(format!("{kind} mapping of the user namespace {why}"));
    let [mapping] = mappings else {
        return Err(invalid(&format!("must have one range, not {}", mappings.len())));
    };
    if mapping.container_id != 0 {
        return Err(invalid("must begin with id 0 of the container"));
    }
    if mapping.host_id == 0 {
        return Err(invalid("must not have id 0 of the host"));
    }
    if mapping.length == 0 || mapping.host_id.checked_add(mapping.length).is_none() {
        return Err(invalid("has an invalid length"));
    }
    Ok(IdRange {
        container_id: mapping.container_id,
        host_id: mapping.host_id,
        length: mapping.length,
    })
}

/// Whether a volume is to show the ids of the pod's user namespace.
pub fn is_id_mapped(mount: &cri::v1::Mount, sandbox: &PodSandboxConfig) -> Result<bool, PlanError> {
    if mount.uid_mappings.is_empty() && mount.gid_mappings.is_empty() {
        return Ok(false);
    }
    let refused = |why: &str| {
        let path = &mount.container_path;
        Err(PlanError::Invalid(format!(
            "id mappings of the mount at {path:?} {why}"
        )))
    };
    let wanted = IdMappings {
        uids: range("uid", &mount.uid_mappings)?,
        gids: range("gid", &mount.gid_mappings)?,
    };
    let security = sandbox.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let namespaces = security.and_then(|security| security.namespace_options.as_ref());
    match namespaces.map(user_namespace).transpose()?.flatten() {
        None => refused("need a pod with a user namespace"),
        Some(pods) if pods != wanted => refused("are not those of the pod's user namespace"),
        Some(_) => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cri::v1::{LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount, UserNamespace};
    use expect_test::{Expect, expect};

    fn mapping(host_id: u32, length: u32) -> Vec<IdMapping> {
        vec![IdMapping {
            host_id,
            container_id: 0,
            length,
        }]
    }

    fn options(change: impl FnOnce(&mut NamespaceOption)) -> NamespaceOption {
        let mut options = NamespaceOption {
            userns_options: Some(UserNamespace {
                mode: NamespaceMode::Pod.into(),
                uids: mapping(65536, 65536),
                gids: mapping(131_072, 65536),
            }),
            ..Default::default()
        };
        change(&mut options);
        options
    }

    fn check_refused(change: impl FnOnce(&mut NamespaceOption), expected: Expect) {
        expected.assert_eq(&user_namespace(&options(change)).unwrap_err().to_string());
    }

    #[test]
    fn a_pod_may_have_users_of_its_own() {
        let mappings = user_namespace(&options(|_| {})).unwrap().unwrap();
        assert_eq!(mappings.uids.host_id_of(0), Some(65536));
        assert_eq!(mappings.gids.host_id_of(65535), Some(196_607));
        assert_eq!(mappings.uids.host_id_of(65536), None);
        let hosts = options(|options| options.userns_options.as_mut().unwrap().mode = NamespaceMode::Node.into());
        assert_eq!(user_namespace(&hosts), Ok(None));
        assert_eq!(user_namespace(&NamespaceOption::default()), Ok(None));
    }

    #[test]
    fn a_user_namespace_never_holds_the_hosts_root_or_namespaces() {
        let users = |options: &mut NamespaceOption, uids| options.userns_options.as_mut().unwrap().uids = uids;
        let why = expect!["uid mapping of the user namespace must not have id 0 of the host"];
        check_refused(|options| users(options, mapping(0, 65536)), why);
        let why = expect!["uid mapping of the user namespace must have one range, not 0"];
        check_refused(|options| users(options, Vec::new()), why);
        let why = expect!["uid mapping of the user namespace must have one range, not 2"];
        check_refused(|options| users(options, [mapping(1, 1), mapping(5, 1)].concat()), why);
        let why = expect!["uid mapping of the user namespace has an invalid length"];
        check_refused(|options| users(options, mapping(u32::MAX, 65536)), why);
        let why = expect!["a pod with a user namespace cannot use the host's network namespace"];
        check_refused(|options| options.network = NamespaceMode::Node.into(), why);
        let why = expect!["a pod with a user namespace cannot use the host's process namespace"];
        check_refused(|options| options.pid = NamespaceMode::Node.into(), why);
        let why = expect!["a pod with a user namespace cannot use the host's IPC namespace"];
        check_refused(|options| options.ipc = NamespaceMode::Node.into(), why);
    }

    #[test]
    fn volumes_have_the_ids_of_their_pod_or_the_hosts() {
        let sandbox = |namespaces: Option<NamespaceOption>| PodSandboxConfig {
            linux: Some(LinuxPodSandboxConfig {
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: namespaces,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let mount = |first: u32| Mount {
            container_path: "/data".into(),
            uid_mappings: mapping(first, 65536),
            gid_mappings: mapping(131_072, 65536),
            ..Default::default()
        };
        let pods = sandbox(Some(options(|_| {})));
        assert_eq!(is_id_mapped(&mount(65536), &pods), Ok(true));
        assert_eq!(is_id_mapped(&Mount::default(), &pods), Ok(false));
        let error = |found: Result<bool, PlanError>| found.unwrap_err().to_string();
        expect![[r#"id mappings of the mount at "/data" are not those of the pod's user namespace"#]]
            .assert_eq(&error(is_id_mapped(&mount(1), &pods)));
        expect![[r#"id mappings of the mount at "/data" need a pod with a user namespace"#]]
            .assert_eq(&error(is_id_mapped(&mount(65536), &sandbox(None))));
    }
}
