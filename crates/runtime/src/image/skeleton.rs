//! The layer below every image: the places that containers have something mounted at.
//!
//! Where an image lacks such a place it would have to be made in each container's own layer, which takes the disk
//! longer than everything else about starting it.

use std::fs;
use std::io;
use std::path::Path;

/// The layer's name among the others.
pub const NAME: &str = "skeleton";

const DIRECTORIES: &[&str] = &[
    "dev",
    "etc",
    "proc",
    "run/secrets/kubernetes.io/serviceaccount",
    "sys",
    "var/run/secrets/kubernetes.io/serviceaccount",
];

const FILES: &[&str] = &["etc/hostname", "etc/hosts", "etc/resolv.conf"];

/// Makes what is missing of the layer.
pub fn make(layers_dir: &Path) -> io::Result<()> {
    let dir = layers_dir.join(NAME);
    DIRECTORIES
        .iter()
        .try_for_each(|path| fs::create_dir_all(dir.join(path)))?;
    FILES.iter().try_for_each(|path| {
        fs::File::options()
            .create(true)
            .append(true)
            .open(dir.join(path))
            .map(drop)
    })
}
