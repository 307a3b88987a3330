//! The first process of `cargo xtask vm`'s machine: from the initial file system to a root on the disk, then one command,
//! then off.
//!
//! It is there three times. As `/init` of the initial file system it loads the disk's driver and changes over to the disk.
//! As `/sbin/init` on the disk it makes the machine an ordinary one (cgroup v2, `/proc`, `/dev`, …) and runs the command.
//! As `/sbin/modprobe` it loads what the kernel asks for.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod command;
mod modules;
mod mounts;
mod network;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// Where the command's output goes; the kernel's own messages go to the first port.
pub const OUTPUT: &str = "/dev/ttyS1";

/// The initial file system mounts the disk here before it becomes the root.
const DISK: &str = "/disk";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let name = arguments.first().map(String::as_str).unwrap_or_default();
    match name.rsplit('/').next() {
        Some("modprobe") => modprobe(&arguments[1..]),
        Some("init") if std::process::id() == 1 => first_process(),
        _ => {
            eprintln!("{name} is the first process of a virtual machine; see `cargo xtask vm`");
            ExitCode::FAILURE
        }
    }
}

/// The kernel calls it as `modprobe -q -- NAME` and looks only at what is loaded afterwards.
fn modprobe(arguments: &[String]) -> ExitCode {
    let names = arguments.iter().filter(|argument| !argument.starts_with('-'));
    match names.map(|name| modules::load(name)).collect::<Result<Vec<()>>>() {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn first_process() -> ExitCode {
    let result = if Path::new(DISK).exists() {
        change_over()
    } else {
        serve()
    };
    // Only a failure comes here, or the end of the command.
    if let Err(error) = result {
        command::say(&format!("vm: {error:#}\n"));
        command::end(None);
    }
    rustix::fs::sync();
    // SAFETY: it takes no memory, and there is nothing left to lose.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    eprintln!("vm: the machine does not turn off: {}", std::io::Error::last_os_error());
    ExitCode::FAILURE
}

/// Makes the disk the root. It cannot stay in the initial file system, from which no container could turn away by
/// pivot_root(2).
fn change_over() -> Result<()> {
    mounts::kernel("")?;
    for module in ["virtio_pci", "virtio_blk"] {
        modules::load(module)?;
    }
    let disk = Path::new("/dev/vda");
    mounts::wait_for(disk)?;
    mounts::mount(Some("/dev/vda"), DISK, Some("ext4"), 0, None)?;
    std::env::set_current_dir(DISK)?;
    mounts::mount(Some("."), "/", None, libc::MS_MOVE, None)?;
    rustix::process::chroot(".").context("cannot make the disk the root")?;
    std::env::set_current_dir("/")?;
    let error = Command::new("/sbin/init").exec();
    bail!("cannot run /sbin/init of the disk: {error}")
}

/// An ordinary machine, its command, and how that ended.
fn serve() -> Result<()> {
    mounts::kernel("")?;
    mounts::ordinary()?;
    network::loopback_up()?;
    rustix::system::sethostname(b"vm")?;
    let status = command::run()?;
    command::end(Some(status));
    Ok(())
}
