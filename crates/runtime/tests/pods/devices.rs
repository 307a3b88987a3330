//! Which devices a container may open, even one that may mount and make nodes.

use std::fs;

use cri::v1;
use rustix::fs::{CWD, FileType};

use crate::bed::{Bed, able, cgroups, security};

/// A block device that this machine lets root open, as major and minor number.
fn disk() -> Option<(u32, u32)> {
    let dir = tempfile::tempdir().unwrap();
    let numbers = fs::read_dir("/sys/block").unwrap().flatten().filter_map(|entry| {
        let text = fs::read_to_string(entry.path().join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    numbers.into_iter().find(|(major, minor)| {
        let node = dir.path().join(format!("{major}-{minor}"));
        let device = rustix::fs::makedev(*major, *minor);
        rustix::fs::mknodat(CWD, &node, FileType::BlockDevice, 0o600.into(), device).unwrap();
        fs::File::open(node).is_ok()
    })
}

/// Makes nodes in a file system of the container's own, which allows devices, and opens them: a disk of the machine's,
/// its log, and what every container has.
fn try_nodes() -> String {
    let (major, minor) = disk().unwrap_or((7, 0));
    format!(
        "exec 2>/dev/null; mkdir /own; mount -t tmpfs none /own || echo no mount; \
         mknod /own/disk b {major} {minor} && (: < /own/disk) && echo disk; \
         mknod /own/kmsg c 1 11 && (: < /own/kmsg) && echo kmsg; \
         mknod /own/zero c 1 5 && (: < /own/zero) && echo zero; \
         (: < /dev/null) && echo null; echo end"
    )
}

fn admin(config: &mut v1::ContainerConfig) {
    let security = security(config);
    security.capabilities = Some(v1::Capability {
        add_capabilities: vec!["ALL".into()],
        ..Default::default()
    });
    // Where there is AppArmor, its default profile would not even let it mount.
    security.apparmor = Some(v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::Unconfined.into(),
        localhost_ref: String::new(),
    });
}

#[tokio::test]
async fn a_container_that_may_mount_opens_no_device_by_a_node_it_made() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let (log, _) = bed.run_to_end(&sandbox, &try_nodes(), admin).await;
    assert_eq!(log, "stdout F zero\nstdout F null\nstdout F end\n");
    let container = bed.run_with(&sandbox, "exec sleep 1000", admin).await;
    let exec = bed.exec(&container, &try_nodes()).await;
    assert_eq!(exec.stdout, b"zero\nnull\nend\n");
    bed.finish().await;
}

/// On version 1 whoever may mount can write to the cgroup that is the root of what they see.
#[tokio::test]
async fn a_container_that_may_mount_does_not_lift_the_rules() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let lift = "mkdir /groups; mount -t cgroup -o devices none /groups 2>/dev/null && echo a > /groups/devices.allow; ";
    let (log, _) = bed.run_to_end(&sandbox, &format!("{lift}{}", try_nodes()), admin).await;
    let log: String = log
        .lines()
        .filter(|line| line.starts_with("stdout"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(log, "stdout F zero\nstdout F null\nstdout F end\n");
    bed.finish().await;
}

/// In every hierarchy the container is in a cgroup of its own, so that no root of one is to be mounted.
#[tokio::test]
async fn a_container_that_may_mount_sees_no_root_of_a_hierarchy() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let script = "mkdir /groups; while IFS=: read number names path; do \
                  [ -n \"$names\" ] || continue; \
                  case $names in name=*) names=none,$names;; esac; \
                  mount -t cgroup -o $names none /groups && { [ -e /groups/release_agent ] && echo $names; busybox umount /groups; }; \
                  done < /proc/self/cgroup; echo end";
    let (log, _) = bed.run_to_end(&sandbox, script, admin).await;
    assert_eq!(log, "stdout F end\n");
    bed.finish().await;
}

#[tokio::test]
async fn a_privileged_container_opens_everything() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let (log, _) = bed
        .run_to_end(&sandbox, &try_nodes(), |config| security(config).privileged = true)
        .await;
    // A machine may have no disk that even root could open.
    let disk = if disk().is_some() { "stdout F disk\n" } else { "" };
    let rest = "stdout F kmsg\nstdout F zero\nstdout F null\nstdout F end\n";
    assert_eq!(log, format!("{disk}{rest}"));
    bed.finish().await;
}

#[tokio::test]
async fn a_device_is_given_with_the_rights_it_is_given_with() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let run = async |permissions: &str| {
        let device = v1::Device {
            host_path: "/dev/kmsg".into(),
            container_path: "/dev/gift".into(),
            permissions: permissions.into(),
        };
        let script = "exec 2>/dev/null; (: < /dev/gift) && echo read; (: > /dev/gift) && echo written; echo end";
        let (log, _) = bed
            .run_to_end(&sandbox, script, |config| {
                config.devices = vec![device];
                admin(config);
            })
            .await;
        log.replace("stdout F ", "")
    };
    assert_eq!(run("rwm").await, "read\nwritten\nend\n");
    assert_eq!(run("r").await, "read\nend\n");
    assert_eq!(run("w").await, "written\nend\n");
    let mut config = bed.container_config("true");
    config.devices = vec![v1::Device {
        host_path: "/dev/kmsg".into(),
        container_path: "/dev/gift".into(),
        permissions: "rx".into(),
    }];
    let error = bed.create(&sandbox, config).await.unwrap_err();
    assert_eq!(
        error.message,
        "permissions \"rx\" of device /dev/kmsg are not made of the letters r, w and m"
    );
    assert!(!cgroups(&bed.cgroup).is_empty());
    bed.finish().await;
}
