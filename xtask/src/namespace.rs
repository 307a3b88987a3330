//! A network namespace for one node: its ports, links and rules are nobody else's and vanish with it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};

use crate::tools::run;

/// The link to other nodes, and to nowhere else.
const UPLINK: &str = "uplink";

pub struct NetworkNamespace {
    file: PathBuf,
}

/// The address of a node inside, counted from one.
pub fn node_address(number: usize) -> String {
    format!("10.99.0.{number}")
}

impl NetworkNamespace {
    /// That of the first node, held by `file`.
    pub fn create(file: &Path) -> Result<Self> {
        let namespace = Self::empty(file)?;
        // A bridge, because every kernel that runs pods has bridges and not every one has dummy links; and because
        // other nodes are its ports.
        run(namespace.ip().args(["link", "add", UPLINK, "type", "bridge"]))?;
        namespace.configure(1)?;
        Ok(namespace)
    }

    /// That of another node, on the first one's wire.
    pub fn beside(first: &Self, file: &Path, number: usize) -> Result<Self> {
        let namespace = Self::empty(file)?;
        let port = format!("port{number}");
        run(first
            .ip()
            .args(["link", "add", &port, "type", "veth", "peer", "name", UPLINK, "netns"])
            .arg(file))?;
        run(first.ip().args(["link", "set", &port, "master", UPLINK, "up"]))?;
        // Where rules see what bridges carry, a packet to a node port of the first node that is led to a pod of the other
        // one goes back by the port it came from.
        run(first
            .ip()
            .args(["link", "set", &port, "type", "bridge_slave", "hairpin", "on"]))?;
        namespace.configure(number)?;
        Ok(namespace)
    }

    /// Connects another node with the first one's wire, or cuts it off.
    pub fn plug(&self, number: usize, connected: bool) -> Result<()> {
        let state = if connected { "up" } else { "down" };
        run(self.ip().args(["link", "set", &format!("port{number}"), state]))
    }

    fn empty(file: &Path) -> Result<Self> {
        File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
        run(Command::new("unshare").arg(hold(file)).arg("true"))?;
        Ok(Self { file: file.to_owned() })
    }

    /// The default route leads nowhere: without one, no packet reaches the rules that turn a Service's address into a
    /// pod's.
    fn configure(&self, number: usize) -> Result<()> {
        let address = format!("{}/24", node_address(number));
        for arguments in [
            &["link", "set", "lo", "up"][..],
            &["address", "add", &address, "dev", UPLINK],
            &["link", "set", UPLINK, "up"],
            &["route", "add", "default", "dev", UPLINK],
        ] {
            run(self.ip().args(arguments))?;
        }
        Ok(())
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// A command that runs inside; its process is the program's own.
    pub fn inside(&self, program: impl AsRef<OsStr>) -> Command {
        enter(&self.file, program)
    }

    fn ip(&self) -> Command {
        self.inside("ip")
    }
}

pub fn enter(namespace: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(hold(namespace)).arg("--").arg(program);
    command
}

fn hold(file: &Path) -> OsString {
    let mut hold = OsString::from("--net=");
    hold.push(file);
    hold
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        if let Err(error) = umount2(&self.file, MntFlags::MNT_DETACH) {
            eprintln!("cannot release {}: {error}", self.file.display());
        }
    }
}
