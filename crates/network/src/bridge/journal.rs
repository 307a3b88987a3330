//! The addresses on disk: a text file with one line per change, appended before the change counts.
//!
//! A write is in the kernel's hands when it returns, so killing the process loses nothing. It is not synced: whatever
//! takes the kernel down takes all pods' interfaces down too, and nothing is owned after that.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::addresses::{Addresses, Record};
use crate::NetworkError;

/// The journal is written anew when it has this many lines more than are needed.
const SUPERFLUOUS_LINES: usize = 4096;

/// The addresses and their file.
#[derive(Debug)]
pub struct Journal {
    pub addresses: Addresses,
    path: PathBuf,
    file: File,
    lines: usize,
    /// Held for as long as this exists: two writers would hand out the same addresses.
    _lock: File,
}

impl Journal {
    pub fn open(data_dir: &Path) -> Result<Journal, NetworkError> {
        fs::create_dir_all(data_dir).map_err(|source| file_error("create", data_dir, source))?;
        let lock = lock(&data_dir.join("lock"))?;
        let path = data_dir.join("addresses");
        let mut addresses = Addresses::default();
        for record in read(&path)? {
            addresses.apply(&record);
        }
        let (file, lines) = rewrite(&path, &addresses)?;
        Ok(Journal {
            addresses,
            path,
            file,
            lines,
            _lock: lock,
        })
    }

    /// Makes a change true.
    pub fn commit(&mut self, record: &Record) -> Result<(), NetworkError> {
        self.file
            .write_all(line(record).as_bytes())
            .map_err(|source| file_error("append to", &self.path, source))?;
        self.addresses.apply(record);
        self.lines += 1;
        if self.lines > SUPERFLUOUS_LINES + self.addresses.record_count() {
            self.compact()?;
        }
        Ok(())
    }

    /// Writes the file anew with only the lines that are needed.
    pub fn compact(&mut self) -> Result<(), NetworkError> {
        (self.file, self.lines) = rewrite(&self.path, &self.addresses)?;
        Ok(())
    }
}

fn lock(path: &Path) -> Result<File, NetworkError> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.map_err(|source| file_error("open", path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let source = io::Error::new(io::ErrorKind::WouldBlock, "another process uses this directory");
            Err(file_error("lock", path, source))
        }
        Err(TryLockError::Error(source)) => Err(file_error("lock", path, source)),
    }
}

/// The records of a journal. A last line without its end was being written when the process died; it never counted.
fn read(path: &Path) -> Result<Vec<Record>, NetworkError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(file_error("read", path, source)),
    };
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let parse_line = |(index, line)| {
        parse(line).ok_or(NetworkError::Journal {
            path: path.to_owned(),
            line: index + 1,
            reason: "it is none of '+ ID IP…', '- ID', '~ IP'; remove the file when no pod is running",
        })
    };
    text[..whole].lines().enumerate().map(parse_line).collect()
}

fn rewrite(path: &Path, addresses: &Addresses) -> Result<(File, usize), NetworkError> {
    let records = addresses.records();
    let text: String = records.iter().map(line).collect();
    let new = path.with_extension("new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    written.map_err(|source| file_error("write", path, source))?;
    let file = OpenOptions::new().append(true).open(path);
    let file = file.map_err(|source| file_error("open", path, source))?;
    Ok((file, records.len()))
}

fn line(record: &Record) -> String {
    match record {
        Record::Assigned { id, ips } => {
            let ips: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
            format!("+ {id} {}\n", ips.join(" "))
        }
        Record::Released { id } => format!("- {id}\n"),
        Record::Freed { ip } => format!("~ {ip}\n"),
    }
}

fn parse(line: &str) -> Option<Record> {
    let mut words = line.split(' ');
    match words.next()? {
        "+" => Some(Record::Assigned {
            id: words.next()?.to_owned(),
            ips: words.map(|ip| ip.parse().ok()).collect::<Option<_>>()?,
        }),
        "-" => Some(Record::Released {
            id: words.next()?.to_owned(),
        }),
        "~" => Some(Record::Freed {
            ip: words.next()?.parse().ok()?,
        }),
        _ => None,
    }
}

fn file_error(operation: &'static str, path: &Path, source: io::Error) -> NetworkError {
    NetworkError::File {
        operation,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(journal: &mut Journal, id: &str) -> String {
        if let Some(record) = journal.addresses.assign(id).unwrap() {
            journal.commit(&record).unwrap();
        }
        journal.addresses.of_sandbox(id).unwrap()[0].to_string()
    }

    fn open(dir: &Path) -> Journal {
        let mut journal = Journal::open(dir).unwrap();
        journal.addresses.set_blocks(&["10.1.0.0/24".parse().unwrap()]).unwrap();
        journal
    }

    #[test]
    fn what_was_written_survives_and_a_torn_line_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(dir.path());
        assert_eq!(assigned(&mut journal, "a"), "10.1.0.2");
        assert_eq!(assigned(&mut journal, "b"), "10.1.0.3");
        let record = journal.addresses.release("a").unwrap();
        journal.commit(&record).unwrap();
        drop(journal);

        let path = dir.path().join("addresses");
        let mut text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "+ a 10.1.0.2\n+ b 10.1.0.3\n- a\n");
        text.push_str("+ c 10.1.0");
        fs::write(&path, text).unwrap();

        let mut journal = open(dir.path());
        assert_eq!(fs::read_to_string(&path).unwrap(), "~ 10.1.0.2\n+ b 10.1.0.3\n");
        assert_eq!(assigned(&mut journal, "c"), "10.1.0.4");
        assert_eq!(assigned(&mut journal, "b"), "10.1.0.3");
    }

    #[test]
    fn wherever_the_process_is_killed_no_address_is_given_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("addresses");
        let mut journal = open(dir.path());
        for id in ["a", "b", "c", "d"] {
            assigned(&mut journal, id);
        }
        for id in ["b", "c"] {
            let record = journal.addresses.release(id).unwrap();
            journal.commit(&record).unwrap();
        }
        drop(journal);
        let text = fs::read(&path).unwrap();
        for killed_at in 0..=text.len() {
            fs::write(&path, &text[..killed_at]).unwrap();
            let mut journal = open(dir.path());
            assigned(&mut journal, "new");
            assigned(&mut journal, "newer");
            let mut given: Vec<IpAddr> = journal.addresses.owners().flat_map(|(_, ips)| ips.to_vec()).collect();
            let count = given.len();
            given.sort();
            given.dedup();
            assert_eq!(given.len(), count, "killed after {killed_at} bytes");
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_an_error_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("addresses"), "+ a 10.1.0.2\n+ b 10.1\n").unwrap();
        let error = Journal::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("addresses, line 2: it is none of"), "{error}");
    }

    #[test]
    fn a_directory_has_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let _journal = open(dir.path());
        let error = Journal::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("another process uses this directory"), "{error}");
    }

    #[test]
    fn the_file_does_not_grow_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(dir.path());
        for _ in 0..SUPERFLUOUS_LINES {
            assigned(&mut journal, "a");
            let record = journal.addresses.release("a").unwrap();
            journal.commit(&record).unwrap();
        }
        let text = fs::read_to_string(dir.path().join("addresses")).unwrap();
        assert!(
            text.lines().count() <= SUPERFLUOUS_LINES + 255,
            "{}",
            text.lines().count()
        );
    }
}
