//! The command that the machine was started for.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, WaitOptions, wait};

use crate::{OUTPUT, mounts};

/// The command and its arguments, each ended by a zero byte.
const COMMAND: &str = "/etc/vm-command";
/// What the last line of the output begins with; `cargo xtask vm` looks for it.
const END: &str = "vm: the command ended with ";

/// Runs it to its end, and takes in every process that was left to the first one meanwhile.
pub fn run() -> Result<ExitStatus> {
    let text = fs::read_to_string(COMMAND).with_context(|| format!("cannot read {COMMAND}"))?;
    let words: Vec<&str> = text.split_terminator('\0').collect();
    let (program, arguments) = words.split_first().context("there is no command")?;
    fs::write(mounts::service_processes(), "0").context("cannot enter the command's cgroup")?;
    let output = open()?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root")
        .current_dir("/root")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let child = Pid::from_child(&child);
    loop {
        match wait(WaitOptions::empty())? {
            Some((pid, status)) if pid == child => return Ok(ExitStatus::from_raw(status.as_raw())),
            _ => {}
        }
    }
}

/// The last line: how the command ended, or that it never did.
pub fn end(status: Option<ExitStatus>) {
    let code = status.and_then(|status| status.code()).unwrap_or(255);
    say(&format!("\n{END}{code}\n"));
}

pub fn say(text: &str) {
    let written = open().and_then(|mut output| Ok(output.write_all(text.as_bytes())?));
    if written.is_err() {
        // The kernel's messages are all that is left.
        eprint!("{text}");
    }
}

/// The serial port, with lines ended as they come.
fn open() -> Result<File> {
    let port = OpenOptions::new()
        .write(true)
        .open(OUTPUT)
        .with_context(|| format!("cannot open {OUTPUT}"))?;
    // SAFETY: all fields are numbers, for which zeros are good values; the kernel fills them in and reads them back.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(port.as_raw_fd(), &mut settings) == 0 {
            libc::cfmakeraw(&mut settings);
            libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &settings);
        }
    }
    Ok(port)
}
