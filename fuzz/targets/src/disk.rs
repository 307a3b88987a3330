//! Images: what they are unpacked to stays within their directory.

use std::fs;
use std::path::Path;

use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

/// Runs a reader that writes to a directory, beside which nothing may appear.
fn within(read: impl FnOnce(&Path)) {
    let outer = TempDir::new().expect("there is room for a directory");
    let own = outer.path().join("own");
    fs::create_dir(&own).expect("there is room for a directory");
    read(&own);
    let names: Vec<_> = fs::read_dir(outer.path())
        .expect("it is still there")
        .flatten()
        .collect();
    assert_eq!(names.len(), 1, "something was written outside: {names:?}");
}

pub fn layer(data: &[u8]) {
    within(|dir| runtime::fuzzing::layer(data, dir));
}

pub fn archive(data: &[u8]) {
    within(|dir| runtime::fuzzing::archive(data, dir));
}

pub fn layers() -> Vec<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    add(&mut tar, EntryType::Directory, "etc/", "", b"");
    add(
        &mut tar,
        EntryType::Regular,
        "etc/passwd",
        "",
        b"root:x:0:0::/:/bin/sh\n",
    );
    add(&mut tar, EntryType::Symlink, "etc/up", "../..", b"");
    add(&mut tar, EntryType::Regular, "etc/up2/file", "", b"x");
    add(&mut tar, EntryType::Link, "etc/shadow", "etc/passwd", b"");
    add(&mut tar, EntryType::Fifo, "run/fifo", "", b"");
    add(&mut tar, EntryType::Regular, "etc/.wh.gone", "", b"");
    add(&mut tar, EntryType::Regular, "var/.wh..wh..opq", "", b"");
    add(&mut tar, EntryType::GNULongName, "././@LongLink", "", &[b'n'; 200]);
    add(
        &mut tar,
        EntryType::XHeader,
        "pax",
        "",
        b"30 SCHILY.xattr.user.name=value\n20 path=etc/other\n",
    );
    add(&mut tar, EntryType::Regular, "replaced", "", b"y");
    let mut escape = Builder::new(Vec::new());
    add(&mut escape, EntryType::Symlink, "out", "..", b"");
    add(&mut escape, EntryType::Regular, "out/escaped", "", b"x");
    let mut tricks = Builder::new(Vec::new());
    add(&mut tricks, EntryType::Regular, ".wh...", "", b"");
    add(&mut tricks, EntryType::Link, "c", "../../x", b"");
    add(&mut tricks, EntryType::GNUSparse, "sparse", "", b"");
    add(&mut tricks, EntryType::Char, "device", "", b"");
    let mut seeds: Vec<Vec<u8>> = [tar, escape, tricks].into_iter().map(finish).collect();
    // A frame of Zstandard with one block that repeats a byte, and an empty one of gzip.
    seeds.push(b"\x28\xb5\x2f\xfd\x00\x58\x03\x10\x00\x00".to_vec());
    seeds.push(b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0".to_vec());
    seeds
}

pub fn archives() -> Vec<Vec<u8>> {
    let mut docker = Builder::new(Vec::new());
    let manifest = br#"[{"Config":"c.json","RepoTags":["a/b:c"],"Layers":["l.tar"]}]"#;
    add(&mut docker, EntryType::Regular, "manifest.json", "", manifest);
    let config = br#"{"architecture":"amd64","os":"linux","config":{"Cmd":["/a"],"Env":["A=b"]},"rootfs":{"type":"layers","diff_ids":["sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"]}}"#;
    add(&mut docker, EntryType::Regular, "c.json", "", config);
    add(&mut docker, EntryType::Regular, "l.tar", "", &[0; 1024]);
    let mut oci = Builder::new(Vec::new());
    let index = br#"{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,"annotations":{"io.containerd.image.name":"a:b"}}]}"#;
    add(&mut oci, EntryType::Regular, "index.json", "", index);
    let blob = "blobs/sha256/44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    add(&mut oci, EntryType::Regular, blob, "", b"{}");
    let mut seeds: Vec<Vec<u8>> = [docker, oci].into_iter().map(finish).collect();
    seeds.extend([index.to_vec(), config.to_vec()]);
    seeds.push(b"registry.example.com:5000/a/b_c/d:tag@sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a".to_vec());
    seeds
}

fn finish(tar: Builder<Vec<u8>>) -> Vec<u8> {
    tar.into_inner().expect("memory takes everything")
}

/// Adds an entry as a careless or hostile writer might: nothing is checked.
fn add(tar: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, link: &str, content: &[u8]) {
    let mut header = Header::new_gnu();
    let fields = header.as_old_mut();
    fields.name[..path.len()].copy_from_slice(path.as_bytes());
    fields.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_cksum();
    tar.append(&header, content).expect("memory takes everything");
}
