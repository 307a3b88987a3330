//! Images and messages that are not what they should be, for `fuzz/`.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use crate::image::archive::{self, ArchiveError};
use crate::image::layer::{self, Bounds};
use crate::image::{config, manifest, reference, stream};
use crate::protocol::{self, Message, Request};

/// What comes of a fuzzer unpacks to no more than this.
const MAX_BYTES: u64 = 1 << 20;
const MAX_INODES: u64 = 1000;

/// Unpacks the bytes, which may be compressed, as a layer into an empty directory.
pub fn layer(data: &[u8], into: &Path) {
    let Ok(into) = File::open(into) else { return };
    let bounds = Bounds {
        bytes: MAX_BYTES,
        inodes: MAX_INODES,
    };
    let _ = stream::read(data, 4 * MAX_BYTES, true, |tar| {
        layer::unpack(tar, into.as_fd(), &[], &bounds, &mut |_| Ok(()))
    });
}

/// Reads the bytes as an archive of images, spooled to an empty directory, and as each of its documents.
pub fn archive(data: &[u8], spool: &Path) {
    let Ok(spool) = File::open(spool) else { return };
    let spooled = stream::read(data, 4 * MAX_BYTES, false, |tar| {
        archive::spool(tar, spool.as_fd(), MAX_BYTES)
    });
    if spooled.is_ok() {
        let _ = archive::images(spool.as_fd(), &mut |image| {
            assert_eq!(image.layers.len(), image.config.rootfs.diff_ids.len());
            Ok::<_, ArchiveError>(())
        });
    }
    let _ = manifest::Document::read(data, "");
    let _ = serde_json::from_slice::<config::ImageConfig>(data);
    let name = String::from_utf8_lossy(data);
    if let Ok(read) = reference::Reference::parse(&name) {
        let again = reference::Reference::parse(&read.key()).map(|again| again.key());
        assert_eq!(again.ok(), Some(read.key()), "{name:?}");
    }
}

/// Reads the bytes as what a registry says in headers: where tokens are, and where to look instead.
pub fn registry(data: &[u8]) {
    crate::image::registry::read_header(&String::from_utf8_lossy(data));
}

pub fn registry_seeds() -> Vec<Vec<u8>> {
    let seeds = [
        r#"Bearer realm="https://auth.example/token",service="reg",scope="repository:a/b:pull,push""#,
        "Basic realm=x",
        "https://reg.example:5000/v2/a?b=c#d",
        "http://[::ffff:127.0.0.1]:1/x",
        "/relative/path",
    ];
    seeds.map(|seed| seed.as_bytes().to_vec()).into()
}

/// Reads the bytes as messages to and from a pod's supervisor.
pub fn messages(data: &[u8]) {
    let mut received = data.to_vec();
    while let Ok(Some(_)) = protocol::decode::<Request>(&mut received) {}
    let mut received = data.to_vec();
    while let Ok(Some(_)) = protocol::decode::<Message>(&mut received) {}
}

/// Messages, to begin with.
pub fn message_seeds() -> Vec<Vec<u8>> {
    let request = |call| Request { id: 1, call };
    let calls = [
        protocol::Call::Hello { version: 1 },
        protocol::Call::Stop,
        protocol::Call::Signal {
            container: "web".to_owned(),
            signal: 15,
            all: false,
        },
    ];
    calls.map(request).iter().flat_map(protocol::encode).collect()
}
