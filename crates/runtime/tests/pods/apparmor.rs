//! AppArmor profiles, on kernels that have it and on those that have not.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use cri::v1::{self, security_profile::ProfileType};

use crate::bed::{Bed, able, security};

const NAMED: &str = "karve-test-no-touch";

/// Whether this machine's kernel has AppArmor, and the program that loads profiles.
fn has_apparmor() -> bool {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with('Y'))
        && Path::new("/sbin/apparmor_parser").exists()
}

fn profile(kind: ProfileType, name: &str) -> v1::SecurityProfile {
    v1::SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: name.to_owned(),
    }
}

/// Loads or removes a profile that lets everything be done but making files.
fn parser(action: &str) {
    let text = format!("profile {NAMED} {{ capability, network, file, signal, ptrace, deny /made w, deny mount, }}");
    let mut child = Command::new("/sbin/apparmor_parser")
        .args(["--skip-cache", action])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// What a container and an exec into it see and may do.
async fn seen(bed: &Bed, sandbox: &str, change: impl Fn(&mut v1::ContainerConfig)) -> String {
    let script = "exec 2>/dev/null; cat /proc/self/attr/current; busybox touch /made && echo made; \
                  mkdir -p /own && mount -t tmpfs none /own && echo mounted; echo end";
    let (log, _) = bed.run_to_end(sandbox, script, &change).await;
    let log: String = log
        .lines()
        .map(|line| format!("{}\n", line.replace("stdout F ", "")))
        .collect();
    let container = bed.run_with(sandbox, "exec sleep 1000", &change).await;
    let exec = bed.exec(&container, script).await;
    assert_eq!(
        log,
        String::from_utf8_lossy(&exec.stdout),
        "an exec is confined as its container is"
    );
    log
}

fn with(apparmor: Option<v1::SecurityProfile>, privileged: bool) -> impl Fn(&mut v1::ContainerConfig) {
    move |config| {
        let security = security(config);
        security.apparmor = apparmor.clone();
        security.privileged = privileged;
        security.capabilities = Some(v1::Capability {
            add_capabilities: vec!["SYS_ADMIN".into()],
            ..Default::default()
        });
    }
}

#[tokio::test]
async fn a_profile_that_is_asked_for_is_applied_or_the_container_refused() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let refusal = async |apparmor: v1::SecurityProfile| {
        let mut config = bed.container_config("true");
        with(Some(apparmor), false)(&mut config);
        bed.create(&sandbox, config).await.unwrap_err().message
    };
    if !has_apparmor() {
        for kind in [ProfileType::RuntimeDefault, ProfileType::Localhost] {
            assert_eq!(refusal(profile(kind, "")).await, "apparmor is not supported");
        }
        let (log, _) = bed
            .run_to_end(
                &sandbox,
                "echo runs",
                with(Some(profile(ProfileType::Unconfined, "")), false),
            )
            .await;
        assert_eq!(log, "stdout F runs\n");
        return bed.finish().await;
    }
    let default = "karve-default-v1 (enforce)\nmade\nend\n";
    assert_eq!(seen(&bed, &sandbox, with(None, false)).await, default);
    assert_eq!(
        seen(
            &bed,
            &sandbox,
            with(Some(profile(ProfileType::RuntimeDefault, "")), false)
        )
        .await,
        default
    );
    let unconfined = "unconfined\nmade\nmounted\nend\n";
    assert_eq!(seen(&bed, &sandbox, with(None, true)).await, unconfined);
    assert_eq!(
        seen(&bed, &sandbox, with(Some(profile(ProfileType::Unconfined, "")), false)).await,
        unconfined
    );
    let named = profile(ProfileType::Localhost, NAMED);
    assert_eq!(
        refusal(named.clone()).await,
        format!("apparmor profile not found {NAMED}")
    );
    parser("--replace");
    let confined = format!("{NAMED} (enforce)\nend\n");
    assert_eq!(seen(&bed, &sandbox, with(Some(named.clone()), false)).await, confined);
    assert_eq!(seen(&bed, &sandbox, with(Some(named), true)).await, confined);
    bed.finish().await;
    parser("--remove");
}
