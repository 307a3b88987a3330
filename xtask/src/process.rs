//! Processes that end with the value that stands for them.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::signals;

/// How long a process may take to end when asked.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running program in a process group of its own, so that an interrupt at the terminal reaches it only through us.
pub struct Process {
    child: Child,
    pub log: PathBuf,
    ended: bool,
}

impl Process {
    /// Starts it with all its output appended to `log`.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        command.stdout(file.try_clone()?).stderr(file);
        Self::spawn(command, log)
    }

    /// Starts it with its errors in `log` and its output for the caller to read.
    pub fn start_piped(command: &mut Command, log: &Path) -> Result<(Self, std::process::ChildStdout)> {
        command.stdout(Stdio::piped()).stderr(File::create(log)?);
        let mut process = Self::spawn(command, log)?;
        let output = process.child.stdout.take().context("the output was piped")?;
        Ok((process, output))
    }

    fn spawn(command: &mut Command, log: &Path) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        Ok(Self {
            child,
            log: log.to_owned(),
            ended: false,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether and how it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten();
        self.ended |= status.is_some();
        status
    }

    /// Waits for its end until the deadline; fails when interrupted.
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.ended() {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            signals::sleep(Duration::from_millis(50))?;
        }
    }

    /// Asks the process itself to end and insists after a while. Its children are its own business.
    pub fn stop(&mut self) {
        self.end(Signal::SIGTERM, kill);
    }

    /// The same for its whole group.
    pub fn stop_group(&mut self) {
        self.end(Signal::SIGTERM, killpg);
    }

    /// Ends it without warning, as a crash would.
    pub fn crash(&mut self) {
        self.end(Signal::SIGKILL, kill);
    }

    fn end(&mut self, first: Signal, send: impl Fn(Pid, Signal) -> nix::Result<()>) {
        if self.ended || self.ended().is_some() {
            return;
        }
        let Ok(pid) = i32::try_from(self.child.id()).map(Pid::from_raw) else {
            return;
        };
        // A process that is gone already needs no signal.
        let _ = send(pid, first);
        let deadline = Instant::now() + PATIENCE;
        while self.ended().is_none() {
            if Instant::now() >= deadline {
                eprintln!("process {pid} did not end in {} s and is killed", PATIENCE.as_secs());
                let _ = send(pid, Signal::SIGKILL);
                let _ = self.child.wait();
                self.ended = true;
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Runs a command to its end and returns what it printed; its errors go to the terminal. An interrupt at the terminal does
/// not reach it: it is asked to end, with all that it waits for, and this fails.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    command.stdout(Stdio::piped());
    let mut process = Process::spawn(command, Path::new(""))?;
    let mut printed = process.child.stdout.take().context("the output was piped")?;
    let reader = thread::spawn(move || {
        let mut text = String::new();
        printed.read_to_string(&mut text).map(|_| text)
    });
    let status = loop {
        match process.wait_until(Instant::now() + PATIENCE) {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(interrupted) => {
                process.stop_group();
                return Err(interrupted);
            }
        }
    };
    ensure!(status.success(), "{shown} failed with {status}");
    let text = reader
        .join()
        .map_err(|_| anyhow!("the thread that reads the output of {shown} panicked"))?;
    text.with_context(|| format!("{shown} printed something that is not text"))
}

/// Runs a command to its end with its output on the terminal. After so long a time, or by an interrupt, it is asked to end,
/// and this fails.
pub fn stream(command: &mut Command, given_up_after: Duration) -> Result<()> {
    let shown = format!("{command:?}");
    let mut process = Process::spawn(command, Path::new(""))?;
    let status = process.wait_until(Instant::now() + given_up_after)?;
    let status = status.with_context(|| format!("{shown} was given up after {} s", given_up_after.as_secs()))?;
    ensure!(status.success(), "{shown} failed with {status}");
    Ok(())
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_heard_out_and_its_failure_told() {
        let shell = |script: &str| output(Command::new("sh").args(["-c", script]));
        assert_eq!(shell("echo one; echo two").unwrap(), "one\ntwo\n");
        let error = shell("echo one; exit 3").unwrap_err().to_string();
        assert!(error.ends_with("failed with exit status: 3"), "{error}");
    }

    #[test]
    fn a_command_that_does_not_end_is_given_up() {
        let begun = Instant::now();
        let error = stream(Command::new("sleep").arg("600"), Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("was given up after 0 s"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(300));
    }
}
