//! Images and messages that are not what they should be, for `fuzz/`.

use std::io::Cursor;
use std::path::Path;

use crate::image::{archive, config, layer, manifest, reference};
use crate::protocol::{self, Message, Request};

/// A layer of a fuzzer unpacks to no more than this.
const MAX_BYTES: u64 = 1 << 20;

/// Unpacks the bytes, which may be compressed, as a layer into an empty directory.
pub fn layer(data: &[u8], into: &Path) {
    if let Ok(tar) = archive::decompressed(Cursor::new(data.to_vec())) {
        let _ = layer::unpack_at_most(MAX_BYTES, tar, into, &[]);
    }
}

/// Reads the bytes as an archive of images, spooled to an empty directory, and as each of its documents.
pub fn archive(data: &[u8], spool: &Path) {
    let _ = archive::open(data, spool);
    let _ = serde_json::from_slice::<manifest::Index>(data);
    let _ = serde_json::from_slice::<manifest::Manifest>(data);
    let _ = serde_json::from_slice::<config::ImageConfig>(data);
    let name = String::from_utf8_lossy(data);
    if let Ok(read) = reference::Reference::parse(&name) {
        let again = reference::Reference::parse(&read.key()).map(|again| again.key());
        assert_eq!(again.ok(), Some(read.key()), "{name:?}");
    }
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
