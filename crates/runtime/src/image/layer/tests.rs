//! Layers are unpacked by root and come from anywhere: these are the tricks they must not get away with. Needs root,
//! because owners, devices and overlayfs's own attributes do.

use super::*;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

/// A tar of `kind path [link target or contents]` entries. Paths are written as they are, `..` included.
fn tar(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (kind, path, detail) in entries {
        let mut header = tar::Header::new_gnu();
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        let contents = if is_link { "" } else { detail };
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        if is_link {
            header.as_mut_bytes()[157..157 + detail.len()].copy_from_slice(detail.as_bytes());
        }
        header.set_entry_type(*kind);
        header.set_size(contents.len() as u64);
        header.set_mode(0o640);
        header.set_uid(11);
        header.set_gid(22);
        header.set_mtime(1_000_000);
        if matches!(kind, EntryType::Char | EntryType::Block) {
            let (major, minor) = detail.split_once(':').unwrap();
            header.set_device_major(major.parse().unwrap()).unwrap();
            header.set_device_minor(minor.parse().unwrap()).unwrap();
            header.set_size(0);
        }
        header.set_cksum();
        builder
            .append(
                &header,
                if matches!(kind, EntryType::Char | EntryType::Block) {
                    ""
                } else {
                    contents
                }
                .as_bytes(),
            )
            .unwrap();
    }
    builder.into_inner().unwrap()
}

fn able() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "these tests need root");
    eprintln!("SKIPPED: unpacking layers needs root");
    false
}

const DIR: EntryType = EntryType::Directory;
const FILE: EntryType = EntryType::Regular;
const SYMLINK: EntryType = EntryType::Symlink;
const LINK: EntryType = EntryType::Link;

struct Unpacked {
    dir: tempfile::TempDir,
    result: Result<u64, LayerError>,
}

impl Unpacked {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("layer").join(name)
    }
}

fn unpack_over(entries: &[(EntryType, &str, &str)], below: &[PathBuf]) -> Unpacked {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("layer")).unwrap();
    fs::write(dir.path().join("secret"), "host").unwrap();
    let result = unpack(tar(entries).as_slice(), &dir.path().join("layer"), below);
    Unpacked { dir, result }
}

fn unpacked(entries: &[(EntryType, &str, &str)]) -> Unpacked {
    unpack_over(entries, &[])
}

#[test]
fn files_keep_their_contents_owner_mode_and_time() {
    if !able() {
        return;
    }
    let layer = unpacked(&[(DIR, "./etc/", ""), (FILE, "./etc/motd", "hello")]);
    assert_eq!(layer.result.as_ref().unwrap(), &5);
    let metadata = fs::metadata(layer.path("etc/motd")).unwrap();
    assert_eq!(fs::read_to_string(layer.path("etc/motd")).unwrap(), "hello");
    assert_eq!(
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777),
        (11, 22, 0o640)
    );
    assert_eq!(
        (metadata.mtime(), fs::metadata(layer.path("etc")).unwrap().mtime()),
        (1_000_000, 1_000_000)
    );
}

#[test]
fn going_up_is_refused() {
    if !able() {
        return;
    }
    let layer = unpacked(&[(FILE, "../secret", "owned")]);
    assert!(matches!(layer.result, Err(LayerError::Outside(_))));
    let layer = unpacked(&[(LINK, "stolen", "../secret")]);
    assert!(matches!(layer.result, Err(LayerError::Outside(_))));
    assert_eq!(fs::read_to_string(layer.dir.path().join("secret")).unwrap(), "host");
}

#[test]
fn absolute_paths_are_inside_the_layer() {
    if !able() {
        return;
    }
    let layer = unpacked(&[(FILE, "/etc/passwd", "mine")]);
    assert_eq!(fs::read_to_string(layer.path("etc/passwd")).unwrap(), "mine");
}

#[test]
fn writing_through_a_link_stays_inside() {
    if !able() {
        return;
    }
    // The link leads to the directory that holds the layer; read from inside, it leads nowhere.
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().display().to_string();
    let layer = unpacked(&[(SYMLINK, "out", &target), (FILE, "out/file", "owned")]);
    assert!(layer.result.is_err());
    let layer = unpacked(&[(SYMLINK, "up", "../../.."), (FILE, "up/file", "inside")]);
    assert_eq!(fs::read_to_string(layer.path("file")).unwrap(), "inside");
    assert!(fs::read_dir(outside.path()).unwrap().next().is_none());
}

#[test]
fn a_later_entry_replaces_a_link_instead_of_following_it() {
    if !able() {
        return;
    }
    let layer = unpacked(&[(SYMLINK, "file", "../secret"), (FILE, "file", "mine")]);
    layer.result.as_ref().unwrap();
    assert!(fs::symlink_metadata(layer.path("file")).unwrap().is_file());
    assert_eq!(fs::read_to_string(layer.dir.path().join("secret")).unwrap(), "host");
}

#[test]
fn hard_links_share_a_file_of_the_layer_or_of_those_below() {
    if !able() {
        return;
    }
    let below = unpacked(&[(FILE, "bin/tool", "tool")]);
    let dirs = [below.dir.path().join("layer")];
    let layer = unpack_over(&[(FILE, "a", "one"), (LINK, "b", "a"), (LINK, "c", "bin/tool")], &dirs);
    layer.result.as_ref().unwrap();
    assert_eq!(
        fs::metadata(layer.path("a")).unwrap().ino(),
        fs::metadata(layer.path("b")).unwrap().ino()
    );
    assert_eq!(fs::read_to_string(layer.path("c")).unwrap(), "tool");
    assert_eq!(fs::metadata(layer.path("c")).unwrap().uid(), 11);
    assert!(unpacked(&[(LINK, "b", "missing")]).result.is_err());
}

#[test]
fn a_hard_link_to_a_link_does_not_follow_it() {
    if !able() {
        return;
    }
    let layer = unpacked(&[(SYMLINK, "a", "/etc/shadow"), (LINK, "b", "a")]);
    layer.result.as_ref().unwrap();
    assert_eq!(fs::read_link(layer.path("b")).unwrap(), Path::new("/etc/shadow"));
}

#[test]
fn whiteouts_become_what_overlayfs_understands() {
    if !able() {
        return;
    }
    let layer = unpacked(&[
        (FILE, "etc/.wh.motd", ""),
        (FILE, "var/.wh..wh..opq", ""),
        (FILE, ".wh..wh.plnk", ""),
    ]);
    layer.result.as_ref().unwrap();
    let hidden = fs::metadata(layer.path("etc/motd")).unwrap();
    assert!(hidden.file_type().is_char_device() && hidden.rdev() == 0);
    let mut value = [0; 4];
    assert_eq!(rustix::fs::getxattr(layer.path("var"), OPAQUE_XATTR, &mut value), Ok(1));
    assert!(!layer.path(".wh..wh.plnk").exists());
}

#[test]
fn devices_are_nodes_except_those_that_would_hide_something() {
    if !able() {
        return;
    }
    let layer = unpacked(&[(EntryType::Char, "null", "1:3")]);
    layer.result.as_ref().unwrap();
    assert!(fs::metadata(layer.path("null")).unwrap().file_type().is_char_device());
    assert!(unpacked(&[(EntryType::Char, "trick", "0:0")]).result.is_err());
}

#[test]
fn a_directory_the_layer_leaves_out_is_like_the_one_below() {
    if !able() {
        return;
    }
    let below = tempfile::tempdir().unwrap();
    fs::create_dir(below.path().join("tmp")).unwrap();
    fs::set_permissions(
        below.path().join("tmp"),
        std::os::unix::fs::PermissionsExt::from_mode(0o1777),
    )
    .unwrap();
    let layer = unpack_over(&[(FILE, "tmp/file", "")], &[below.path().to_owned()]);
    layer.result.as_ref().unwrap();
    assert_eq!(fs::metadata(layer.path("tmp")).unwrap().mode() & 0o7777, 0o1777);
}

#[test]
fn a_link_in_the_layer_below_is_not_followed_out_when_its_directory_is_copied() {
    if !able() {
        return;
    }
    let below = tempfile::tempdir().unwrap();
    symlink("/etc", below.path().join("conf")).unwrap();
    let mode = fs::metadata("/etc").unwrap().mode();
    let layer = unpack_over(&[(FILE, "conf/file", "mine")], &[below.path().to_owned()]);
    layer.result.as_ref().unwrap();
    assert_eq!(fs::metadata("/etc").unwrap().mode(), mode);
    assert!(layer.path("conf/file").is_file());
}

#[test]
fn the_hosts_attributes_cannot_be_set() {
    if !able() {
        return;
    }
    let mut builder = tar::Builder::new(Vec::new());
    let attributes = [
        ("SCHILY.xattr.trusted.overlay.redirect", b"/etc".as_slice()),
        ("SCHILY.xattr.user.note", b"kept"),
    ];
    builder.append_pax_extensions(attributes).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(FILE);
    header.set_size(0);
    header.set_mode(0o644);
    builder.append_data(&mut header, "file", io::empty()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    unpack(builder.into_inner().unwrap().as_slice(), dir.path(), &[]).unwrap();
    let attribute = |name: &str| {
        let mut value = [0; 16];
        rustix::fs::getxattr(dir.path().join("file"), name, &mut value).map(|length| value[..length].to_vec())
    };
    assert!(attribute("trusted.overlay.redirect").is_err());
    assert!(
        attribute("user.note").is_ok_and(|value| value == b"kept")
            || attribute("user.note") == Err(rustix::io::Errno::OPNOTSUPP)
    );
}
