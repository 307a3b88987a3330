//! Archives that are not what they say. Whatever they try, nothing of them stays.

use super::*;
use crate::image::archive::PackedImage;

/// Checks that an archive is refused, why, and that nothing of it stays.
fn refused(archive: Vec<u8>, why: &str) {
    let (_dir, store) = store();
    let error = import(&store, archive).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
    assert_eq!(left(&store), Vec::<String>::new());
}

#[test]
fn a_digest_that_is_a_path_gives_no_way_to_the_host() {
    if !able() {
        return;
    }
    // The first image leaves a link in a directory that it names itself, the second has that link as its lowest layer.
    let (dir, store) = store();
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("ca.key"), "secret").unwrap();
    let trap = host.path().join("x");
    let mut layer = tar::Builder::new(Vec::new());
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    layer.append_link(&mut link, "b", host.path()).unwrap();
    for (name, kind) in [
        ("b.size", tar::EntryType::Regular),
        ("forbidden", tar::EntryType::new(b'V')),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o644);
        layer.append_data(&mut header, name, io::empty()).unwrap();
    }
    let layer = layer.into_inner().unwrap();
    let paths = [trap.display().to_string(), format!("{}.partial/b", trap.display())];
    for path in paths {
        let archive = docker_archive_with("evil", &[&layer], &config_with(&[path]));
        let error = import(&store, archive).unwrap_err().to_string();
        assert!(error.contains("invalid digest"), "{error}");
    }
    let found: Vec<_> = fs::read_dir(host.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(found, ["ca.key"]);
    assert_eq!(left(&store), Vec::<String>::new());
    // Nor where a record, of whoever's making, says so.
    let id = "0".repeat(64);
    let record = format!(
        r#"{{"id":"sha256:{id}","tags":["docker.io/library/evil:latest"],"digests":[],"size":0,"layers":["{}"],"config":{{}}}}"#,
        host.path().display()
    );
    fs::write(dir.path().join("records").join(format!("{id}.json")), record).unwrap();
    drop(store);
    assert!(open(dir.path()).find("evil").is_none());
}

#[test]
fn every_digest_is_held_to_and_nothing_stays_of_what_lies() {
    if !able() {
        return;
    }
    let (layer, other) = (tar_of(&[("file", b"1")]), tar_of(&[("file", b"2")]));
    let digest = |bytes: &[u8]| Digest::sha256(bytes).to_string();
    let archive = |diff_ids: &[String]| docker_archive_with("app", &[&layer], &config_with(diff_ids));
    refused(archive(&[digest(&other)]), "the layer has digest");
    refused(archive(&[]), "lists 1 layers but 0 digests");
    refused(
        archive(&[digest(&layer), digest(&other)]),
        "lists 1 layers but 2 digests",
    );
    refused(archive(&[format!("sha512:{}", "0".repeat(128))]), "invalid digest");
    refused(archive(&[digest(&layer).to_uppercase()]), "invalid digest");
    let many = vec![layer.as_slice(); 129];
    refused(docker_archive("app", &many), "or more than 128");
    // A broken layer above one that is whole takes that one along.
    let two = docker_archive_with(
        "app",
        &[&layer, &other],
        &config_with(&[digest(&layer), digest(&layer)]),
    );
    refused(two, "the layer has digest");
}

#[test]
fn every_blob_of_a_layout_is_held_to_its_digest_and_size() {
    if !able() {
        return;
    }
    let layer = tar_of(&[("file", b"1")]);
    let archive = |change: &dyn Fn(&str) -> String| {
        let blob = gzipped(&layer);
        let config = config(&[&layer]);
        let manifest = format!(
            r#"{{"config":{},"layers":[{}]}}"#,
            described(&config, ""),
            described(&blob, "")
        );
        let manifest = change(&manifest);
        let index = format!(r#"{{"manifests":[{}]}}"#, described(manifest.as_bytes(), ""));
        let path = |bytes: &[u8]| format!("blobs/sha256/{}", Digest::sha256(bytes).hex());
        let other = gzipped(b"another blob");
        let files = [
            ("index.json".to_owned(), index.into_bytes()),
            (path(&config), config.clone()),
            (path(&blob), blob.clone()),
            (path(&other), other),
            // Not what its name says.
            (format!("blobs/sha256/{}", "1".repeat(64)), blob),
            (path(manifest.as_bytes()), manifest.into_bytes()),
        ];
        let files: Vec<_> = files
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
            .collect();
        tar_of(&files)
    };
    let (_dir, store) = store();
    import(&store, archive(&str::to_owned)).unwrap();
    let blob = gzipped(&layer);
    let (hex, size) = (Digest::sha256(&blob).hex().to_owned(), blob.len());
    let lies = "1".repeat(64);
    refused(
        archive(&|text| text.replace(&hex, &lies)),
        "the layer's blob has digest",
    );
    let sized = format!(r#""size":{size}}}]"#);
    refused(archive(&|text| text.replace(&sized, r#""size":7}]"#)), "bytes, not 7");
    refused(
        archive(&|text| text.replace(&hex, "../../../etc/passwd")),
        "invalid digest",
    );
    let config_hex = Digest::sha256(&config(&[&layer])).hex().to_owned();
    refused(archive(&|text| text.replace(&config_hex, &lies)), "bytes, not");
    refused(
        archive(&|text| text.replace("layers", "manifests")),
        "both manifests and layers",
    );
}

#[test]
fn names_in_an_archive_are_no_paths() {
    if !able() {
        return;
    }
    let layer = tar_of(&[("file", b"1")]);
    let config = config(&[&layer]);
    let archive = |config_name: &str, layer_name: &str, link: Option<&str>| {
        let manifest = format!(r#"[{{"Config":"{config_name}","RepoTags":["app"],"Layers":["{layer_name}"]}}]"#);
        let mut tar = tar::Builder::new(Vec::new());
        for (name, bytes) in [
            ("c.json", config.as_slice()),
            ("l", &layer),
            ("manifest.json", manifest.as_bytes()),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, name, bytes).unwrap();
        }
        if let Some(target) = link {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, "link", target).unwrap();
        }
        tar.into_inner().unwrap()
    };
    let (_dir, store) = store();
    import(&store, archive("c.json", "./l", None)).unwrap();
    import(&store, archive("c.json", "link", Some("l"))).unwrap();
    for name in [
        "/etc/passwd",
        "../../../../etc/passwd",
        "a/../../l",
        "contents",
        "1",
        "",
    ] {
        refused(archive("c.json", name, None), "is not in the archive");
        refused(archive(name, "l", None), "is not in the archive");
    }
    for target in ["/etc/passwd", "../../../../etc/passwd", "link", "missing"] {
        refused(archive("c.json", "link", Some(target)), "is not in the archive");
    }
    refused(archive("l", "l", None), "at line 1");
}

#[test]
fn documents_that_name_each_other_without_end_are_given_up() {
    if !able() {
        return;
    }
    let path = |bytes: &[u8]| format!("blobs/sha256/{}", Digest::sha256(bytes).hex());
    let many = |bytes: &[u8], count: usize| {
        let descriptor = described(bytes, "");
        format!(r#"{{"manifests":[{}]}}"#, vec![descriptor; count].join(",")).into_bytes()
    };
    let empty = br#"{"manifests":[]}"#.to_vec();
    let inner = many(&empty, 20_000);
    let outer = many(&inner, 20_000);
    let files = [
        (path(&empty), empty.clone()),
        (path(&inner), inner.clone()),
        ("index.json".to_owned(), outer),
    ];
    let files: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    refused(tar_of(&files), "take more than");
    // The same for an archive of docker save, which names one configuration again and again.
    let config = format!(r#"{{"x":"{}","rootfs":{{}}}}"#, "x".repeat(4 << 20));
    let image = r#"{"Config":"c","Layers":[]}"#;
    let manifest = format!("[{}]", vec![image; 100].join(","));
    let (_dir, store) = store();
    let error = import(
        &store,
        tar_of(&[("c", config.as_bytes()), ("manifest.json", manifest.as_bytes())]),
    );
    assert!(error.unwrap_err().to_string().contains("take more than"));
}

#[test]
fn a_killed_import_or_pull_leaves_nothing() {
    if !able() {
        return;
    }
    let (dir, store) = store();
    let layer = tar_of(&[("file", b"1")]);
    import(&store, docker_archive("app", &[&layer])).unwrap();
    let whole = left(&store);
    drop(store);
    for path in [
        "work/1-2/spool",
        "downloads/3-4",
        "spool/5",
        "layers/0123.partial",
        "layers/abc",
    ] {
        fs::create_dir_all(dir.path().join(path)).unwrap();
        fs::write(dir.path().join(path).join("data"), "left").unwrap();
    }
    for path in ["layers/abc.size", "configs/ff", "records/ff.new", "lock"] {
        fs::write(dir.path().join(path), "1").unwrap();
    }
    let store = open(dir.path());
    assert_eq!(left(&store), whole);
    assert!(!dir.path().join("lock").exists());
    assert!(store.find("app").is_some());
}

#[test]
fn images_are_for_root_alone() {
    use std::os::unix::fs::PermissionsExt;
    if !able() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().join("images");
    fs::create_dir(&images).unwrap();
    fs::set_permissions(&images, fs::Permissions::from_mode(0o755)).unwrap();
    open(&images);
    assert_eq!(fs::metadata(&images).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn the_built_in_image_keeps_its_name() {
    if !able() {
        return;
    }
    let layer = tar_of(&[("karve", b"1")]);
    for name in ["karve/builtin", "docker.io/karve/builtin:latest"] {
        refused(docker_archive(name, &[&layer]), "is that of the built-in image");
    }
}

#[test]
fn a_layer_that_an_image_on_its_way_counts_on_stays() {
    if !able() {
        return;
    }
    let (_dir, store) = store();
    let layer = tar_of(&[("file", b"1")]);
    import(&store, docker_archive("app", &[&layer])).unwrap();
    let config: ImageConfig = serde_json::from_slice(&config(&[&layer])).unwrap();
    let held = store.hold_layers(&config);
    assert_eq!(held.present, [0].into());
    store.remove("app", |_| false).unwrap();
    assert!(store.has_layer(&short_name(&Digest::sha256(&layer))));
    let packed = PackedImage {
        names: vec!["app".into()],
        manifest_digest: None,
        id: Digest::sha256(b"config"),
        config_bytes: b"config".to_vec(),
        config,
        layers: vec![None],
    };
    store.take(packed).unwrap();
    drop(held);
    store.remove("app", |_| false).unwrap();
    assert_eq!(left(&store), Vec::<String>::new());
}

#[test]
fn the_whole_digest_counts_and_not_only_what_the_directory_is_named_by() {
    if !able() {
        return;
    }
    let (_dir, store) = store();
    let (one, two) = (tar_of(&[("one", b"1")]), tar_of(&[("two", b"2")]));
    import(&store, docker_archive("one", &[&one])).unwrap();
    // As if the digests of both began alike.
    let [from, to] = [&one, &two].map(|layer| short_name(&Digest::sha256(layer)));
    for suffix in ["", ".size"] {
        let path = |name: &str| store.layers_dir().join(format!("{name}{suffix}"));
        fs::rename(path(&from), path(&to)).unwrap();
    }
    let error = import(&store, docker_archive("two", &[&two])).unwrap_err();
    assert!(matches!(error, ImageError::NameTaken(_)), "{error}");
}

/// A small file system of its own, which goes when it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(mebibytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={mebibytes}m")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", flags, options.as_c_str()).unwrap();
        Self(dir)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_disk_that_is_too_small_is_never_filled() {
    if !able() {
        return;
    }
    let disk = SmallDisk::new(8);
    let store = open(disk.0.path());
    let free = || {
        let stat = rustix::fs::statvfs(disk.0.path()).unwrap();
        stat.f_bavail * stat.f_frsize
    };
    let before = free();
    let refused = |archive: Vec<u8>, why: &str| {
        let error = import(&store, archive).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(left(&store), Vec::<String>::new());
        assert!(before.saturating_sub(free()) < 1 << 16, "something stays");
    };
    // Too large as it is, too large when its files are laid out, and too large when its layers are unpacked.
    let zeros = |mebibytes: usize| tar_of(&[("zeros", &vec![0; mebibytes << 20])]);
    let large = zeros(10);
    refused(docker_archive("app", &[&large]), "no space left for images");
    refused(gzipped(&docker_archive("app", &[&large])), "has more than");
    let compressed = gzipped(&large);
    let archive = docker_archive_with("app", &[&compressed], &config(&[&large]));
    refused(archive, "unpacks to more than");
    let halves = [zeros(4), tar_of(&[("more", &vec![1; 4 << 20])])];
    let packed = halves.each_ref().map(|half| gzipped(half));
    let config = config(&[&halves[0], &halves[1]]);
    refused(
        docker_archive_with("app", &[&packed[0], &packed[1]], &config),
        "more than",
    );
    assert!(store.check_room(before).is_err(), "some of the disk stays free");
    let small = zeros(2);
    import(
        &store,
        docker_archive_with("app", &[&gzipped(&small)], &super::config(&[&small])),
    )
    .unwrap();
}
