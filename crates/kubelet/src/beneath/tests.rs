use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, IFlags, mknodat};

use super::*;
use crate::testing::in_mount_namespace;

fn mkfifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
}

#[test]
fn only_regular_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("file"), "x").unwrap();
    fs::create_dir(path("sub")).unwrap();
    fs::write(path("sub/file"), "y").unwrap();
    mkfifo(&path("fifo"));
    symlink("/etc/hostname", path("link")).unwrap();
    symlink("sub", path("directory-link")).unwrap();
    symlink("file", path("inner-link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    let open = Dir::open(dir.path()).unwrap();
    let may = |name: &str| open.open_file(Path::new(name)).is_ok();
    assert!(may("file") && may("sub/file"));
    for name in [
        "fifo",
        "link",
        "inner-link",
        "directory-link/file",
        "socket",
        "sub",
        "..",
        "/etc/hostname",
        "none",
    ] {
        assert!(!may(name), "{name}");
    }
    assert!(open_file(&path("file")).is_ok());
    for name in ["fifo", "link", "inner-link", "socket", "sub"] {
        assert!(open_file(&path(name)).is_err(), "{name}");
    }
}

#[test]
fn directories_are_made_where_they_belong_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, root.join("link")).unwrap();
    make_dir(&root, &root.join("a/b"), 0o750).unwrap();
    make_dir(&root, &root.join("a/b"), 0o750).unwrap();
    make_dir(&root, &root, 0o750).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!(fs::metadata(root.join("a/b")).unwrap().mode() & 0o7777, 0o750);
    for path in [
        root.join("link/x"),
        root.join("link"),
        root.join("../outside/x"),
        outside.join("x"),
    ] {
        assert!(make_dir(&root, &path, 0o750).is_err(), "{}", path.display());
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_tree_is_removed_and_what_its_links_lead_to_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    fs::create_dir_all(outside.join("d")).unwrap();
    fs::write(outside.join("d/file"), "x").unwrap();
    let tree = dir.path().join("root/tree");
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    symlink(&outside, tree.join("a/link")).unwrap();
    symlink(outside.join("d/file"), tree.join("a/b/link")).unwrap();
    mkfifo(&tree.join("fifo"));
    for number in 0..1000 {
        fs::write(tree.join(format!("a/b/c/{number}")), "x").unwrap();
    }
    remove_below(&dir.path().join("root"), &tree).unwrap();
    remove_below(&dir.path().join("root"), &tree).unwrap();
    assert!(!tree.exists());
    assert_eq!(fs::read_to_string(outside.join("d/file")).unwrap(), "x");
    symlink(&outside, dir.path().join("root/tree")).unwrap();
    assert!(
        remove_below(&dir.path().join("root"), &tree.join("d")).is_err(),
        "a link on the way"
    );
    remove_below(&dir.path().join("root"), &tree).unwrap();
    assert!(outside.join("d/file").exists());
}

/// Deeper than descriptors, the stack and the longest path allow.
#[test]
fn no_tree_is_too_deep() {
    let dir = tempfile::tempdir().unwrap();
    let root = Dir::open(dir.path()).unwrap();
    let mut at = root.make_child(OsStr::new("tree"), 0o755).unwrap();
    for level in 0..2500 {
        if level % 500 == 0 {
            at.create_file(OsStr::new("file")).unwrap();
        }
        at = at.make_child(OsStr::new("d"), 0o755).unwrap();
    }
    drop(at);
    // A thread with less of a stack than any the kubelet has.
    std::thread::scope(|scope| {
        let removal = std::thread::Builder::new().stack_size(128 * 1024);
        let removal = removal.spawn_scoped(scope, || root.remove(OsStr::new("tree"))).unwrap();
        removal.join().unwrap().unwrap();
    });
    assert_eq!(root.entries().unwrap(), []);
}

const ALL: Enough = Enough {
    bytes: u64::MAX,
    inodes: u64::MAX,
};

#[test]
fn everything_in_a_directory_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("tree/a")).unwrap();
    fs::write(path("large"), vec![1; 1 << 20]).unwrap();
    symlink(path("large"), path("tree/link")).unwrap();
    symlink("/", path("tree/root")).unwrap();
    let size = |enough| measure(Dir::open(&path("tree")).unwrap(), enough).unwrap();
    let before = size(ALL);
    assert_eq!(before.inodes, 4);
    assert!(before.bytes < 64 << 10, "{before:?}");
    fs::write(path("tree/a/file"), vec![1; 100_000]).unwrap();
    for number in 0..10 {
        fs::hard_link(path("tree/a/file"), path(&format!("tree/{number}"))).unwrap();
    }
    let after = size(ALL);
    assert_eq!(after.inodes, 5, "one file with many names");
    assert!((100_000..200_000).contains(&(after.bytes - before.bytes)), "{after:?}");
    let few = size(Enough {
        bytes: 4096,
        inodes: u64::MAX,
    });
    assert!(few.bytes > 4096 && few.bytes <= after.bytes);
    assert!(
        size(Enough {
            bytes: u64::MAX,
            inodes: 2
        })
        .inodes
            <= 4
    );
}

/// What lies deeper than paths, descriptors and the stack allow is found, too.
#[test]
fn nothing_is_too_deep_to_be_counted() {
    let dir = tempfile::tempdir().unwrap();
    let root = Dir::open(dir.path()).unwrap();
    let mut at = root.make_child(OsStr::new("tree"), 0o755).unwrap();
    for _ in 0..2500 {
        at.create_file(OsStr::new("beside")).unwrap();
        at = at.make_child(OsStr::new("d"), 0o755).unwrap();
    }
    let mut hidden = at.create_file(OsStr::new("hidden")).unwrap();
    io::Write::write_all(&mut hidden, &vec![1; 1 << 20]).unwrap();
    drop((at, hidden));
    std::thread::scope(|scope| {
        let measuring = std::thread::Builder::new().stack_size(128 * 1024);
        let measuring = measuring
            .spawn_scoped(scope, || measure(root.child(OsStr::new("tree")).unwrap(), ALL))
            .unwrap();
        let size = measuring.join().unwrap().unwrap();
        assert_eq!(size.inodes, 1 + 2 * 2500 + 1);
        assert!(size.bytes > 1 << 20);
    });
    root.remove(OsStr::new("tree")).unwrap();
}

#[test]
fn what_is_mounted_is_not_counted() {
    in_mount_namespace(|dir| {
        fs::create_dir_all(dir.join("tree/m")).unwrap();
        fs::create_dir(dir.join("host")).unwrap();
        fs::write(dir.join("host/large"), vec![1; 1 << 20]).unwrap();
        rustix::mount::mount_bind(dir.join("host"), dir.join("tree/m")).unwrap();
        let size = measure(Dir::open(&dir.join("tree")).unwrap(), ALL).unwrap();
        assert!(size.bytes < 1 << 20, "{size:?}");
    });
}

#[test]
fn what_was_made_immutable_is_removed_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    for name in ["file", "sub/file", "sub/log"] {
        fs::write(tree.join(name), "x").unwrap();
    }
    let freeze = |name: &str, flag: IFlags| {
        let file = File::open(tree.join(name)).unwrap();
        rustix::fs::ioctl_setflags(&file, rustix::fs::ioctl_getflags(&file)? | flag)
    };
    for (name, flag) in [
        ("file", IFlags::IMMUTABLE),
        ("sub/log", IFlags::APPEND),
        ("sub", IFlags::IMMUTABLE),
    ] {
        if let Err(error) = freeze(name, flag) {
            return eprintln!(
                "SKIPPED: the file system of {} has no such attributes: {error}",
                tree.display()
            );
        }
    }
    assert!(fs::remove_dir_all(&tree).is_err());
    remove_below(dir.path(), &tree).unwrap();
    assert!(!tree.exists());
}

#[test]
fn nothing_is_removed_through_a_mount() {
    in_mount_namespace(|dir| {
        for path in ["host", "root/tree/mount"] {
            fs::create_dir_all(dir.join(path)).unwrap();
        }
        fs::write(dir.join("host/file"), "of the host").unwrap();
        let (from, to) = (dir.join("host"), dir.join("root/tree/mount"));
        rustix::mount::mount_bind(&from, &to).unwrap();
        assert!(remove_below(&dir.join("root"), &dir.join("root/tree")).is_err());
        assert_eq!(fs::read_to_string(dir.join("host/file")).unwrap(), "of the host");
        rustix::mount::unmount(&to, rustix::mount::UnmountFlags::DETACH).unwrap();
        remove_below(&dir.join("root"), &dir.join("root/tree")).unwrap();
    });
}

#[test]
fn mounts_are_told_apart_on_one_file_system() {
    in_mount_namespace(|dir| {
        for path in ["a", "b"] {
            fs::create_dir(dir.join(path)).unwrap();
        }
        fs::write(dir.join("a/file"), "").unwrap();
        fs::write(dir.join("b/file"), "").unwrap();
        let mounted = |name: &str| is_mount_root(Dir::open(dir).unwrap().find(Path::new(name)).unwrap()).unwrap();
        assert!(!mounted("b") && !mounted("b/file"));
        rustix::mount::mount_bind(dir.join("a/file"), dir.join("b/file")).unwrap();
        assert!(!mounted("b") && mounted("b/file"));
        let (open, name) = (Dir::open(&dir.join("b")).unwrap(), Path::new("file"));
        assert!(
            open.open_file(name).is_err(),
            "what is mounted there is somebody else's"
        );
        rustix::mount::mount_bind(dir.join("a"), dir.join("b")).unwrap();
        assert!(Dir::open(dir).unwrap().child(OsStr::new("b")).is_err());
        assert!(Dir::open(dir).unwrap().below(Path::new("b")).is_ok());
    });
}
