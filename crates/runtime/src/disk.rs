//! Small files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a file that is there either whole or not at all as long as the machine runs.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    fs::rename(temporary, path)?;
    Ok(file)
}

/// Has a file and its name reach the disk without waiting for it.
pub fn sync_later(file: File, directory: Option<PathBuf>) {
    let sync = move || {
        // A disk that cannot sync is found out by those who wait for it.
        let _ = file.sync_data();
        if let Some(directory) = directory.and_then(|directory| File::open(directory).ok()) {
            let _ = directory.sync_all();
        }
    };
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(sync)),
        Err(_) => sync(),
    }
}

/// Writes a file that a crash, even of the machine, leaves either old or new.
pub fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    fs::rename(temporary, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
