//! Another server of the attacked binary, with flags of its own, beside the cluster.

use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::{Context, Result, bail};

use crate::cluster;
use crate::signals::wait_for;
use crate::world::{PATIENCE, World};

/// It ends with this value.
pub struct OtherServer {
    dir: PathBuf,
    process: Option<Child>,
}

impl OtherServer {
    pub fn start(world: &World, arguments: &[&str]) -> Result<Self> {
        let dir = world.cluster.dir().join(format!("server-{}", world.number()));
        let mut command = world.cluster.command_at(&dir, arguments);
        let process = cluster::spawn(&mut command, &dir.with_extension("log"))?;
        Ok(Self {
            dir,
            process: Some(process),
        })
    }

    pub fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    /// Waits for what the server does when it is ready.
    pub fn until<T>(&mut self, what: &str, mut ready: impl FnMut(&Path) -> Option<T>) -> Result<T> {
        let pki = self.pki();
        let process = &mut self.process;
        let found = wait_for(what, PATIENCE, || {
            if let Some(Some(status)) = process.as_mut().map(Child::try_wait).transpose()? {
                bail!("it ended with {status}");
            }
            Ok(ready(&pki))
        });
        found.with_context(|| {
            let log = std::fs::read_to_string(self.dir.with_extension("log")).unwrap_or_default();
            format!("its log: {}", log.lines().last().unwrap_or_default())
        })
    }
}

impl Drop for OtherServer {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            cluster::stop(process);
        }
    }
}
