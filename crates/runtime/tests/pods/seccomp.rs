//! What a container's seccomp profile lets its processes do.

use std::fs;
use std::path::Path;

use cri::v1::{self, security_profile::ProfileType};

use crate::bed::{Bed, able, security};

/// What is tried in each container: whether it runs at all, makes a namespace, and changes a file's mode.
const TRY: &str = "exec 2>/dev/null; echo runs; (echo forks); busybox unshare -U true && echo namespace; \
                   busybox chmod 600 /etc/passwd && echo mode; busybox chroot / true && echo chroot; echo end";

fn profile(kind: ProfileType, path: &Path) -> v1::SecurityProfile {
    v1::SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: path.display().to_string(),
    }
}

/// What a container with a profile, and an exec into it, could do of [`TRY`].
async fn done_with(bed: &Bed, sandbox: &str, change: impl Fn(&mut v1::ContainerConfig)) -> Vec<String> {
    let (log, _) = bed.run_to_end(sandbox, TRY, &change).await;
    let first: Vec<String> = log.lines().map(|line| line.replace("stdout F ", "")).collect();
    let container = bed.run_with(sandbox, "exec sleep 1000", &change).await;
    let further = bed.exec(&container, TRY).await;
    let further = String::from_utf8(further.stdout).unwrap();
    assert_eq!(
        first,
        further.lines().collect::<Vec<_>>(),
        "an exec is confined as its container is"
    );
    first
}

#[tokio::test]
async fn the_runtimes_profile_allows_what_programs_need() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let with = |no_new_privs: bool, privileged: bool, add: &'static [&str]| {
        move |config: &mut v1::ContainerConfig| {
            let security = security(config);
            security.seccomp = Some(v1::SecurityProfile::default());
            security.no_new_privs = no_new_privs;
            security.privileged = privileged;
            security.capabilities = Some(v1::Capability {
                add_capabilities: add.iter().map(|name| (*name).to_owned()).collect(),
                ..Default::default()
            });
        }
    };
    let ordinary = ["runs", "forks", "mode", "chroot", "end"];
    assert_eq!(done_with(&bed, &sandbox, with(false, false, &[])).await, ordinary);
    assert_eq!(done_with(&bed, &sandbox, with(true, false, &[])).await, ordinary);
    // What makes namespaces belongs to a capability, and a privileged container is not confined.
    let all = ["runs", "forks", "namespace", "mode", "chroot", "end"];
    assert_eq!(done_with(&bed, &sandbox, with(false, false, &["SYS_ADMIN"])).await, all);
    assert_eq!(done_with(&bed, &sandbox, with(false, true, &[])).await, all);
    bed.finish().await;
}

#[tokio::test]
async fn a_profile_of_the_node_is_applied() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let path = bed.dir.path().join("no-chmod.json");
    let text = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["chmod", "fchmodat", "fchmodat2"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13}]}"#;
    fs::write(&path, text).unwrap();
    let with = |no_new_privs: bool, privileged: bool| {
        let profile = profile(ProfileType::Localhost, &path);
        move |config: &mut v1::ContainerConfig| {
            let security = security(config);
            security.seccomp = Some(profile.clone());
            security.no_new_privs = no_new_privs;
            security.privileged = privileged;
        }
    };
    let without = ["runs", "forks", "namespace", "chroot", "end"];
    assert_eq!(done_with(&bed, &sandbox, with(false, false)).await, without);
    assert_eq!(done_with(&bed, &sandbox, with(true, false)).await, without);
    let all = ["runs", "forks", "namespace", "mode", "chroot", "end"];
    assert_eq!(done_with(&bed, &sandbox, with(false, true)).await, all);
    bed.finish().await;
}

#[tokio::test]
async fn a_profile_that_cannot_be_applied_refuses_the_container() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let refusal = async |path: &Path| {
        let mut config = bed.container_config("true");
        security(&mut config).seccomp = Some(profile(ProfileType::Localhost, path));
        bed.create(&sandbox, config).await.unwrap_err().message
    };
    let path = bed.dir.path().join("profile.json");
    let missing = refusal(&path).await;
    assert!(
        missing.starts_with("cannot load seccomp profile") && missing.contains("No such file"),
        "{missing}"
    );
    fs::write(&path, r#"{"defaultAction": "SCMP_ACT_HOPE"}"#).unwrap();
    let unknown = refusal(&path).await;
    assert!(
        unknown.ends_with("string SCMP_ACT_HOPE is not a valid action for seccomp"),
        "{unknown}"
    );
    fs::write(&path, " ".repeat((1 << 20) + 1)).unwrap();
    assert!(refusal(&path).await.ends_with("larger than 1048576 bytes"));
    assert!(
        refusal(Path::new("relative.json"))
            .await
            .ends_with("the path is not absolute")
    );
    // Neither waits for a writer nor reads what has no end.
    let pipe = bed.dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
    assert!(refusal(&pipe).await.ends_with("not a regular file"));
    assert!(refusal(Path::new("/dev/zero")).await.ends_with("not a regular file"));
    bed.finish().await;
}
