//! Every bound that images from outside are held to, in one place.

use std::time::Duration;

/// The options of an overlay must fit one page; image builders stop at this number too.
pub const MAX_LAYERS: usize = 128;

/// The most that a layer, or all layers of an archive, may unpack to, and the most that is fetched of one.
pub const MAX_LAYER_BYTES: u64 = 64 << 30;
/// The files, links and directories that one layer may make, those included that it only implies.
pub const MAX_LAYER_INODES: u64 = 4_000_000;
/// How deep the directories that one entry names may be. The kernel takes twice a thousand, programs far less.
pub const MAX_PATH_DEPTH: usize = 256;
/// What may stand between the contents of two files of a tar: the header, long names, attributes.
pub const MAX_EXTENSION_BYTES: u64 = 1 << 20;
/// The names of directories that are kept in memory, to set their times last.
pub const MAX_DIRECTORY_NAME_BYTES: usize = 64 << 20;

/// How many times larger than its compressed form a layer may be, above [`RATIO_FREE_BYTES`]. Nothing that gzip
/// can express is beyond it; other formats have no limit of their own.
pub const MAX_RATIO: u64 = 1100;
pub const RATIO_FREE_BYTES: u64 = 1 << 30;

/// Manifests and indexes larger than this are refused. Registries refuse them too.
pub const MAX_MANIFEST_BYTES: u64 = 4 << 20;
pub const MAX_CONFIG_BYTES: u64 = 8 << 20;
/// How deep an index may lead to further indexes.
pub const MAX_INDEX_DEPTH: u32 = 4;

pub const MAX_ARCHIVE_FILES: usize = 10_000;
/// The manifests, indexes and configurations that are read of one archive, however often they name each other.
pub const MAX_ARCHIVE_METADATA_BYTES: u64 = 256 << 20;
/// A file of an archive with a longer name is left out: nothing could refer to it.
pub const MAX_ARCHIVE_NAME_BYTES: usize = 1024;
/// How many links lead from a layer's name to its file.
pub const MAX_ARCHIVE_LINKS: u32 = 4;

/// How many processes unpack images at once.
pub const UNPACKERS_AT_ONCE: usize = 4;
/// How long one layer may take to unpack, and how much of a processor's time an unpacker may use.
pub const UNPACK_TIMEOUT: Duration = Duration::from_secs(3600);
pub const UNPACK_CPU_SECONDS: u64 = 3600;
/// The memory an unpacker may use beyond what it starts with: Zstandard's largest window, twice, and room to spare.
pub const UNPACKER_MEMORY_BYTES: u64 = 512 << 20;
pub const MAX_ZSTD_WINDOW_BYTES: u64 = 128 << 20;

/// What is left free on the disk of images, for everything else that is on it: so much, or a twentieth of the disk
/// where that is less.
pub const RESERVED_BYTES: u64 = 1 << 30;
