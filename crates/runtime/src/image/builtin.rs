//! The built-in image, `karve/builtin`: this very binary, so that a cluster without a registry has something to run.
//!
//! Its only layer holds the binary as `/karve`, shared with the running one where the file system allows, and the few
//! files that programs expect of a root. The entry point is `/karve`, and without arguments it pauses.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::config::RunConfig;
use super::digest::Digest;
use super::records::Image;
use super::store::{ImageError, ImageStore};
use crate::tree;

/// The short name; in full it is that of [`TAG`].
pub const NAME: &str = "karve/builtin";
pub const TAG: &str = "docker.io/karve/builtin:latest";
/// How the names of its layers begin, which no layer from outside has.
pub const LAYER_PREFIX: &str = "builtin-";

const DIRECTORIES: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("var", 0o755),
];

const FILES: &[(&str, &str)] = &[
    ("etc/group", "root:x:0:\nnobody:x:65534:\n"),
    ("etc/nsswitch.conf", "hosts: files dns\n"),
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/karve\nnobody:x:65534:65534:nobody:/:/karve\n",
    ),
];

impl ImageStore {
    /// Provides the built-in image, made from a binary.
    pub fn install_builtin(&self, binary: &Path) -> Result<(), ImageError> {
        let failed = |source: io::Error| ImageError::Io {
            path: binary.to_owned(),
            source,
        };
        let identity = identity(binary).map_err(failed)?;
        // Reading forty megabytes at every start would take longer than starting; size and times tell binaries apart.
        let id = Digest::sha256(identity.as_bytes());
        let layer = format!("{LAYER_PREFIX}{}", &id.hex()[..16]);
        let dir = self.layer_dir(&layer);
        if !dir.join("karve").is_file() {
            make_layer(binary, &dir).map_err(failed)?;
        }
        let size = fs::metadata(dir.join("karve")).map_err(failed)?.len();
        let config = RunConfig {
            entrypoint: vec!["/karve".into()],
            cmd: vec!["pause".into()],
            env: vec!["PATH=/".into()],
            working_dir: "/".into(),
            ..Default::default()
        };
        let image = Image {
            id: id.to_string(),
            tags: vec![TAG.into()],
            digests: Vec::new(),
            size,
            layers: vec![layer],
            config,
            pinned: true,
        };
        self.replace_builtin(image)
    }

    /// Puts the image in place of that of an earlier binary, which stays while containers run on it.
    fn replace_builtin(&self, image: Image) -> Result<(), ImageError> {
        for old in self.list().iter().filter(|old| old.pinned && old.id != image.id) {
            self.put(Image {
                tags: Vec::new(),
                pinned: false,
                ..Image::clone(old)
            })?;
        }
        self.put(image).map(drop)
    }
}

fn identity(binary: &Path) -> io::Result<String> {
    let metadata = fs::metadata(binary)?;
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    Ok(format!(
        "karve {} {} {modified:?}",
        env!("CARGO_PKG_VERSION"),
        metadata.len()
    ))
}

/// Makes the layer, or leaves nothing of it: on a full disk half a layer would take the space that everything else needs.
fn make_layer(binary: &Path, dir: &Path) -> io::Result<()> {
    let partial = dir.with_extension("partial");
    tree::remove(&partial)?;
    let made = fill_layer(binary, &partial)
        .and_then(|()| tree::remove(dir))
        .and_then(|()| fs::rename(&partial, dir));
    if made.is_err() {
        // What stays is removed with the next attempt.
        let _ = tree::remove(&partial);
    }
    made
}

fn fill_layer(binary: &Path, partial: &Path) -> io::Result<()> {
    fs::create_dir(partial)?;
    for (name, mode) in DIRECTORIES {
        fs::create_dir(partial.join(name))?;
        fs::set_permissions(partial.join(name), fs::Permissions::from_mode(*mode))?;
    }
    for (name, contents) in FILES {
        fs::write(partial.join(name), contents)?;
    }
    let place = partial.join("karve");
    // A link is refused across file systems; a copy keeps the binary's mode.
    if fs::hard_link(binary, &place).is_err() {
        fs::copy(binary, &place)?;
    }
    add_libraries(binary, partial)
}

/// Adds what a binary needs that is not linked statically, as those of developers are: its loader, and the libraries
/// that this process, which is such a binary, has loaded.
fn add_libraries(binary: &Path, root: &Path) -> io::Result<()> {
    let Some(loader) = loader(binary)? else { return Ok(()) };
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mapped = maps
        .lines()
        .filter_map(|line| line.find('/').map(|start| &line[start..]));
    let libraries = mapped.filter(|path| path.contains(".so"));
    for path in libraries.chain([loader.as_str()]) {
        let place = root.join(path.trim_start_matches('/'));
        if !place.exists() {
            fs::create_dir_all(place.parent().unwrap_or(root))?;
            fs::copy(path, &place)?;
        }
    }
    Ok(())
}

/// The loader that a binary names, if it does: a 64-bit little-endian ELF file has it in a program header.
fn loader(binary: &Path) -> io::Result<Option<String>> {
    const INTERPRETER: u64 = 3;
    const HEADER_BYTES: usize = 4096;
    let mut head = Vec::new();
    fs::File::open(binary)?
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut head)?;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let field = head.get(at..at.checked_add(bytes)?)?;
        Some(
            field
                .iter()
                .rev()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    };
    let found = || {
        let (table, size, count) = (
            number(32, 8)? as usize,
            number(54, 2)? as usize,
            number(56, 2)? as usize,
        );
        let header = (0..count)
            .map(|index| table + index * size)
            .find(|at| number(*at, 4) == Some(INTERPRETER))?;
        let (start, length) = (number(header + 8, 8)? as usize, number(header + 32, 8)? as usize);
        let name = head.get(start..start.checked_add(length)?)?;
        Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
    };
    Ok(if head.starts_with(b"\x7fELF\x02\x01") {
        found()
    } else {
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_cannot_be_made_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("builtin-1");
        make_layer(Path::new("/nonexistent/karve"), &dir).unwrap_err();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
