//! Unpacking in a process of its own: what comes from outside is decompressed and read by nobody who has anything to
//! lose.
//!
//! `client` is Karve's side. It starts a process per image and hands it descriptors: the file to read, the directory to
//! fill, those of the layers below. `serve` is that process, `confine` what it gives up before it reads anything,
//! `filter` the system calls it keeps. Whatever becomes of it, crash or no end, is the failure of one pull.

mod client;
mod confine;
mod filter;
mod serve;

pub use client::{Launcher, UnpackError, Unpacked, Unpacker};
pub use serve::main;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::layer::Bounds;

/// The first argument that makes the binary an unpacker.
pub const SUBCOMMAND: &str = "image-unpacker";

const MAX_MESSAGE_BYTES: usize = 4096;
/// How much of a failure is told: it may repeat names of the image.
const MAX_FAILURE_CHARS: usize = 600;

/// What Karve asks. Each message has the descriptors that its comment says.
#[derive(Debug, Serialize, Deserialize)]
enum Call {
    /// A layer that is there already, on top of those before it: its directory.
    Below,
    /// Unpack a layer, which then counts as one below: the blob, the directory.
    Layer { bounds: Bounds, digest_blob: bool },
    /// Spool an archive: the archive, the directory.
    Spool { max_bytes: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The directory beside this hides those of the layers below: Karve is to mark it. The answer proper follows.
    Opaque,
    Done,
    Unpacked {
        bytes: u64,
        content: Digest,
        blob: Option<Digest>,
    },
    Failed(String),
}
