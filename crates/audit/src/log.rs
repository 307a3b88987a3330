//! A file with one event per line, which is put aside when it gets long.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::mpsc;
use tracing::warn;

use crate::auditor::BackendFigures;
use crate::{Event, TruncateOptions};

/// Events that are written together when several wait.
const MAX_TOGETHER: usize = 400;
/// A failing disk is not told of at every event.
const WARNING_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct LogOptions {
    /// `-` is the standard output.
    pub path: PathBuf,
    /// Files that were put aside are removed after so many days, if not zero.
    pub max_age_days: u64,
    /// Only so many of them are kept, if not zero.
    pub max_backups: usize,
    pub max_bytes: u64,
    pub compress: bool,
    pub buffer_size: usize,
    pub truncate: TruncateOptions,
}

/// The file that is written to just now.
pub struct LogFile {
    options: LogOptions,
    target: Target,
}

enum Target {
    Output,
    File { file: File, bytes: u64 },
}

impl LogFile {
    /// Opens the file for writing behind what is there. Only its owner can read it: requests hold secrets.
    pub fn open(options: LogOptions) -> io::Result<LogFile> {
        let target = match options.path.as_os_str() == "-" {
            true => Target::Output,
            false => open(&options.path)?,
        };
        Ok(LogFile { options, target })
    }

    pub(crate) fn buffer_size(&self) -> usize {
        self.options.buffer_size
    }

    /// Writes what comes in until nothing more can come. Runs on a thread of its own, so that a slow disk holds up nobody.
    pub(crate) fn run(mut self, mut events: mpsc::Receiver<Arc<Event>>, figures: &BackendFigures) {
        let mut waiting = Vec::new();
        let mut warned: Option<Instant> = None;
        while events.blocking_recv_many(&mut waiting, MAX_TOGETHER) > 0 {
            let mut lines = Vec::new();
            let mut count = 0;
            for event in waiting.drain(..) {
                match self.options.truncate.encode(&event) {
                    Some(encoded) => {
                        lines.extend_from_slice(&encoded);
                        lines.push(b'\n');
                        count += 1;
                    }
                    None => figures.lost(1),
                }
            }
            if let Err(error) = self.write(&lines) {
                figures.lost(count);
                let is_old = |at: Instant| at.elapsed() > WARNING_INTERVAL;
                if warned.is_none_or(is_old) {
                    warn!(path = %self.options.path.display(), %error, "Failed to write audit events; they are lost");
                    warned = Some(Instant::now());
                }
            }
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Target::File { bytes, .. } = &self.target
            && *bytes > 0
            && *bytes + lines.len() as u64 > self.options.max_bytes
        {
            self.rotate()?;
        }
        match &mut self.target {
            Target::Output => io::stdout().lock().write_all(lines),
            Target::File { file, bytes } => {
                file.write_all(lines)?;
                *bytes += lines.len() as u64;
                Ok(())
            }
        }
    }

    /// Puts the file aside under the time, begins a new one, and removes what is kept no longer.
    fn rotate(&mut self) -> io::Result<()> {
        let path = &self.options.path;
        let aside = backup_name(path, &schema::time::format_micro(schema::time::now()));
        fs::rename(path, &aside)?;
        self.target = open(path)?;
        if self.options.compress {
            compress(&aside)?;
        }
        self.remove_old()
    }

    fn remove_old(&self) -> io::Result<()> {
        let mut backups = backups(&self.options.path)?;
        // The names hold the time, so the newest come first.
        backups.sort_unstable_by(|one, other| other.cmp(one));
        let max_age = Duration::from_secs(self.options.max_age_days * 24 * 3600);
        for (index, backup) in backups.iter().enumerate() {
            let is_too_many = self.options.max_backups > 0 && index >= self.options.max_backups;
            let age = fs::metadata(backup)?.modified()?.elapsed().unwrap_or_default();
            if is_too_many || self.options.max_age_days > 0 && age > max_age {
                fs::remove_file(backup)?;
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<Target> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let bytes = file.metadata()?.len();
    Ok(Target::File { file, bytes })
}

/// `audit.log` becomes `audit-2026-01-02T15-04-05.000000Z.log`.
fn backup_name(path: &Path, time: &str) -> PathBuf {
    let (stem, extension) = parts(path);
    path.with_file_name(format!("{stem}-{}{extension}", time.replace(':', "-")))
}

fn parts(path: &Path) -> (String, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = path
        .extension()
        .map(|extension| format!(".{}", extension.to_string_lossy()));
    (stem, extension.unwrap_or_default())
}

fn backups(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (stem, extension) = parts(path);
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let time = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('-'));
        let plain = time.map(|rest| rest.strip_suffix(".gz").unwrap_or(rest));
        let is_backup = plain
            .and_then(|rest| rest.strip_suffix(&extension))
            .is_some_and(|time| time.starts_with(|first: char| first.is_ascii_digit()) && time.ends_with('Z'));
        if is_backup {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let compressed = OpenOptions::new().create_new(true).write(true).mode(0o600).open(name)?;
    let mut encoder = GzEncoder::new(compressed, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::remove_file(path)
}
