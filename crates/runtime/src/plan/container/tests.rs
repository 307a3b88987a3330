use super::*;
use crate::capability;
use crate::plan::seccomp_file;
use crate::spec::{Capabilities, Seccomp};
use cri::v1::{Capability, KeyValue, LinuxContainerConfig};
use cri::v1::{SecurityProfile, security_profile::ProfileType};
use expect_test::{Expect, expect};

fn plan(config: &ContainerConfig, image: &RunConfig) -> Result<ContainerSpec, PlanError> {
    container(&ContainerInput {
        id: "c1",
        config,
        sandbox: &PodSandboxConfig {
            hostname: "web-0".into(),
            log_directory: "/var/log/pods/p".into(),
            ..Default::default()
        },
        dir: Path::new("/state/containers/c1"),
        layers_dir: "/state/layers".into(),
        layers: vec!["upper".into(), "lower".into()],
        image,
        passwd: "root:x:0:0:root:/root:/bin/sh\n",
        group: "",
        volume_images: &BTreeMap::from([("files".to_owned(), vec!["top".to_owned(), "base".to_owned()])]),
        seccomp_profile: br#"{"defaultAction": "SCMP_ACT_LOG"}"#,
        kernel: (6, 1),
        apparmor: HostAppArmor::Absent,
        selinux_enabled: false,
        cgroup_parent: Path::new("/kubepods/pod1"),
    })
}

fn image() -> RunConfig {
    RunConfig {
        entrypoint: vec!["/entry".into()],
        cmd: vec!["serve".into()],
        env: vec!["PATH=/bin".into(), "MODE=image".into()],
        working_dir: "/srv".into(),
        ..Default::default()
    }
}

fn with_security(security: LinuxContainerSecurityContext) -> ContainerConfig {
    ContainerConfig {
        linux: Some(LinuxContainerConfig {
            security_context: Some(security),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn check_arguments(command: &[&str], args: &[&str], expected: &[&str]) {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let config = ContainerConfig {
        command: owned(command),
        args: owned(args),
        ..Default::default()
    };
    assert_eq!(plan(&config, &image()).unwrap().process.args, expected);
}

#[test]
fn a_command_replaces_the_entry_point_and_its_arguments() {
    check_arguments(&[], &[], &["/entry", "serve"]);
    check_arguments(&[], &["a"], &["/entry", "a"]);
    check_arguments(&["sh"], &[], &["sh"]);
    check_arguments(&["sh"], &["-c"], &["sh", "-c"]);
    let error = plan(&ContainerConfig::default(), &RunConfig::default()).unwrap_err();
    assert_eq!(error.to_string(), "no command specified");
}

#[test]
fn the_pods_environment_wins() {
    let config = ContainerConfig {
        envs: vec![KeyValue {
            key: "MODE".into(),
            value: b"pod=1".to_vec(),
        }],
        tty: true,
        ..Default::default()
    };
    let spec = plan(&config, &image()).unwrap();
    assert_eq!(
        spec.process.env,
        ["PATH=/bin", "MODE=pod=1", "HOSTNAME=web-0", "TERM=xterm"]
    );
}

fn check_mounts(mounts: &[(&str, bool)], expect: Expect) {
    let mounts = mounts.iter().map(|(target, readonly)| v1::Mount {
        host_path: "/host".into(),
        container_path: (*target).to_owned(),
        readonly: *readonly,
        ..Default::default()
    });
    let config = ContainerConfig {
        mounts: mounts.collect(),
        ..Default::default()
    };
    let spec = plan(&config, &image()).unwrap();
    let files = spec
        .pod_files
        .iter()
        .map(|file| format!("{} <- the pod's {}\n", file.target.display(), file.name));
    let lines = spec.mounts.iter().map(|mount| {
        let mode = if mount.readonly { "ro" } else { "rw" };
        format!("{} <- {} {mode}\n", mount.target.display(), mount.source.display())
    });
    expect.assert_eq(&lines.chain(files).collect::<String>());
}

#[test]
fn volumes_come_parents_first_and_replace_the_pods_files() {
    check_mounts(
        &[("/data/deep/er", true), ("/data", false), ("/etc/resolv.conf", false)],
        expect![[r#"
            /data <- /host rw
            /etc/resolv.conf <- /host rw
            /data/deep/er <- /host ro
            /etc/hostname <- the pod's hostname
        "#]],
    );
}

#[test]
fn a_privileged_container_has_every_capability_and_nothing_masked() {
    let spec = plan(
        &with_security(LinuxContainerSecurityContext {
            privileged: true,
            masked_paths: vec!["/proc/kcore".into()],
            seccomp: Some(SecurityProfile::default()),
            ..Default::default()
        }),
        &image(),
    );
    let spec = spec.unwrap();
    assert_eq!(spec.process.capabilities.held, capability::all());
    assert_eq!(spec.process.seccomp, Seccomp::Unconfined);
    assert!(spec.masked_paths.is_empty());
}

#[test]
fn ambient_capabilities_are_held_too() {
    let capabilities = Capability {
        drop_capabilities: vec!["ALL".into()],
        add_ambient_capabilities: vec!["NET_BIND_SERVICE".into()],
        ..Default::default()
    };
    let security = LinuxContainerSecurityContext {
        capabilities: Some(capabilities),
        ..Default::default()
    };
    let spec = plan(&with_security(security), &image()).unwrap();
    assert_eq!(
        spec.process.capabilities,
        Capabilities {
            held: 1 << 10,
            ambient: 1 << 10
        }
    );
}

#[test]
fn a_seccomp_profile_of_the_node_travels_by_its_contents() {
    let profile = SecurityProfile {
        profile_type: ProfileType::Localhost.into(),
        localhost_ref: "/seccomp/p.json".into(),
    };
    let mut security = LinuxContainerSecurityContext {
        seccomp: Some(profile),
        ..Default::default()
    };
    let config = with_security(security.clone());
    assert_eq!(seccomp_file(&config), Some("/seccomp/p.json"));
    let spec = plan(&config, &image()).unwrap();
    assert!(matches!(&spec.process.seccomp, Seccomp::Localhost(profile) if profile.rules.is_empty()));
    // A privileged container is not confined, and its profile is not even read.
    security.privileged = true;
    assert_eq!(seccomp_file(&with_security(security)), None);
}

#[test]
fn places_follow_from_the_ids() {
    let spec = plan(
        &ContainerConfig {
            log_path: "web/0.log".into(),
            ..Default::default()
        },
        &image(),
    )
    .unwrap();
    assert_eq!(spec.log_path.as_deref(), Some(Path::new("/var/log/pods/p/web/0.log")));
    assert_eq!(spec.cgroup.path, Path::new("/kubepods/pod1/c1"));
    assert_eq!(spec.process.cwd, "/srv");
}

#[test]
fn stop_signals_are_read_in_every_spelling() {
    let check = |image: &str, expected: i32| {
        let image = RunConfig {
            stop_signal: image.into(),
            ..Default::default()
        };
        assert_eq!(stop_signal(&ContainerConfig::default(), &image), expected);
    };
    check("", libc::SIGTERM);
    check("SIGQUIT", libc::SIGQUIT);
    check("3", 3);
    check("SIGRTMIN+3", libc::SIGRTMIN() + 3);
    let asked = ContainerConfig {
        stop_signal: v1::Signal::Sigrtminplus1.into(),
        ..Default::default()
    };
    assert_eq!(stop_signal(&asked, &RunConfig::default()), libc::SIGRTMIN() + 1);
}

/// The files of an image are mounted instead of a directory, and nobody writes to them.
#[test]
fn an_image_can_be_a_volume() {
    let mount = |image: &str| v1::Mount {
        container_path: "/files".into(),
        image: Some(v1::ImageSpec {
            image: image.into(),
            ..Default::default()
        }),
        image_sub_path: "etc".into(),
        ..Default::default()
    };
    let planned = |image: &str| {
        let config = ContainerConfig {
            mounts: vec![mount(image)],
            ..Default::default()
        };
        plan(&config, &self::image())
    };
    let spec = planned("files").unwrap();
    let mounted = &spec.mounts[0];
    assert_eq!(mounted.layers, ["top", "base"]);
    assert_eq!(
        (mounted.source.as_path(), mounted.readonly),
        (Path::new("/state/layers"), true)
    );
    assert_eq!(mounted.sub_path, Path::new("etc"));
    assert!(planned("unknown").is_err());
}

#[test]
fn a_recursively_read_only_mount_is_read_only_and_private() {
    let check = |readonly: bool, propagation: MountPropagation| {
        let mount = v1::Mount {
            container_path: "/data".into(),
            host_path: "/srv/data".into(),
            readonly,
            recursive_read_only: true,
            propagation: propagation.into(),
            ..Default::default()
        };
        let config = ContainerConfig {
            mounts: vec![mount],
            ..Default::default()
        };
        plan(&config, &image()).map(|spec| spec.mounts[0].recursive_readonly)
    };
    let refused = |needs: &str| {
        let message = format!("recursive read-only mount at \"/data\" must {needs}");
        Err(PlanError::Invalid(message))
    };
    assert_eq!(check(true, MountPropagation::PropagationPrivate), Ok(true));
    assert_eq!(
        check(false, MountPropagation::PropagationPrivate),
        refused("be read-only")
    );
    for propagation in [
        MountPropagation::PropagationHostToContainer,
        MountPropagation::PropagationBidirectional,
    ] {
        assert_eq!(check(true, propagation), refused("have private propagation"));
    }
}
