//! A virtual machine with a kernel of Debian: cgroup v2, AppArmor, user namespaces, an ext4 disk.
//!
//! The machine has no network and none of this machine's files but those it is given; it is made anew for each command.

mod cpio;
mod disk;
mod kernel;
mod machine;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

pub use disk::Placed;
pub use kernel::Debian;

use crate::dist;
use crate::tools::target_dir;

#[derive(Args)]
pub struct VmArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Take this binary instead of building one
    #[arg(long)]
    karve: Option<PathBuf>,
    /// Put a file of this machine into the other one, as in target/dist/load:/usr/bin/load. Can be given several times
    #[arg(long = "file", value_name = "HERE:THERE", value_parser = placed)]
    files: Vec<Placed>,
    /// The command to run there; `karve` and busybox are on its path
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// What kind of machine.
#[derive(Args, Clone)]
pub struct MachineArgs {
    /// The release of Debian whose kernel runs
    #[arg(long, value_enum, default_value = "12")]
    pub debian: Debian,
    /// Its processors
    #[arg(long, default_value_t = 2)]
    processors: u32,
    /// Its memory in MiB
    #[arg(long, default_value_t = 3072)]
    memory_mb: u32,
    /// How qemu runs its processors: tcg works everywhere, kvm only where virtual machines may be nested
    #[arg(long, default_value = "tcg", value_parser = ["tcg", "kvm"])]
    accelerator: String,
    /// The machine is given up after so many seconds
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

impl MachineArgs {
    /// The machine that CI takes.
    pub fn given_up_after(patience: Duration) -> Self {
        Self {
            debian: Debian::Bookworm,
            processors: 2,
            memory_mb: 3072,
            accelerator: "tcg".to_owned(),
            timeout: patience.as_secs(),
        }
    }
}

/// The machine itself.
pub struct Hardware {
    processors: u32,
    memory_mb: u32,
    accelerator: String,
    patience: Duration,
}

pub fn run(args: &VmArgs) -> Result<()> {
    let karve = args.karve.clone().map_or_else(dist::release, Ok)?;
    let mut files = vec![(karve, PathBuf::from("/usr/bin/karve"))];
    files.extend(args.files.iter().cloned());
    match execute(&args.machine, &files, &args.command, |line| println!("{line}"))? {
        0 => Ok(()),
        code => bail!("the command ended with {code}"),
    }
}

/// Runs a command in a machine of its own. Returns the code that it ended with.
pub fn execute(args: &MachineArgs, files: &[Placed], command: &[String], line: impl FnMut(&str)) -> Result<i32> {
    let kernel = kernel::Kernel::of(args.debian).context("cannot get the kernel")?;
    let init = dist::program("vm-init")?;
    let dir = tempfile::Builder::new()
        .prefix("karve-vm-")
        .tempdir()
        .context("cannot make a temporary directory")?;
    disk::write_initial(&dir.path().join("initial.cpio"), &kernel, &init)?;
    disk::write_disk(&dir.path().join("disk.ext4"), &kernel, &init, files, command)?;
    let hardware = Hardware {
        processors: args.processors,
        memory_mb: args.memory_mb,
        accelerator: args.accelerator.clone(),
        patience: Duration::from_secs(args.timeout),
    };
    // The kernel's messages outlive the machine, for whoever wants to know why it ended.
    let logs = target_dir()
        .join("vm")
        .join(format!("{:?}", args.debian).to_lowercase());
    std::fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    machine::run(&hardware, &kernel.image, dir.path(), &logs, line)
}

/// Downloads the kernel of CI's machine, unless it is in the cache.
pub fn prepare() -> Result<()> {
    kernel::Kernel::of(Debian::Bookworm).map(drop)
}

fn placed(text: &str) -> Result<Placed, String> {
    match text.split_once(':') {
        Some((here, there)) if there.starts_with('/') => Ok((here.into(), there.into())),
        _ => Err("not of the form HERE:/THERE".to_owned()),
    }
}
