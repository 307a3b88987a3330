//! A running machine: its output as it comes, how its command ended, and that it always ends.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Hardware;
use crate::process::Process;
use crate::signals;
use crate::tools::last_lines;

/// What the machine's last line begins with.
const END: &str = "vm: the command ended with ";

/// How often a wait for output looks up.
const STEP: Duration = Duration::from_millis(200);

/// Starts a machine and hands each line of its command on. Returns the code that the command ended with.
pub fn run(hardware: &Hardware, image: &Path, dir: &Path, logs: &Path, mut line: impl FnMut(&str)) -> Result<i32> {
    let console = logs.join("console.log");
    let mut command = qemu(hardware, image, dir, &console);
    let (mut process, output) = Process::start_piped(&mut command, &logs.join("qemu.log"))?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut text = Vec::new();
        while output.read_until(b'\n', &mut text).is_ok_and(|count| count > 0) {
            let shown = String::from_utf8_lossy(&text).trim_end().to_owned();
            text.clear();
            if sender.send(shown).is_err() {
                return;
            }
        }
    });
    let until = Instant::now() + hardware.patience;
    let code = loop {
        signals::check()?;
        match lines.recv_timeout(STEP) {
            Ok(text) => match text.strip_prefix(END) {
                Some(code) => break code.parse().context("the machine's last line has no code")?,
                None => line(&text),
            },
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < until => {}
            Err(mpsc::RecvTimeoutError::Timeout) => {
                bail!(
                    "the machine was given up after {} s; its kernel's messages are in {}",
                    hardware.patience.as_secs(),
                    console.display()
                )
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let qemu = last_lines(&logs.join("qemu.log"), 5);
                bail!(
                    "the machine ended before its command; its kernel's messages are in {} and end:\n{}\n{qemu}",
                    console.display(),
                    last_lines(&console, 20)
                )
            }
        }
    };
    // It turns itself off; a moment later it would be asked to.
    let _ = process.wait_until(Instant::now() + Duration::from_secs(10))?;
    io::stdout().flush()?;
    Ok(code)
}

fn qemu(hardware: &Hardware, image: &Path, dir: &Path, console: &Path) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-machine", "q35", "-accel", &hardware.accelerator, "-cpu", "max"])
        .args([
            "-smp",
            &hardware.processors.to_string(),
            "-m",
            &format!("{}M", hardware.memory_mb),
        ])
        .args([
            "-display",
            "none",
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-monitor",
            "none",
        ])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(dir.join("initial.cpio"))
        .args(["-append", "console=ttyS0 quiet panic=-1 apparmor=1 security=apparmor"])
        .arg("-drive")
        .arg(format!(
            "file={},if=virtio,format=raw,cache=unsafe",
            dir.join("disk.ext4").display()
        ))
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .args(["-serial", "stdio"]);
    command
}
