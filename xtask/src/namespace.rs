//! A network namespace for one cluster: its ports, links and rules are nobody else's and vanish with it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};

use crate::tools::run;

/// The address of the machine that a cluster inside sees.
pub const NODE_ADDRESS: &str = "10.99.0.1";

pub struct NetworkNamespace {
    file: PathBuf,
}

impl NetworkNamespace {
    /// Makes one that is held by `file`, with a default route that leads nowhere: without one, no packet reaches the
    /// rules that turn a Service's address into a pod's.
    pub fn create(file: &Path) -> Result<Self> {
        File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
        let mut hold = std::ffi::OsString::from("--net=");
        hold.push(file);
        run(Command::new("unshare").arg(hold).arg("true"))?;
        let namespace = Self { file: file.to_owned() };
        // A bridge, because every kernel that runs pods has bridges and not every one has dummy links.
        let address = format!("{NODE_ADDRESS}/32");
        for arguments in [
            &["link", "set", "lo", "up"][..],
            &["link", "add", "uplink", "type", "bridge"],
            &["address", "add", &address, "dev", "uplink"],
            &["link", "set", "uplink", "up"],
            &["route", "add", "default", "dev", "uplink"],
        ] {
            run(namespace.inside("ip").args(arguments))?;
        }
        Ok(namespace)
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// A command that runs inside; its process is the program's own.
    pub fn inside(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        enter(&self.file, program)
    }
}

pub fn enter(namespace: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut hold = std::ffi::OsString::from("--net=");
    hold.push(namespace);
    let mut command = Command::new("nsenter");
    command.arg(hold).arg("--").arg(program);
    command
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        if let Err(error) = umount2(&self.file, MntFlags::MNT_DETACH) {
            eprintln!("cannot release {}: {error}", self.file.display());
        }
    }
}
