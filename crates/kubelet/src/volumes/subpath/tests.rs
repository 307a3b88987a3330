use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;
use crate::testing::{EndOnDrop, in_mount_namespace};

#[test]
fn subpaths_are_made_and_never_leave_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).unwrap();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o2777)).unwrap();
    open_in_volume(&volume, "a/b").unwrap();
    let made = fs::metadata(volume.join("a/b")).unwrap();
    assert!(made.is_dir());
    assert_eq!(made.mode() & 0o7777, 0o2777, "as open as the volume");

    symlink("/etc", volume.join("out")).unwrap();
    symlink("a", volume.join("in")).unwrap();
    symlink("../a", volume.join("a/up")).unwrap();
    symlink("nowhere", volume.join("dangling")).unwrap();
    for outside in [
        "out",
        "out/passwd",
        "out/new",
        "../x",
        "/etc",
        "a/../../x",
        "dangling",
        "dangling/x",
    ] {
        assert!(open_in_volume(&volume, outside).is_err(), "{outside}");
    }
    assert!(!Path::new("/etc/new").exists() && !volume.join("nowhere").exists());
    for inside in ["in/b", "a/up/b", "in/up/fresh", "./a"] {
        assert!(open_in_volume(&volume, inside).is_ok(), "{inside}");
    }
    assert!(volume.join("a/fresh").is_dir());
}

#[test]
fn a_restarting_container_keeps_its_file() {
    in_mount_namespace(|dir| {
        let (volume, target) = (dir.join("volume"), dir.join("k/pods/u/volume-subpaths/v/c/0"));
        fs::create_dir_all(dir.join("k")).unwrap();
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("file"), "precious").unwrap();
        for _ in 0..20 {
            bind(&dir.join("k"), &volume, "file", &target).unwrap();
            assert_eq!(fs::read_to_string(volume.join("file")).unwrap(), "precious");
            assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        }
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        assert_eq!(table.matches("volume-subpaths").count(), 1, "it is bound once");
        mounts::unmount_from(&dir.join("k"), &dir.join("k/pods/u")).unwrap();
        assert_eq!(
            fs::read_to_string(&target).unwrap(),
            "",
            "nothing was ever written to the placeholder"
        );
        assert_eq!(fs::read_to_string(volume.join("file")).unwrap(), "precious");
    });
}

#[test]
fn a_file_that_was_replaced_is_bound_anew() {
    in_mount_namespace(|dir| {
        let (volume, target) = (dir.join("volume"), dir.join("k/0"));
        fs::create_dir_all(dir.join("k")).unwrap();
        fs::create_dir(&volume).unwrap();
        for content in ["one", "two"] {
            fs::write(volume.join("next"), content).unwrap();
            fs::rename(volume.join("next"), volume.join("file")).unwrap();
            bind(&dir.join("k"), &volume, "file", &target).unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), content);
        }
        // And now it is a directory.
        fs::remove_file(volume.join("file")).unwrap();
        fs::create_dir_all(volume.join("file/inner")).unwrap();
        bind(&dir.join("k"), &volume, "file", &target).unwrap();
        assert!(target.join("inner").is_dir());
    });
}

/// What was done in CVE-2017-1002101 and CVE-2021-25741: the volume's directory and a link out of it change places all
/// the time. Neither binding nor making directories may ever reach what is outside.
#[test]
fn links_that_change_places_never_lead_outside() {
    in_mount_namespace(|dir| {
        let (volume, outside, root) = (dir.join("volume"), dir.join("outside"), dir.join("k"));
        for path in [volume.join("a/b"), outside.join("b"), root.clone()] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(outside.join("b/secret"), "of the host").unwrap();
        symlink(&outside, volume.join("link")).unwrap();
        let over = AtomicBool::new(false);
        let (mut bound, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let (a, link) = (volume.join("a"), volume.join("link"));
                        let _ = renameat_with(CWD, &a, CWD, &link, RenameFlags::EXCHANGE);
                    }
                });
            }
            let _end = EndOnDrop(&over);
            let begun = tokio::time::Instant::now();
            for round in 0..20_000 {
                let target = root.join(format!("{}", round % 7));
                match bind(
                    &root,
                    &volume,
                    if round % 2 == 0 { "a/b" } else { "a/b/new/x" },
                    &target,
                ) {
                    Ok(()) => {
                        bound += 1;
                        assert!(!target.join("secret").exists(), "the host's files are bound");
                        mounts::unmount_from(dir, &root).unwrap();
                    }
                    Err(_) => refused += 1,
                }
                if begun.elapsed() > std::time::Duration::from_secs(3) && bound > 0 && refused > 0 {
                    break;
                }
            }
        });
        assert!(
            bound > 0 && refused > 0,
            "both happened: {bound} bound, {refused} refused"
        );
        assert_eq!(
            fs::read_dir(outside.join("b")).unwrap().count(),
            1,
            "nothing was made outside"
        );
        assert_eq!(fs::metadata(outside.join("b")).unwrap().mode() & 0o7777, 0o755);
    });
}
