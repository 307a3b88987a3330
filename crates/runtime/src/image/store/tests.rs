//! Importing, finding and removing images, from archives of both kinds. Needs root, as unpacking does.

mod hostile;

use super::*;
use expect_test::{Expect, expect};
use std::io::Write;

fn able() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "these tests need root");
    eprintln!("SKIPPED: importing images needs root");
    false
}

fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn config(layers: &[&[u8]]) -> Vec<u8> {
    let digests: Vec<_> = layers.iter().map(|layer| Digest::sha256(layer).to_string()).collect();
    config_with(&digests)
}

fn config_with(diff_ids: &[String]) -> Vec<u8> {
    let text = r#"{"config":{"User":"web","Env":null,"Cmd":["run"]},"rootfs":{"diff_ids":[LAYERS]}}"#;
    let digests: Vec<_> = diff_ids.iter().map(|digest| format!("{digest:?}")).collect();
    text.replace("LAYERS", &digests.join(",")).into_bytes()
}

/// An archive as docker save writes it.
fn docker_archive(name: &str, layers: &[&[u8]]) -> Vec<u8> {
    docker_archive_with(name, layers, &config(layers))
}

fn docker_archive_with(name: &str, layers: &[&[u8]], config: &[u8]) -> Vec<u8> {
    let names: Vec<_> = (0..layers.len()).map(|index| format!("{index}/layer.tar")).collect();
    let manifest = format!(r#"[{{"Config":"c.json","RepoTags":["{name}"],"Layers":{names:?}}}]"#);
    let mut files: Vec<(&str, &[u8])> = names.iter().map(String::as_str).zip(layers.iter().copied()).collect();
    files.push(("c.json", config));
    files.push(("manifest.json", manifest.as_bytes()));
    tar_of(&files)
}

/// A descriptor, with further fields.
fn described(bytes: &[u8], more: &str) -> String {
    let digest = Digest::sha256(bytes);
    format!(r#"{{"digest":"{digest}","size":{}{more}}}"#, bytes.len())
}

/// An OCI layout with compressed layers, for this machine and another.
fn oci_archive(name: &str, layers: &[&[u8]]) -> Vec<u8> {
    let config = config(layers);
    let blobs: Vec<_> = layers.iter().map(|layer| gzipped(layer)).collect();
    let layers: Vec<_> = blobs.iter().map(|blob| described(blob, "")).collect();
    let manifest = format!(
        r#"{{"config":{},"layers":[{}]}}"#,
        described(&config, ""),
        layers.join(",")
    );
    let name = format!(r#","annotations":{{"io.containerd.image.name":"{name}"}}"#);
    let index = format!(
        r#"{{"manifests":[{},{}]}}"#,
        described(b"", r#","platform":{"os":"linux","architecture":"pdp11"}"#),
        described(manifest.as_bytes(), &name),
    );
    let path = |bytes: &[u8]| format!("blobs/sha256/{}", Digest::sha256(bytes).hex());
    let mut files = vec![("index.json".to_owned(), index.clone().into_bytes())];
    files.extend(
        [config, manifest.into_bytes()]
            .into_iter()
            .chain(blobs)
            .map(|blob| (path(&blob), blob)),
    );
    let files: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    tar_of(&files)
}

fn store() -> (tempfile::TempDir, Arc<ImageStore>) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    (dir, Arc::new(store))
}

fn open(dir: &Path) -> ImageStore {
    ImageStore::open(dir, Launcher::Thread).unwrap()
}

fn import(store: &ImageStore, archive: Vec<u8>) -> Result<Vec<Arc<Image>>, ImageError> {
    use std::io::Seek;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&archive).unwrap();
    file.rewind().unwrap();
    let imported = store.import(&file)?;
    Ok(imported.into_iter().map(|imported| imported.image).collect())
}

/// Everything a store has beside what an empty one has.
fn left(store: &ImageStore) -> Vec<String> {
    let mut left = Vec::new();
    for part in ["layers", "configs", "records", "work", "downloads", "spool"] {
        for entry in fs::read_dir(store.dir.join(part)).into_iter().flatten().flatten() {
            let name = format!("{part}/{}", entry.file_name().display());
            left.extend((name != "layers/skeleton").then_some(name));
        }
    }
    left
}

/// The store's images and what is in its layers' directory.
fn check(store: &ImageStore, expect: Expect) {
    let mut lines: Vec<_> = store
        .list()
        .iter()
        .map(|image| {
            format!(
                "{} {} layers {} bytes",
                image.tags.join(","),
                image.layers.len(),
                image.size
            )
        })
        .collect();
    lines.sort();
    let on_disk = fs::read_dir(store.layers_dir())
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .count();
    lines.push(format!("{on_disk} directories\n"));
    expect.assert_eq(&lines.join("\n"));
}

#[test]
fn images_share_layers_and_removing_one_keeps_the_others() {
    if !able() {
        return;
    }
    let (_dir, store) = store();
    let (base, app) = (tar_of(&[("base", b"12345")]), tar_of(&[("app", b"123")]));
    import(&store, docker_archive("app:1", &[&base, &app])).unwrap();
    import(&store, gzipped(&docker_archive("base:1", &[&base]))).unwrap();
    check(
        &store,
        expect![[r#"
            docker.io/library/app:1 2 layers 8 bytes
            docker.io/library/base:1 1 layers 5 bytes
            3 directories
        "#]],
    );
    assert!(matches!(store.remove("app:1", |_| true), Err(ImageError::InUse(_))));
    store.remove("app:1", |_| false).unwrap();
    store.remove("app:1", |_| false).unwrap();
    check(
        &store,
        expect![[r#"
            docker.io/library/base:1 1 layers 5 bytes
            2 directories
        "#]],
    );
}

#[test]
fn an_oci_layout_gives_the_image_for_this_machine() {
    if !able() {
        return;
    }
    let (_dir, store) = store();
    let layer = tar_of(&[("file", b"1")]);
    let images = import(&store, oci_archive("registry.example/app:2", &[&layer])).unwrap();
    assert_eq!(images.len(), 1);
    assert_eq!(images[0].config.user, "web");
    let by_digest = images[0].digests[0].clone();
    assert!(by_digest.starts_with("registry.example/app@sha256:"));
    for name in ["registry.example/app:2", &by_digest, &images[0].id] {
        assert_eq!(store.find(name).unwrap().id, images[0].id, "{name}");
    }
    assert!(store.find("app:2").is_none());
}

#[test]
fn a_name_moves_to_the_image_imported_last() {
    if !able() {
        return;
    }
    let (_dir, store) = store();
    let (one, two) = (tar_of(&[("one", b"1")]), tar_of(&[("two", b"2")]));
    let first = import(&store, docker_archive("app", &[&one])).unwrap()[0].id.clone();
    let second = import(&store, docker_archive("app", &[&two])).unwrap()[0].id.clone();
    assert_eq!(store.find("app").unwrap().id, second);
    assert!(store.find(&first).unwrap().tags.is_empty());
}

#[test]
fn images_are_there_after_reopening() {
    if !able() {
        return;
    }
    let (dir, store) = store();
    let layer = tar_of(&[("file", b"1")]);
    import(&store, docker_archive("app", &[&layer])).unwrap();
    drop(store);
    let store = open(dir.path());
    check(
        &store,
        expect![[r#"
            docker.io/library/app:latest 1 layers 1 bytes
            2 directories
        "#]],
    );
}

#[test]
fn a_layer_that_is_not_what_the_image_says_is_refused() {
    if !able() {
        return;
    }
    let (_dir, store) = store();
    let (layer, other) = (tar_of(&[("file", b"1")]), tar_of(&[("file", b"2")]));
    let config = config(&[&other]);
    let manifest = r#"[{"Config":"c.json","RepoTags":["app"],"Layers":["l"]}]"#;
    let archive = tar_of(&[
        ("l", &layer),
        ("c.json", &config),
        ("manifest.json", manifest.as_bytes()),
    ]);
    assert!(matches!(import(&store, archive), Err(ImageError::Corrupt { .. })));
    assert!(store.find("app").is_none());
}

#[test]
fn what_is_no_archive_is_said_so() {
    if !able() {
        return;
    }
    let (_dir, store) = store();
    let error = import(&store, tar_of(&[("readme", b"")])).unwrap_err();
    assert!(error.to_string().contains("neither an OCI layout"), "{error}");
    assert!(import(&store, b"not a tar at all".to_vec()).is_err());
}

#[test]
fn files_are_found_through_layers_and_whiteouts() {
    if !able() {
        return;
    }
    let (_dir, store) = store();
    let base = tar_of(&[
        ("etc/passwd", b"base"),
        ("etc/group", b"base"),
        ("srv/deep/file", b"base"),
    ]);
    let top = tar_of(&[
        ("etc/passwd", b"top"),
        ("etc/.wh.group", b""),
        ("srv/.wh..wh..opq", b""),
    ]);
    let image = import(&store, docker_archive("app", &[&base, &top])).unwrap()[0].clone();
    let layers: Vec<_> = image.layers.iter().rev().map(|layer| store.layer_dir(layer)).collect();
    let read = |path: &str| super::super::read_file(&layers, Path::new(path), 100).unwrap();
    assert_eq!(read("etc/passwd").as_deref(), Some(b"top".as_slice()));
    assert_eq!(read("etc/group"), None);
    assert_eq!(read("srv/deep/file"), None);
    assert_eq!(read("missing"), None);
    assert!(super::super::read_file(&layers, Path::new("etc/passwd"), 2).is_err());
}
