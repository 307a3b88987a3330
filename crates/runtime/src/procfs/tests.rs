use super::*;
use crate::sys;
use rustix::mount::{MountFlags, MountPropagationFlags};

/// Runs a check in a mount namespace of its own, where `/proc` can be replaced. Only root can make one.
fn with_own_mounts(check: impl FnOnce() + Send) {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "this test needs root");
        eprintln!("SKIPPED: this test needs root");
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sys::unshare(libc::CLONE_NEWNS).unwrap();
            rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            check();
        });
    });
}

fn mount_tmpfs(at: &str) {
    rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::empty(), None).unwrap();
}

#[test]
fn files_of_procfs_are_read_and_written() {
    let open = |path: &str, flags| Procfs::open().unwrap().open_file(path, flags);
    open("self/status", OFlags::RDONLY).unwrap();
    let score = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    write("self/oom_score_adj", score.trim()).unwrap();
    assert!(
        open("self/root", OFlags::RDONLY).is_err(),
        "a magic link leads out of procfs"
    );
    assert!(open("../etc/passwd", OFlags::RDONLY).is_err());
}

#[test]
fn cve_2025_52881_a_fake_proc_is_not_written_to() {
    with_own_mounts(|| {
        mount_tmpfs("/proc");
        std::fs::create_dir("/proc/self").unwrap();
        std::fs::write("/proc/self/oom_score_adj", "").unwrap();
        let error = write("self/oom_score_adj", "0").unwrap_err();
        assert_eq!(error.to_string(), "/proc is not the kernel's procfs");
        assert_eq!(std::fs::read("/proc/self/oom_score_adj").unwrap(), b"");
    });
}

#[test]
fn cve_2025_52881_a_file_mounted_over_one_of_procfs_is_not_written_to() {
    with_own_mounts(|| {
        let dir = tempfile::tempdir().unwrap();
        let fake = dir.path().join("fake");
        std::fs::write(&fake, "").unwrap();
        rustix::mount::mount_bind(&fake, "/proc/sys/kernel/domainname").unwrap();
        assert!(write("sys/kernel/domainname", "x").is_err());
        mount_tmpfs("/proc/sys/net");
        std::fs::create_dir("/proc/sys/net/core").unwrap();
        std::fs::write("/proc/sys/net/core/somaxconn", "").unwrap();
        assert!(write("sys/net/core/somaxconn", "1").is_err());
        assert_eq!(std::fs::read(&fake).unwrap(), b"");
    });
}
