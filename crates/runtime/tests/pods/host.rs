//! Pods that share something with their host: mounts, namespaces, devices.

use std::fs;
use std::path::Path;

use cri::v1;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::bed::{Bed, able, security};

/// A tmpfs on the host that ends with the test.
struct HostMount(std::path::PathBuf);

impl HostMount {
    fn new(path: &Path) -> Self {
        fs::create_dir_all(path).unwrap();
        rustix::mount::mount("tmpfs", path, "tmpfs", MountFlags::empty(), None).unwrap();
        Self(path.to_owned())
    }

    fn shared(path: &Path) -> Self {
        let mount = Self::new(path);
        rustix::mount::mount_change(path, MountPropagationFlags::SHARED).unwrap();
        mount
    }
}

impl Drop for HostMount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn volume(source: &Path, propagation: v1::MountPropagation) -> v1::Mount {
    v1::Mount {
        container_path: "/volume".into(),
        host_path: source.display().to_string(),
        propagation: propagation.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn later_mounts_of_the_host_reach_only_those_who_asked() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let source = bed.dir.path().join("source");
    let _volume = HostMount::shared(&source);
    let sandbox = bed.sandbox().await;
    let with = |propagation| {
        let mount = volume(&source, propagation);
        move |config: &mut v1::ContainerConfig| config.mounts = vec![mount]
    };
    let sees = bed
        .run_with(
            &sandbox,
            "exec sleep 1000",
            with(v1::MountPropagation::PropagationHostToContainer),
        )
        .await;
    let blind = bed
        .run_with(
            &sandbox,
            "exec sleep 1000",
            with(v1::MountPropagation::PropagationPrivate),
        )
        .await;
    {
        let _later = HostMount::new(&source.join("later"));
        fs::write(source.join("later/file"), "").unwrap();
        assert_eq!(bed.exec(&sees, "ls /volume/later").await.stdout, b"file\n");
        assert_eq!(bed.exec(&blind, "ls /volume/later").await.stdout, b"");
    }
    bed.remove(&sandbox).await;
    drop(_volume);
    bed.finish().await;
}

#[tokio::test]
async fn a_privileged_container_may_mount_for_the_host() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let source = bed.dir.path().join("source");
    let _volume = HostMount::shared(&source);
    let sandbox = bed.sandbox().await;
    let mount = volume(&source, v1::MountPropagation::PropagationBidirectional);
    let container = bed
        .run_with(&sandbox, "exec sleep 1000", |config| {
            config.mounts = vec![mount];
            security(config).privileged = true;
        })
        .await;
    let made = bed
        .exec(
            &container,
            "cd /volume && mkdir inner && mount -t tmpfs none inner && touch inner/file",
        )
        .await;
    assert_eq!(made.exit_code, 0, "{}", String::from_utf8_lossy(&made.stderr));
    assert!(source.join("inner/file").exists());
    rustix::mount::unmount(source.join("inner"), UnmountFlags::DETACH).unwrap();
    // A device of the host, and a cgroup tree that can be written.
    let seen = bed
        .exec(&container, "[ -c /dev/kmsg ] && [ -w /sys ] && echo yes")
        .await;
    assert_eq!(seen.stdout, b"yes\n");
    bed.remove(&sandbox).await;
    drop(_volume);
    bed.finish().await;
}

#[tokio::test]
async fn mounting_for_the_host_needs_a_shared_mount() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let source = bed.dir.path().join("source");
    let private = HostMount::new(&source);
    rustix::mount::mount_change(&source, MountPropagationFlags::PRIVATE).unwrap();
    let sandbox = bed.sandbox().await;
    let mut config = bed.container_config("true");
    config.mounts = vec![volume(&source, v1::MountPropagation::PropagationBidirectional)];
    let container = bed.create(&sandbox, config).await.unwrap();
    let error = bed.start(&container).await.unwrap_err();
    assert!(error.message.contains("is not a shared mount"), "{error}");
    drop(private);
    bed.finish().await;
}

#[tokio::test]
async fn a_read_only_volume_is_so_to_its_depth_when_asked() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let source = bed.dir.path().join("source");
    let _volume = HostMount::new(&source);
    let _inner = HostMount::new(&source.join("inner"));
    let sandbox = bed.sandbox().await;
    let script = "touch /volume/a; touch /volume/inner/b";
    let run = async |recursive_read_only: bool| {
        let mut mount = volume(&source, v1::MountPropagation::PropagationPrivate);
        (mount.readonly, mount.recursive_read_only) = (true, recursive_read_only);
        let (log, _) = bed
            .run_to_end(&sandbox, script, |config| config.mounts = vec![mount])
            .await;
        log.lines().count()
    };
    assert_eq!((run(false).await, run(true).await), (1, 2));
    bed.remove(&sandbox).await;
    drop((_inner, _volume));
    bed.finish().await;
}

#[tokio::test]
async fn a_pod_may_live_in_the_hosts_namespaces() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let node = v1::NamespaceMode::Node.into();
    let namespaces = v1::NamespaceOption {
        network: node,
        pid: node,
        ipc: node,
        ..Default::default()
    };
    let sandbox = bed
        .sandbox_with(|config| {
            let linux = config.linux.as_mut().unwrap();
            linux.security_context.as_mut().unwrap().namespace_options = Some(namespaces.clone());
        })
        .await;
    assert!(bed.network.connected.lock().is_empty());
    let share = |config: &mut v1::ContainerConfig| security(config).namespace_options = Some(namespaces.clone());
    let container = bed.run_with(&sandbox, "sleep 1000 & exec sleep 1000", share).await;
    let seen = bed
        .exec(&container, "for n in net pid ipc uts; do ls -l /proc/self/ns/$n; done")
        .await;
    let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
    for (line, name) in seen.lines().zip(["net", "pid", "ipc", "uts"]) {
        let ours = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert!(line.ends_with(&ours.display().to_string()), "{line}");
    }
    // Without a process namespace of its own, a container ends by its cgroup.
    let stop = v1::StopContainerRequest {
        container_id: container,
        timeout: 0,
    };
    cri::Runtime::stop_container(&*bed, stop).await.unwrap();
    bed.finish().await;
}

#[tokio::test]
async fn sysctls_are_set_in_the_pod_alone() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let before = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let sandbox = bed
        .sandbox_with(|config| {
            config.linux.as_mut().unwrap().sysctls = [("net.core.somaxconn".to_owned(), "1234".to_owned())].into();
        })
        .await;
    let container = bed.run(&sandbox, "exec sleep 1000").await;
    let seen = bed
        .exec(
            &container,
            "cd /proc/sys/net; cat core/somaxconn ipv4/ip_unprivileged_port_start",
        )
        .await;
    assert_eq!(seen.stdout, b"1234\n0\n");
    assert_eq!(fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap(), before);
    bed.finish().await;
}

#[tokio::test]
async fn a_device_that_is_given_can_be_used() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let device = v1::Device {
        host_path: "/dev/zero".into(),
        container_path: "/dev/gift".into(),
        permissions: "rw".into(),
    };
    let (log, _) = bed
        .run_to_end(
            &sandbox,
            "dd if=/dev/gift bs=1 count=3 2>/dev/null | busybox wc -c",
            |config| {
                config.devices = vec![device];
            },
        )
        .await;
    assert_eq!(log, "stdout F 3\n");
    bed.finish().await;
}

#[tokio::test]
async fn a_container_may_join_anothers_processes() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let target = bed.run(&sandbox, "exec sleep 4321").await;
    let (log, _) = bed
        .run_to_end(&sandbox, "cat /proc/1/cmdline", |config| {
            security(config).namespace_options = Some(v1::NamespaceOption {
                pid: v1::NamespaceMode::Target.into(),
                target_id: target.clone(),
                ..Default::default()
            });
        })
        .await;
    assert_eq!(log, "stdout P sleep\x004321\x00\n");
    assert_eq!(bed.status(&target).await.state(), v1::ContainerState::ContainerRunning);
    bed.finish().await;
}
