//! Container logs in the CRI's format: `<RFC 3339 time> <stream> <F|P> <text>`, one line each.
//!
//! `F` ends a line of the container's, `P` marks a piece of one: of a line longer than [`MAX_LINE_BYTES`], or one that
//! the container never ended.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

/// Longer lines are cut into pieces; this also bounds what is held in memory for each stream.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// A file that nobody rotates, because no kubelet runs, grows to this size and no further. Whoever rotates does so long before.
const MAX_FILE_BYTES: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// The log of one container. Output is lost rather than the container stopped when the disk refuses it, or when the file has
/// reached its bound.
pub struct Log {
    path: PathBuf,
    file: File,
    /// What the file may still take.
    room: u64,
    /// The bytes at which somebody rotates the file.
    rotated_at: Option<u64>,
}

impl Log {
    /// Opens the log for appending, so that a restarted supervisor or a rotated file loses nothing.
    pub fn open(path: &Path, rotated_at: Option<u64>) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let (file, room) = open(path, MAX_FILE_BYTES)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            room,
            rotated_at,
        })
    }

    /// Whether it is time to rotate the file.
    pub fn is_full(&self) -> bool {
        self.rotated_at.is_some_and(|bytes| MAX_FILE_BYTES - self.room >= bytes)
    }

    pub fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.room) = open(&self.path, MAX_FILE_BYTES)?;
        Ok(())
    }

    pub fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let left = self.room.checked_sub(lines.len() as u64);
        self.room = left.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        self.file.write_all(lines)
    }
}

/// Opens a log for appending, and says how much more it may take. Pods that were given the machine's logs can put anything
/// there: below the directory of all logs, three levels up, no link is followed, and only a regular file is written to.
fn open(path: &Path, max_bytes: u64) -> io::Result<(File, u64)> {
    let above = path.ancestors().nth(3).unwrap_or(Path::new("/"));
    let inner = path.strip_prefix(above).map_err(io::Error::other)?;
    let root = rustix::fs::open(above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // Without waiting, for a FIFO has no reader.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = openat2(root, inner, flags, Mode::from_raw_mode(0o640), inside)?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the log is not a regular file",
        ));
    }
    let room = max_bytes.saturating_sub(u64::try_from(stat.st_size).unwrap_or(0));
    Ok((File::from(file), room))
}

/// Cuts one stream's output into log lines.
pub struct Cutter {
    stream: Stream,
    /// The beginning of a line whose end has not been seen.
    held: Vec<u8>,
}

impl Cutter {
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            held: Vec::new(),
        }
    }

    /// Appends the lines that `output` completes to `lines`.
    pub fn cut(&mut self, mut output: &[u8], now: Timestamp, lines: &mut Vec<u8>) {
        while !output.is_empty() {
            let room = MAX_LINE_BYTES - self.held.len();
            let window = &output[..output.len().min(room + 1)];
            match window.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    self.emit(now, b'F', &output[..end], lines);
                    output = &output[end + 1..];
                }
                None if window.len() > room => {
                    self.emit(now, b'P', &output[..room], lines);
                    output = &output[room..];
                }
                None => {
                    self.held.extend_from_slice(output);
                    return;
                }
            }
        }
    }

    /// Appends what is held when the stream has ended.
    pub fn finish(&mut self, now: Timestamp, lines: &mut Vec<u8>) {
        if !self.held.is_empty() {
            self.emit(now, b'P', &[], lines);
        }
    }

    fn emit(&mut self, now: Timestamp, tag: u8, text: &[u8], lines: &mut Vec<u8>) {
        lines.extend_from_slice(&now.0);
        lines.extend_from_slice(match self.stream {
            Stream::Stdout => b" stdout ",
            Stream::Stderr => b" stderr ",
        });
        lines.extend_from_slice(&[tag, b' ']);
        lines.extend_from_slice(&self.held);
        lines.extend_from_slice(text);
        lines.push(b'\n');
        self.held.clear();
    }
}

/// A moment in UTC with nanoseconds, as RFC 3339 writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp([u8; 30]);

impl Timestamp {
    pub fn from_unix_ns(ns: i64) -> Self {
        let (seconds, nanos) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil_date(days);
        let mut text = [0; 30];
        // The year has four digits until 9999, so the text always fits and fills the array.
        let _ = write!(
            &mut text[..],
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{nanos:09}Z",
            second / 3600,
            second / 60 % 60,
            second % 60,
        );
        Self(text)
    }
}

/// The Gregorian date of a day counted from 1970-01-01. Years are counted from March, so that the leap day is last.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// Cuts the pieces of output in turn, ends the stream, and shows the log with long runs shortened.
    fn check(pieces: &[&[u8]], expect: Expect) {
        let now = Timestamp::from_unix_ns(1_700_000_000_000_000_042);
        let (mut cutter, mut lines) = (Cutter::new(Stream::Stdout), Vec::new());
        for piece in pieces {
            cutter.cut(piece, now, &mut lines);
        }
        cutter.finish(now, &mut lines);
        let text = String::from_utf8(lines)
            .unwrap()
            .replace(&"x".repeat(MAX_LINE_BYTES), "{max}");
        expect.assert_eq(&text);
    }

    #[test]
    fn each_line_is_stamped() {
        check(
            &[b"one\ntwo\n"],
            expect![[r#"
                2023-11-14T22:13:20.000000042Z stdout F one
                2023-11-14T22:13:20.000000042Z stdout F two
            "#]],
        );
    }

    #[test]
    fn a_line_may_arrive_in_pieces() {
        check(
            &[b"on", b"e", b"\n\n"],
            expect![[r#"
                2023-11-14T22:13:20.000000042Z stdout F one
                2023-11-14T22:13:20.000000042Z stdout F 
            "#]],
        );
    }

    #[test]
    fn an_unended_line_is_partial() {
        check(
            &[b"prompt> "],
            expect![[r#"
                2023-11-14T22:13:20.000000042Z stdout P prompt> 
            "#]],
        );
    }

    #[test]
    fn a_long_line_is_cut_and_its_last_piece_is_full() {
        let long = [vec![b'x'; MAX_LINE_BYTES + 3], b"\n".to_vec()].concat();
        check(
            &[&long],
            expect![[r#"
                2023-11-14T22:13:20.000000042Z stdout P {max}
                2023-11-14T22:13:20.000000042Z stdout F xxx
            "#]],
        );
    }

    #[test]
    fn a_line_of_just_the_maximum_is_whole() {
        let line = [vec![b'x'; MAX_LINE_BYTES], b"\n".to_vec()].concat();
        check(
            &[&line[..7], &line[7..]],
            expect![[r#"
                2023-11-14T22:13:20.000000042Z stdout F {max}
            "#]],
        );
    }

    #[test]
    fn a_log_has_a_bound_until_it_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pod/container/0.log");
        let mut log = Log::open(&path, None).unwrap();
        log.room = 10;
        log.write(b"12345678").unwrap();
        assert!(log.write(b"9abcdef").is_err());
        log.write(b"90").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"1234567890");
        std::fs::rename(&path, dir.path().join("pod/container/0.log.1")).unwrap();
        log.reopen().unwrap();
        log.write(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(open(&path, 5).unwrap().1, 2, "what is there counts");
    }

    /// A pod that was given the machine's logs wants others' output, or the supervisor to write elsewhere or to wait.
    #[test]
    fn logs_are_written_to_regular_files_and_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, elsewhere) = (dir.path().join("pods/ns_name_uid"), dir.path().join("elsewhere"));
        std::fs::create_dir_all(&elsewhere).unwrap();
        std::fs::create_dir_all(pod.join("fifo")).unwrap();
        std::fs::create_dir_all(pod.join("linked-file")).unwrap();
        std::fs::write(elsewhere.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(&elsewhere, pod.join("linked")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("file"), pod.join("linked-file/0.log")).unwrap();
        let (mode, fifo) = (Mode::from_raw_mode(0o666), pod.join("fifo/0.log"));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        for container in ["fifo", "linked", "linked-file"] {
            assert!(
                Log::open(&pod.join(container).join("0.log"), None).is_err(),
                "{container}"
            );
        }
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 1);
        assert_eq!(std::fs::read(elsewhere.join("file")).unwrap(), b"x");
        assert!(Log::open(&pod.join("good/0.log"), None).is_ok());
    }

    #[test]
    fn a_log_is_full_until_it_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pod/container/0.log");
        let mut log = Log::open(&path, Some(10)).unwrap();
        log.write(b"123456789").unwrap();
        assert!(!log.is_full());
        log.write(b"0").unwrap();
        assert!(log.is_full());
        assert!(Log::open(&path, Some(10)).unwrap().is_full(), "what is there counts");
        assert!(!Log::open(&path, None).unwrap().is_full(), "nobody rotates it");
        std::fs::rename(&path, dir.path().join("pod/container/0.log.1")).unwrap();
        log.reopen().unwrap();
        assert!(!log.is_full());
    }

    #[test]
    fn dates_are_gregorian() {
        let check = |seconds: i64, expected: &str| {
            let text = Timestamp::from_unix_ns(seconds * 1_000_000_000).0;
            assert_eq!(std::str::from_utf8(&text).unwrap(), expected);
        };
        check(0, "1970-01-01T00:00:00.000000000Z");
        check(951_782_400, "2000-02-29T00:00:00.000000000Z");
        check(1_772_323_199, "2026-02-28T23:59:59.000000000Z");
        check(4_107_542_400, "2100-03-01T00:00:00.000000000Z");
    }
}
