//! Reading a file of an image from its layers, without mounting them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::layer::OPAQUE_XATTR;
use crate::within;

/// Reads a file from layers, given topmost first, as their overlay would show it. None where it would show none.
pub fn read_file(layers: &[PathBuf], path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    for layer in layers {
        let root: OwnedFd = File::open(layer)?.into();
        match look(root.as_fd(), path)? {
            Found::File => return within::read(root.as_fd(), path, limit).map(Some),
            Found::Hidden => return Ok(None),
            Found::Nothing => {}
        }
    }
    Ok(None)
}

enum Found {
    File,
    /// Neither here nor visible in the layers below.
    Hidden,
    Nothing,
}

fn look(root: BorrowedFd<'_>, path: &Path) -> io::Result<Found> {
    for part in path
        .ancestors()
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .filter(|part| !part.as_os_str().is_empty())
    {
        let place = match within::open(root, part) {
            Ok(place) => place,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        let stat = rustix::fs::fstat(&place)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice if stat.st_rdev == 0 => return Ok(Found::Hidden),
            FileType::Directory if part != path && is_opaque(&place) => {
                let below = within::open(root, path);
                return Ok(if below.is_ok() { Found::File } else { Found::Hidden });
            }
            _ => {}
        }
    }
    Ok(Found::File)
}

fn is_opaque(directory: &OwnedFd) -> bool {
    use std::os::fd::AsRawFd;
    let mut value = [0; 1];
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    rustix::fs::getxattr(path, OPAQUE_XATTR, &mut value).is_ok_and(|length| length == 1 && value == *b"y")
}
