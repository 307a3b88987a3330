//! Pods whose root is an ordinary user of the host.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use cri::v1::NamespaceMode;
use cri::{Runtime, v1};

use crate::bed::{Bed, able, security, volume};

/// The first of the host's ids that the pods of these tests have, and how many.
const FIRST_ID: u32 = 7 << 16;
const IDS: u32 = 1 << 16;

fn mapping() -> Vec<v1::IdMapping> {
    vec![v1::IdMapping {
        host_id: FIRST_ID,
        container_id: 0,
        length: IDS,
    }]
}

fn own_users(config: &mut v1::PodSandboxConfig) {
    let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    let namespaces = security.namespace_options.as_mut().unwrap();
    namespaces.userns_options = Some(v1::UserNamespace {
        mode: NamespaceMode::Pod.into(),
        uids: mapping(),
        gids: mapping(),
    });
}

fn mapped(mount: v1::Mount) -> v1::Mount {
    v1::Mount {
        uid_mappings: mapping(),
        gid_mappings: mapping(),
        ..mount
    }
}

/// Whether the kernel can do it; says so loudly when it cannot.
async fn able_with(bed: &Bed) -> bool {
    let status = bed.status_of_runtime().await;
    let able = status.runtime_handlers[0].features.unwrap().user_namespaces;
    assert!(
        able || std::env::var_os("KARVE_REQUIRE_ALL").is_none(),
        "these tests need user namespaces and id-mapped mounts"
    );
    if !able {
        eprintln!("SKIPPED: these tests need user namespaces and id-mapped mounts");
    }
    able
}

/// Runs a script in a pod with its own users, and compares its output.
async fn check(script: &str, change: impl FnOnce(&Path, &mut v1::ContainerConfig), expected: &str) {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    if able_with(&bed).await {
        let sandbox = bed.sandbox_with(own_users).await;
        let script = format!("exec 2>&1; {script}");
        let change = |config: &mut v1::ContainerConfig| change(bed.dir.path(), config);
        let (log, _) = bed.run_to_end(&sandbox, &script, change).await;
        let text = |line: &str| format!("{}\n", line.splitn(3, ' ').nth(2).unwrap());
        assert_eq!(log.lines().map(text).collect::<String>(), expected);
    }
    bed.finish().await;
}

#[tokio::test]
async fn root_of_the_pod_is_nobody_on_the_host() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    if able_with(&bed).await {
        let sandbox = bed.sandbox_with(own_users).await;
        let container = bed.run(&sandbox, "touch /made; sleep 1000").await;
        let answer = bed
            .exec(
                &container,
                "i=0; until [ -e /made ] || [ $i = 1500 ]; do i=$((i+1)); sleep 0.02; done; \
                 id -u; cat /proc/self/uid_map; ls -ln /made | busybox awk '{print $3}'",
            )
            .await;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let words: Vec<_> = text.split_whitespace().collect();
        assert_eq!(words, ["0", "0", "458752", "65536", "0"], "{text}");
        // Every process of the pod, the pause process among them, is one of the pod's users for the host.
        let pids = bed.pids_of(&container);
        assert!(!pids.is_empty());
        for pid in pids {
            assert_eq!(fs::metadata(format!("/proc/{pid}")).unwrap().uid(), FIRST_ID);
        }
        let pause = bed.dir.path().join("state/sandboxes").join(&sandbox).join("pause");
        let pause = fs::read_to_string(pause).unwrap();
        let status = fs::read_to_string(format!("/proc/{pause}/status")).unwrap();
        assert!(status.contains(&format!("Uid:\t{}", FIRST_ID + 65535)), "{status}");
    }
    bed.finish().await;
}

#[tokio::test]
async fn users_groups_and_files_are_as_without_a_user_namespace() {
    let change = |_: &Path, config: &mut v1::ContainerConfig| {
        let security = security(config);
        security.run_as_user = Some(v1::Int64Value { value: 101 });
        security.supplemental_groups = vec![4000];
    };
    check(
        "id; echo shown > /dev/stdout; echo x > /dev/null && echo null; touch /dev/shm/x && echo shm; cat /etc/hostname",
        change,
        "uid=101(web) gid=102(web) groups=7(logs),102(web),4000\nshown\nnull\nshm\npod\n",
    )
    .await;
    let owners = "for f in / /etc /etc/hostname /etc/resolv.conf /dev /dev/shm /dev/pts /proc/self/status; do \
                  busybox stat -c '%n %u %g' $f; done; touch /etc/x /dev/x && mkdir /new && echo writable";
    check(
        owners,
        |_, _| {},
        "/ 0 0\n/etc 0 0\n/etc/hostname 0 0\n/etc/resolv.conf 0 0\n/dev 0 0\n/dev/shm 0 0\n/dev/pts 65534 65534\n\
         /proc/self/status 0 0\nwritable\n",
    )
    .await;
}

#[tokio::test]
async fn volumes_keep_the_ids_that_the_pod_sees() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    if able_with(&bed).await {
        let (data, memory) = (bed.dir.path().join("data"), bed.dir.path().join("memory"));
        for dir in [&data, &memory] {
            fs::create_dir(dir).unwrap();
        }
        let _memory = Tmpfs::mount(&memory);
        for dir in [&data, &memory] {
            fs::write(dir.join("theirs"), "x").unwrap();
            chown(dir.join("theirs"), Some(101), Some(4000)).unwrap();
            fs::set_permissions(dir.join("theirs"), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let unmapped = bed.dir.path().join("unmapped");
        fs::create_dir(&unmapped).unwrap();
        fs::write(unmapped.join("hosts"), "secret").unwrap();
        fs::set_permissions(unmapped.join("hosts"), fs::Permissions::from_mode(0o600)).unwrap();
        let sandbox = bed.sandbox_with(own_users).await;
        let script = "exec 2>&1; for d in /data /memory; do busybox stat -c '%u %g' $d/theirs; echo y > $d/made; done; \
                      cat /unmapped/hosts; touch /unmapped/x";
        let (log, _) = bed
            .run_to_end(&sandbox, script, |config| {
                config.mounts = vec![
                    mapped(volume(&data, "/data")),
                    mapped(volume(&memory, "/memory")),
                    volume(&unmapped, "/unmapped"),
                ];
            })
            .await;
        assert_eq!(
            log,
            "stdout F 101 4000\nstdout F 101 4000\n\
             stdout F cat: can't open '/unmapped/hosts': Permission denied\n\
             stdout F touch: /unmapped/x: Permission denied\n"
        );
        for dir in [&data, &memory] {
            assert_eq!(fs::metadata(dir.join("made")).unwrap().uid(), 0);
        }
    }
    bed.finish().await;
}

/// The powers of a privileged container, or of one that may mount, end at its user namespace.
#[tokio::test]
async fn capabilities_reach_nothing_of_the_host() {
    let privileged = |dir: &Path, config: &mut v1::ContainerConfig| {
        fs::create_dir(dir.join("readonly")).unwrap();
        security(config).privileged = true;
        config.mounts = vec![v1::Mount {
            readonly: true,
            ..mapped(volume(&dir.join("readonly"), "/readonly"))
        }];
    };
    check(
        "mkdir /srv; mount -t tmpfs none /srv && echo mounted; busybox hostname other && busybox hostname; \
         mount -o remount,rw,bind /readonly 2>/dev/null || echo locked; \
         busybox umount /readonly 2>/dev/null || echo locked; \
         mknod /disk b 8 0 2>/dev/null || echo no nodes; busybox ls /dev | busybox grep -c -E 'sda|vda|mem$'; \
         echo 1 > /proc/sys/kernel/panic || true; busybox nice -n -5 true 2>/dev/null || echo not nicer",
        privileged,
        "mounted\nother\nlocked\nlocked\nno nodes\n0\nsh: can't create /proc/sys/kernel/panic: Permission denied\nnot \
         nicer\n",
    )
    .await;
}

#[tokio::test]
async fn what_is_masked_stays_masked() {
    let change = |_: &Path, config: &mut v1::ContainerConfig| {
        let security = security(config);
        security.masked_paths = vec!["/proc/cpuinfo".into(), "/sys/firmware".into()];
        security.readonly_paths = vec!["/proc/sys".into()];
        security.capabilities = Some(v1::Capability {
            add_capabilities: vec!["SYS_ADMIN".into()],
            ..Default::default()
        });
    };
    check(
        "busybox umount /proc/cpuinfo 2>/dev/null || echo locked; busybox wc -c < /proc/cpuinfo; \
         busybox umount /sys/firmware 2>/dev/null || echo locked; \
         mount -o remount,rw,bind /proc/sys 2>/dev/null || echo locked; \
         busybox umount /proc/sys 2>/dev/null || echo locked",
        change,
        "locked\n0\nlocked\nlocked\nlocked\n",
    )
    .await;
}

#[tokio::test]
async fn terminals_and_shared_processes_work() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    if able_with(&bed).await {
        let sandbox = bed
            .sandbox_with(|config| {
                own_users(config);
                let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
                security.namespace_options.as_mut().unwrap().pid = NamespaceMode::Pod.into();
            })
            .await;
        let script = "[ -t 0 ] && busybox stat -L -c '%u' /proc/self/fd/0; echo typed > /dev/tty";
        let (log, _) = bed
            .run_to_end(&sandbox, script, |config| {
                config.tty = true;
                security(config).namespace_options.as_mut().unwrap().pid = NamespaceMode::Pod.into();
            })
            .await;
        assert_eq!(log, "stdout F 0\r\nstdout F typed\r\n");
    }
    bed.finish().await;
}

#[tokio::test]
async fn the_hosts_root_and_namespaces_are_refused() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let refused = async |change: &dyn Fn(&mut v1::NamespaceOption)| {
        let mut config = bed.sandbox_config();
        own_users(&mut config);
        let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
        change(security.namespace_options.as_mut().unwrap());
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: String::new(),
        };
        bed.run_pod_sandbox(request).await.unwrap_err().to_string()
    };
    let error = refused(&|namespaces| namespaces.network = NamespaceMode::Node.into()).await;
    assert_eq!(
        error,
        "a pod with a user namespace cannot use the host's network namespace"
    );
    let error = refused(&|namespaces| namespaces.userns_options.as_mut().unwrap().uids[0].host_id = 0).await;
    assert_eq!(
        error,
        "uid mapping of the user namespace must not have id 0 of the host"
    );
    bed.finish().await;
}

/// A tmpfs of the host, for as long as a test runs.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    fn mount(dir: &'a Path) -> Self {
        rustix::mount::mount("tmpfs", dir, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
        Self(dir)
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
