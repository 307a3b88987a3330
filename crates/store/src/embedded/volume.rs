//! The files of one store: their names, the stamp that guards upgrades, and how damage is reported.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::frame::Salt;
use super::record::RecordError;
use crate::codec::Codec;
use crate::{Revision, StoreError};

/// The layout that this version reads and writes. Raise it when an older version could no longer read the files.
const FORMAT: u32 = 1;
const STAMP: &str = "format";
const STAMP_WORD: &str = "karve-store";

#[derive(Clone)]
pub(crate) struct Volume {
    pub disk: Arc<dyn Disk>,
    pub salt: Salt,
    /// How values lie in the files. In memory they are as they were written.
    pub codec: Arc<dyn Codec>,
}

/// What a file name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// The state at this revision.
    Checkpoint(Revision),
    /// The log from this revision on.
    Segment(Revision),
    /// Something that was not finished before a crash.
    Unfinished,
}

impl Name {
    pub fn parse(name: &str) -> Option<Self> {
        if name.ends_with(".tmp") {
            return Some(Name::Unfinished);
        }
        let number = |text: &str| text.parse().ok();
        let checkpoint = name.strip_prefix("checkpoint-").and_then(number).map(Name::Checkpoint);
        checkpoint.or_else(|| name.strip_prefix("log-").and_then(number).map(Name::Segment))
    }

    pub fn checkpoint(revision: Revision) -> String {
        format!("checkpoint-{revision:020}")
    }

    pub fn segment(first: Revision) -> String {
        format!("log-{first:020}")
    }
}

impl Volume {
    /// Checks the stamp, or puts one on an empty directory.
    pub fn open(disk: Arc<dyn Disk>, codec: Arc<dyn Codec>) -> Result<Self, StoreError> {
        let names = disk.names()?;
        let stamped = names.iter().any(|name| name == STAMP);
        let used = names
            .iter()
            .any(|name| matches!(Name::parse(name), Some(Name::Checkpoint(_) | Name::Segment(_))));
        let salt = match (stamped, used) {
            (true, _) => read_stamp(&*disk)?,
            (false, false) => write_stamp(&*disk)?,
            (false, true) => {
                let path = disk.path(STAMP);
                return Err(StoreError::Corrupt(format!(
                    "{path} is missing although there is data beside it; restore the directory from a backup"
                )));
            }
        };
        Ok(Volume { disk, salt, codec })
    }

    /// The lengths of all files. One that goes while they are added up counts as gone.
    pub fn bytes(&self) -> io::Result<u64> {
        let names = self.disk.names()?;
        let lengths = names.iter().filter_map(|name| self.disk.open(name).ok()?.length().ok());
        Ok(lengths.sum())
    }

    /// Fails when the segment that is being written no longer has its name: what is written to it would be lost with the
    /// next start.
    pub fn check_in_place(&self, first: Revision) -> io::Result<()> {
        let name = Name::segment(first);
        let path = self.disk.path(&name);
        let lost = |why: String| io::Error::new(io::ErrorKind::NotFound, format!("{path} is gone: {why}"));
        let names = self.disk.names().map_err(|error| lost(error.to_string()))?;
        match names.contains(&name) {
            true => Ok(()),
            false => Err(lost("somebody removed it while it was in use".into())),
        }
    }

    /// Damage in `name`, said so that a person knows what happened and what they can do.
    pub fn damaged(&self, name: &str, offset: usize, why: &str) -> StoreError {
        let path = self.disk.path(name);
        StoreError::Corrupt(format!(
            "{path} is damaged at byte {offset}: {why}. Nothing was changed. Restore the directory from a backup"
        ))
    }

    /// A record in `name` that cannot be read. Where only the codec fails, the file may well be sound.
    pub fn unreadable(&self, name: &str, offset: usize, error: &RecordError) -> StoreError {
        match error {
            RecordError::Malformed => self.damaged(name, offset, &error.to_string()),
            RecordError::Codec { .. } => {
                let path = self.disk.path(name);
                StoreError::Corrupt(format!(
                    "{path} cannot be read at byte {offset}: {error}. Nothing was changed"
                ))
            }
        }
    }

    /// Writes a whole file so that it appears under its name complete or not at all.
    pub fn replace(&self, name: &str, write: impl FnOnce(&dyn DiskFile) -> io::Result<()>) -> io::Result<()> {
        replace(&*self.disk, name, |unfinished| self.disk.create(unfinished), write)
    }

    /// As [`Self::replace`], but into a file that `create` makes under a name that it is given.
    pub fn replace_with(
        &self,
        name: &str,
        create: impl FnOnce(&str) -> io::Result<Arc<dyn DiskFile>>,
        write: impl FnOnce(&dyn DiskFile) -> io::Result<()>,
    ) -> io::Result<()> {
        replace(&*self.disk, name, create, write)
    }
}

fn replace(
    disk: &dyn Disk,
    name: &str,
    create: impl FnOnce(&str) -> io::Result<Arc<dyn DiskFile>>,
    write: impl FnOnce(&dyn DiskFile) -> io::Result<()>,
) -> io::Result<()> {
    let unfinished = format!("{name}.tmp");
    let finished = create(&unfinished).and_then(|file| {
        write(&*file)?;
        file.sync()?;
        disk.rename(&unfinished, name)?;
        disk.sync_names()
    });
    if finished.is_err() {
        // Only to free the space; recovery removes it otherwise.
        let _ = disk.remove(&unfinished);
    }
    finished
}

/// Replaces what is in `data` by the file.
pub(crate) fn read_whole(file: &dyn DiskFile, data: &mut Vec<u8>) -> io::Result<()> {
    data.resize(file.length()? as usize, 0);
    file.read_at(data, 0)
}

fn read_stamp(disk: &dyn Disk) -> Result<Salt, StoreError> {
    let path = disk.path(STAMP);
    let mut data = Vec::new();
    read_whole(&*disk.open(STAMP)?, &mut data)?;
    let text = String::from_utf8_lossy(&data);
    let (said, check) = text.trim_end().rsplit_once(' ').unwrap_or_default();
    let intact = check == checksum(said);
    let words: Vec<&str> = said.split(' ').collect();
    let (format, salt) = match words[..] {
        [STAMP_WORD, format, salt] if intact => (format.parse::<u32>().ok(), u32::from_str_radix(salt, 16).ok()),
        _ => (None, None),
    };
    match (format, salt) {
        (Some(FORMAT), Some(salt)) => Ok(Salt(salt)),
        (Some(format), _) if format > FORMAT => Err(StoreError::Corrupt(format!(
            "{path} says format {format}, this version knows up to {FORMAT}; use the newer version that wrote it"
        ))),
        _ => Err(StoreError::Corrupt(format!(
            "{path} does not say a known format; restore the directory from a backup"
        ))),
    }
}

fn write_stamp(disk: &dyn Disk) -> io::Result<Salt> {
    let salt = clock::below(u32::MAX);
    let said = format!("{STAMP_WORD} {FORMAT} {salt:08x}");
    let text = format!("{said} {}\n", checksum(&said));
    let create = |unfinished: &str| disk.create(unfinished);
    replace(disk, STAMP, create, |file| file.write_at(text.as_bytes(), 0))?;
    Ok(Salt(salt))
}

fn checksum(text: &str) -> String {
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}
