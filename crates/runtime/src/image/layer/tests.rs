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

fn unpack_tar(tar: &[u8], below: &[PathBuf], bounds: &Bounds) -> Unpacked {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("layer")).unwrap();
    fs::write(dir.path().join("secret"), "host").unwrap();
    let root = fs::File::open(dir.path().join("layer")).unwrap();
    let below: Vec<OwnedFd> = below.iter().map(|dir| fs::File::open(dir).unwrap().into()).collect();
    let result = unpack(tar, root.as_fd(), &below, bounds, &mut |directory| {
        set_opaque(&directory)
    });
    Unpacked { dir, result }
}

fn unpack_over(entries: &[(EntryType, &str, &str)], below: &[PathBuf]) -> Unpacked {
    unpack_tar(&tar(entries), below, &Bounds::default())
}

fn unpacked(entries: &[(EntryType, &str, &str)]) -> Unpacked {
    unpack_over(entries, &[])
}

/// A file after the extension records that describe it.
fn tar_with_pax(records: &[(&str, &[u8])], path: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_pax_extensions(records.iter().copied()).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(FILE);
    header.set_size(0);
    header.set_mode(0o644);
    builder.append_data(&mut header, path, io::empty()).unwrap();
    builder.into_inner().unwrap()
}

/// Checks that a layer is refused, and why.
fn refused(layer: &Unpacked, why: &str) {
    let error = layer.result.as_ref().unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
    assert_eq!(fs::read_to_string(layer.dir.path().join("secret")).unwrap(), "host");
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
    // Version 2 of a file's capabilities, with CAP_NET_RAW permitted.
    let capability = [0x01, 0, 0, 0x02, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let forbidden = [
        "trusted.overlay.redirect",
        "trusted.overlay.opaque",
        "trusted.overlay.metacopy",
        "trusted.overlay.overlay.opaque",
        "user.overlay.opaque",
        "user.overlay.redirect",
        "security.selinux",
        "security.ima",
        "security.capability.other",
        "system.posix_acl_access",
    ];
    let records: Vec<(String, &[u8])> = forbidden
        .iter()
        .map(|name| (format!("SCHILY.xattr.{name}"), b"/etc".as_slice()))
        .chain([
            ("SCHILY.xattr.user.note".to_owned(), b"kept".as_slice()),
            ("SCHILY.xattr.security.capability".to_owned(), &capability),
        ])
        .collect();
    let records: Vec<_> = records.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let layer = unpack_tar(&tar_with_pax(&records, "file"), &[], &Bounds::default());
    layer.result.as_ref().unwrap();
    let attribute = |name: &str| {
        let mut value = [0; 32];
        rustix::fs::getxattr(layer.path("file"), name, &mut value).map(|length| value[..length].to_vec())
    };
    for name in forbidden {
        assert!(attribute(name).is_err(), "{name}");
    }
    let unsupported = Err(rustix::io::Errno::OPNOTSUPP);
    assert!(attribute("user.note") == Ok(b"kept".to_vec()) || attribute("user.note") == unsupported);
    assert_eq!(attribute("security.capability").unwrap(), capability);
}

#[test]
fn extension_records_are_bounded() {
    if !able() {
        return;
    }
    let huge = vec![b'n'; 8 << 20];
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(huge.len() as u64);
        header.set_cksum();
        builder.append(&header, huge.as_slice()).unwrap();
        let mut tar = builder.into_inner().unwrap();
        tar.truncate(tar.len() - 1024);
        tar.extend(self::tar(&[(FILE, "file", "")]));
        refused(&unpack_tar(&tar, &[], &Bounds::default()), "headers are larger than");
    }
    // A list of holes that has no end is the same in another dress.
    let mut sparse = tar::Header::new_gnu();
    sparse.set_entry_type(EntryType::GNUSparse);
    sparse.set_size(0);
    sparse.as_gnu_mut().unwrap().isextended[0] = 1;
    sparse.set_cksum();
    let mut extended = [0; 512];
    extended[504] = 1;
    let tar = [sparse.as_bytes().to_vec(), extended.repeat(10_000)].concat();
    refused(&unpack_tar(&tar, &[], &Bounds::default()), "headers are larger than");
}

#[test]
fn bytes_inodes_and_depth_are_bounded() {
    if !able() {
        return;
    }
    let bounds = Bounds { bytes: 10, inodes: 4 };
    let bounded = |entries: &[_]| unpack_tar(&tar(entries), &[], &bounds);
    bounded(&[(FILE, "a", "12345"), (FILE, "b", "12345")]).result.unwrap();
    refused(
        &bounded(&[(FILE, "a", "12345"), (FILE, "b", "123456")]),
        "more than 10 bytes",
    );
    // Directories that are only implied count, and so do links and whiteouts.
    refused(&bounded(&[(FILE, "a/b/c/d/e", "")]), "more than 4 files");
    let links = [
        (FILE, "a", ""),
        (LINK, "b", "a"),
        (SYMLINK, "c", "a"),
        (FILE, ".wh.d", ""),
        (DIR, "e", ""),
    ];
    refused(&bounded(&links), "more than 4 files");
    let deep = ["d/"; 300].concat();
    let long = tar_with_pax(&[("path", deep.as_bytes())], "x");
    refused(&unpack_tar(&long, &[], &Bounds::default()), "directories deep");
    // A hole costs nothing to write down.
    let mut sparse = tar::Header::new_gnu();
    sparse.set_entry_type(EntryType::GNUSparse);
    sparse.set_path("sparse").unwrap();
    sparse.set_mode(0o644);
    sparse.set_size(0);
    let gnu = sparse.as_gnu_mut().unwrap();
    gnu.realsize[..12].copy_from_slice(b"77777777777\0");
    gnu.sparse[0].offset[..12].copy_from_slice(b"77777777777\0");
    gnu.sparse[0].numbytes[..12].copy_from_slice(b"00000000000\0");
    sparse.set_cksum();
    refused(&unpack_tar(sparse.as_bytes(), &[], &bounds), "more than 10 bytes");
}

#[test]
fn a_copy_of_a_file_below_counts_as_much_as_the_file() {
    if !able() {
        return;
    }
    let below = unpacked(&[(FILE, "tool", "0123456789")]);
    let bounds = Bounds { bytes: 5, inodes: 10 };
    let layer = unpack_tar(&tar(&[(LINK, "b", "tool")]), &[below.path("")], &bounds);
    refused(&layer, "more than 5 bytes");
}

#[test]
fn whiteouts_hide_names_and_nothing_else() {
    if !able() {
        return;
    }
    for name in [".wh.", ".wh..", ".wh...", "a/.wh...", "a/.wh.."] {
        refused(&unpacked(&[(DIR, "a", ""), (FILE, name, "")]), "hides no name");
    }
    // Through a link that leads out of the layer there is nothing to hide.
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "kept").unwrap();
    let target = outside.path().display().to_string();
    for name in ["out/.wh.file", "out/.wh..wh..opq"] {
        let layer = unpacked(&[(SYMLINK, "out", &target), (FILE, name, "")]);
        assert!(layer.result.is_err(), "{name}");
    }
    assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "kept");
    let mut value = [0; 4];
    assert!(rustix::fs::getxattr(outside.path(), OPAQUE_XATTR, &mut value).is_err());
}

#[test]
fn strange_names_are_kept_or_refused_but_lead_nowhere() {
    if !able() {
        return;
    }
    let with_path = |path: &[u8]| unpack_tar(&tar_with_pax(&[("path", path)], "x"), &[], &Bounds::default());
    use std::os::unix::ffi::OsStrExt;
    let layer = with_path(b"not-\xff-text");
    layer.result.as_ref().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"not-\xff-text");
    assert!(layer.dir.path().join("layer").join(name).is_file());
    assert!(with_path(b"a\0b").result.is_err());
    assert!(with_path(b"../secret").result.is_err());
    assert!(with_path(b"a/../../secret").result.is_err());
    assert!(with_path(&[b'n'; 300]).result.is_err());
    let absolute = with_path(b"//etc//./passwd");
    absolute.result.as_ref().unwrap();
    assert!(absolute.path("etc/passwd").is_file());
    // The name of a hard link's target goes the same way.
    for target in ["../secret", "/../secret", "a/../../secret"] {
        let layer = unpacked(&[(LINK, "stolen", target)]);
        assert!(layer.result.is_err(), "{target}");
    }
}

#[test]
fn later_entries_take_the_place_of_earlier_ones() {
    if !able() {
        return;
    }
    let layer = unpacked(&[
        (FILE, "twice", "first"),
        (FILE, "twice", "second"),
        (SYMLINK, "dir", "/etc"),
        (DIR, "dir", ""),
        (FILE, "dir/passwd", "mine"),
        (DIR, "empty", ""),
        (FILE, "empty", "file"),
        (FILE, "a", "1"),
        (LINK, "b", "a"),
        (FILE, "b", "2"),
    ]);
    layer.result.as_ref().unwrap();
    let read = |name: &str| fs::read_to_string(layer.path(name)).unwrap();
    assert_eq!((read("twice"), read("dir/passwd")), ("second".into(), "mine".into()));
    // Writing to a name does not write to what it was linked with.
    assert_eq!(
        (read("empty"), read("a"), read("b")),
        ("file".into(), "1".into(), "2".into())
    );
    let full = unpacked(&[(FILE, "full/file", ""), (SYMLINK, "full", "/etc")]);
    assert!(full.result.is_err());
    // A whiteout of what the layer itself has, and the other way round.
    let layer = unpacked(&[
        (FILE, "x", ""),
        (FILE, ".wh.x", ""),
        (FILE, ".wh.y", ""),
        (FILE, "y", "new"),
    ]);
    layer.result.as_ref().unwrap();
    assert!(fs::metadata(layer.path("x")).unwrap().file_type().is_char_device());
    assert_eq!(fs::read_to_string(layer.path("y")).unwrap(), "new");
}

#[test]
fn what_other_programs_would_read_differently_is_refused() {
    if !able() {
        return;
    }
    // They take a directory to have no contents, and read the next entry from where ours would be skipped.
    let hidden = String::from_utf8(tar(&[(FILE, "hidden", "")])[..512].to_vec()).unwrap();
    refused(&unpacked(&[(DIR, "dir", &hidden)]), "a link or directory with contents");
    let sparse = tar_with_pax(&[("GNU.sparse.major", b"1")], "file");
    refused(&unpack_tar(&sparse, &[], &Bounds::default()), "sparse");
    refused(&unpacked(&[(FILE, "./", "x")]), "not a directory");
    assert!(unpacked(&[(EntryType::new(b'V'), "label", "")]).result.is_err());
    // Nothing is unpacked after the end.
    let two = [tar(&[(FILE, "one", "")]), tar(&[(FILE, "two", "")])].concat();
    let layer = unpack_tar(&two, &[], &Bounds::default());
    layer.result.as_ref().unwrap();
    assert!(layer.path("one").exists() && !layer.path("two").exists());
}

#[test]
fn owners_and_modes_are_those_of_the_image() {
    if !able() {
        return;
    }
    let entry = |uid: &[u8; 8], mode: u32| {
        let mut header = tar::Header::new_gnu();
        header.set_path("file").unwrap();
        header.set_entry_type(FILE);
        header.set_size(0);
        header.set_mode(mode);
        header.set_gid(7);
        header.as_old_mut().uid = *uid;
        header.set_cksum();
        unpack_tar(header.as_bytes(), &[], &Bounds::default())
    };
    let layer = entry(b"0000012\0", 0o4755);
    let metadata = fs::metadata(layer.path("file")).unwrap();
    assert_eq!(
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777),
        (10, 7, 0o4755)
    );
    assert_eq!(fs::metadata(entry(&[0; 8], 0o644).path("file")).unwrap().uid(), 0);
    // These would leave the file to root, who did not make it.
    let nobody = [0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    refused(&entry(&nobody, 0o4755), "no number");
    refused(&entry(&[0x80, 0, 0, 1, 0, 0, 0, 0], 0o644), "no number");
    assert!(entry(b"garbage\0", 0o644).result.is_err());
}

#[test]
fn a_directory_below_that_is_hidden_is_no_model() {
    if !able() {
        return;
    }
    let below = unpacked(&[(FILE, ".wh.srv", "")]);
    let layer = unpack_over(&[(FILE, "srv/file", "")], &[below.path("")]);
    layer.result.as_ref().unwrap();
    assert_eq!(fs::metadata(layer.path("srv")).unwrap().mode() & 0o7777, 0o755);
}
