//! How a process in the background tells the command that started it why it failed.
//!
//! The log would say so too, but it may be on the disk that is full, and whoever starts a cluster should not have to look
//! for the reason. So the command keeps an anonymous file in memory, the process writes into it before it ends, and neither
//! the process nor its children inherit anything.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::parent_id;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};

const VARIABLE: &str = "KARVE_START_REPORT";
/// More than any error has to say.
const MAX_BYTES: u64 = 64 << 10;

pub struct StartReport(File);

impl StartReport {
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("karve-start-report", MemfdFlags::CLOEXEC)?;
        Ok(StartReport(file.into()))
    }

    /// Lets the process that `command` starts find the report.
    pub fn hand_to(&self, command: &mut Command) {
        command.env(VARIABLE, format!("{} {}", std::process::id(), self.0.as_raw_fd()));
    }

    /// What the process wrote before it ended, if it did.
    pub fn read(mut self) -> Option<String> {
        let mut text = String::new();
        self.0.rewind().ok()?;
        self.0.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        (!text.is_empty()).then_some(text)
    }
}

/// Tells the command that started this process why it ends, if that command still waits.
pub fn tell(why: &str) {
    let Some(path) = std::env::var(VARIABLE)
        .ok()
        .and_then(|said| report_path(&said, parent_id()))
    else {
        return;
    };
    // A command that has gone away wants to hear nothing.
    let _ = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(why.as_bytes()));
}

/// The report's path if `parent` made it: another process could have got the number since, and the file there is its own.
fn report_path(said: &str, parent: u32) -> Option<String> {
    let (pid, descriptor) = said.split_once(' ')?;
    let (pid, descriptor): (u32, u32) = (pid.parse().ok()?, descriptor.parse().ok()?);
    (pid == parent).then(|| format!("/proc/{pid}/fd/{descriptor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_by_the_path_is_read() {
        let report = StartReport::new().unwrap();
        let mut command = Command::new("sh");
        report.hand_to(&mut command);
        let script = format!(r#"set -- ${VARIABLE}; printf 'disk full' > "/proc/$1/fd/$2""#);
        assert!(command.args(["-c", &script]).status().unwrap().success());
        assert_eq!(report.read().as_deref(), Some("disk full"));
    }

    #[test]
    fn nothing_is_written_into_files_of_other_processes() {
        assert_eq!(report_path("17 4", 17).as_deref(), Some("/proc/17/fd/4"));
        assert_eq!(report_path("17 4", 1), None, "the command that made it is gone");
        assert_eq!(report_path("17 4/../5", 17), None);
        assert_eq!(report_path("", 17), None);
    }

    #[test]
    fn a_process_that_said_nothing_is_no_reason() {
        assert_eq!(StartReport::new().unwrap().read(), None);
    }
}
