//! What a container may do and see.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use cri::{Runtime, v1};

use crate::bed::{Bed, able, cgroups, security};

/// Runs a script in a container changed by `change`, and compares its output.
async fn check(script: &str, change: impl FnOnce(&mut v1::ContainerConfig), expected: &str) {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let script = format!("exec 2>&1; {script}");
    let (log, _) = bed.run_to_end(&sandbox, &script, change).await;
    let output: String = log
        .lines()
        .map(|line| format!("{}\n", line.splitn(3, ' ').nth(2).unwrap()))
        .collect();
    assert_eq!(output, expected);
    bed.finish().await;
}

#[tokio::test]
async fn users_and_groups_are_those_of_the_pod_and_the_image() {
    let change = |config: &mut v1::ContainerConfig| {
        let security = security(config);
        security.run_as_user = Some(v1::Int64Value { value: 101 });
        security.supplemental_groups = vec![4000];
    };
    check(
        "id; echo $HOME",
        change,
        "uid=101(web) gid=102(web) groups=7(logs),102(web),4000\n/srv\n",
    )
    .await;
}

#[tokio::test]
async fn capabilities_are_dropped_and_kept() {
    let script = "while read name value rest; do case $name in CapPrm:|CapEff:|CapBnd:|CapAmb:|NoNewPrivs:|Seccomp:) echo $name $value;; esac; done < /proc/self/status";
    check(script, |_| {}, "CapPrm: 00000000a80425fb\nCapEff: 00000000a80425fb\nCapBnd: 00000000a80425fb\nCapAmb: 0000000000000000\nNoNewPrivs: 0\nSeccomp: 0\n").await;
    let change = |config: &mut v1::ContainerConfig| {
        let security = security(config);
        security.run_as_user = Some(v1::Int64Value { value: 1000 });
        security.no_new_privs = true;
        security.seccomp = Some(v1::SecurityProfile::default());
        security.capabilities = Some(v1::Capability {
            add_capabilities: vec!["NET_BIND_SERVICE".into()],
            drop_capabilities: vec!["ALL".into()],
            add_ambient_capabilities: Vec::new(),
        });
    };
    check(script, change, "CapPrm: 0000000000000000\nCapEff: 0000000000000000\nCapBnd: 0000000000000400\nCapAmb: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n").await;
}

#[tokio::test]
async fn device_nodes_open_nothing_but_those_given() {
    let script = "echo x > /dev/null && echo null; head -c 3 /dev/zero 2>/dev/null | wc -c >/dev/null; \
                  dd if=/dev/zero of=/dev/null bs=1 count=1 2>/dev/null && echo zero; \
                  mknod /mem c 1 1 && (cat /mem || echo closed); mknod /dev/mem2 c 1 1 && (cat /dev/mem2 || echo closed)";
    check(script, |_| {}, "null\nzero\ncat: can't open '/mem': Permission denied\nclosed\ncat: can't open '/dev/mem2': Permission denied\nclosed\n").await;
}

#[tokio::test]
async fn kernel_paths_are_masked_and_read_only() {
    let change = |config: &mut v1::ContainerConfig| {
        let security = security(config);
        security.masked_paths = vec![
            "/proc/cpuinfo".into(),
            "/sys/firmware".into(),
            "/proc/nonexistent".into(),
        ];
        security.readonly_paths = vec!["/proc/sys".into()];
    };
    let script = "cat /proc/cpuinfo | busybox wc -c; ls /sys/firmware | busybox wc -l; \
                  echo 1 > /proc/sys/kernel/hostname || echo protected; touch /sys/x || true; \
                  [ -e /sys/fs/cgroup/memory ] || [ -e /sys/fs/cgroup/cgroup.procs ] && echo cgroups";
    check(script, change, "0\n0\nsh: can't create /proc/sys/kernel/hostname: Read-only file system\nprotected\ntouch: /sys/x: Read-only file system\ncgroups\n").await;
}

#[tokio::test]
async fn a_read_only_root_takes_writes_only_in_volumes() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let (data, config_dir) = (bed.dir.path().join("data"), bed.dir.path().join("config"));
    fs::create_dir(&data).unwrap();
    fs::create_dir(&config_dir).unwrap();
    fs::write(config_dir.join("key"), "value\n").unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o777)).unwrap();
    let mounts = [("/data", &data, false), ("/etc/config", &config_dir, true)];
    let mounts = mounts.map(|(target, source, readonly)| v1::Mount {
        container_path: target.into(),
        host_path: source.display().to_string(),
        readonly,
        ..Default::default()
    });
    let script = "exec 2>&1; touch /x; touch /etc/config/x; cat /etc/config/key; echo kept > /data/file";
    let (log, _) = bed
        .run_to_end(&sandbox, script, |config| {
            config.mounts = mounts.to_vec();
            security(config).readonly_rootfs = true;
        })
        .await;
    assert_eq!(
        log,
        "stdout F touch: /x: Read-only file system\nstdout F touch: /etc/config/x: Read-only file system\nstdout F value\n"
    );
    assert_eq!(fs::read_to_string(data.join("file")).unwrap(), "kept\n");
    bed.finish().await;
}

#[tokio::test]
async fn a_container_is_limited_and_its_limits_can_change() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed
        .run_with(&sandbox, "exec sleep 1000", |config| {
            config.linux.as_mut().unwrap().resources = Some(v1::LinuxContainerResources {
                memory_limit_in_bytes: 32 << 20,
                cpu_shares: 512,
                ..Default::default()
            });
        })
        .await;
    let read = |files: [&str; 2]| {
        let dirs = cgroups(&bed.cgroup.join(&container));
        let found = dirs
            .iter()
            .flat_map(|dir| files.map(|file| dir.join(file)))
            .find(|file| file.exists());
        fs::read_to_string(found.unwrap()).unwrap().trim().to_owned()
    };
    let limit = || read(["memory.limit_in_bytes", "memory.max"]);
    assert_eq!(limit(), (32 << 20).to_string());
    assert!(["512", "20"].contains(&read(["cpu.shares", "cpu.weight"]).as_str()));
    let linux = v1::LinuxContainerResources {
        memory_limit_in_bytes: 64 << 20,
        ..Default::default()
    };
    let request = v1::UpdateContainerResourcesRequest {
        container_id: container.clone(),
        linux: Some(linux),
        annotations: Default::default(),
    };
    bed.update_container_resources(request).await.unwrap();
    assert_eq!(limit(), (64 << 20).to_string());
    bed.finish().await;
}

#[tokio::test]
async fn a_container_killed_for_memory_says_so() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let (_, status) = bed
        .run_to_end(&sandbox, "dd if=/dev/zero of=/dev/shm/fill bs=1M count=60", |config| {
            config.linux.as_mut().unwrap().resources = Some(v1::LinuxContainerResources {
                memory_limit_in_bytes: 16 << 20,
                ..Default::default()
            });
        })
        .await;
    assert_eq!(status.reason, "OOMKilled");
    bed.finish().await;
}

#[tokio::test]
async fn a_container_has_no_more_processes_than_it_may() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let limit = |value: &str| v1::LinuxContainerResources {
        unified: [("pids.max".to_owned(), value.to_owned())].into(),
        ..Default::default()
    };
    // A shell that cannot fork says so and ends.
    let bomb = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; echo all";
    let (log, status) = bed
        .run_to_end(&sandbox, bomb, |config| {
            config.linux.as_mut().unwrap().resources = Some(limit("5"))
        })
        .await;
    assert!(log.contains("can't fork") && !log.contains("all"), "{log}");
    assert_ne!(status.exit_code, 0);
    let container = bed
        .run_with(&sandbox, "exec sleep 1000", |config| {
            config.linux.as_mut().unwrap().resources = Some(limit("5"));
        })
        .await;
    assert!(!String::from_utf8_lossy(&bed.exec(&container, bomb).await.stdout).contains("all"));
    let request = v1::UpdateContainerResourcesRequest {
        container_id: container.clone(),
        linux: Some(limit("max")),
        annotations: Default::default(),
    };
    bed.update_container_resources(request).await.unwrap();
    let freed = bed
        .exec(&container, &format!("exec >/dev/null 2>&1 </dev/null; {bomb}; exit 7"))
        .await;
    assert_eq!(freed.exit_code, 7);
    bed.finish().await;
}

#[tokio::test]
async fn settings_of_the_node_are_not_the_pods_to_set() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let refusal = async |name: &str, network: v1::NamespaceMode| {
        let mut config = bed.sandbox_config();
        let linux = config.linux.as_mut().unwrap();
        linux.sysctls = [(name.to_owned(), "1".to_owned())].into();
        let options = linux
            .security_context
            .as_mut()
            .unwrap()
            .namespace_options
            .as_mut()
            .unwrap();
        options.network = network.into();
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: String::new(),
        };
        bed.run_pod_sandbox(request).await.unwrap_err().message
    };
    for name in ["kernel.core_pattern", "vm.panic_on_oom", "net/../kernel/core_pattern"] {
        assert!(
            refusal(name, v1::NamespaceMode::Pod).await.starts_with("sysctl"),
            "{name}"
        );
    }
    assert_eq!(
        refusal("net.ipv4.ip_forward", v1::NamespaceMode::Node).await,
        "sysctl \"net.ipv4.ip_forward\" not allowed in host network namespace"
    );
    bed.finish().await;
}
