//! The API of a cluster for measurements: upstream's `kubectl proxy` holds the connection, so that both sides are
//! reached in the same way and at the same cost.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::http::{Connection, Lines};
use crate::cluster::Kubectl;
use crate::process::Process;
use crate::signals::{self, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);
/// How often a wait for an event looks up.
const STEP: Duration = Duration::from_millis(200);

pub struct Api {
    socket: PathBuf,
    // Ends the proxy when dropped.
    _proxy: Process,
}

/// A watch from now on.
pub struct Watch {
    lines: Lines,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

impl Api {
    pub fn connect(kubectl: &Kubectl, dir: &Path) -> Result<Self> {
        let socket = dir.join("proxy.sock");
        let _ = std::fs::remove_file(&socket);
        let mut command = kubectl.command(&["proxy", "--reject-methods=^$"]);
        command.arg(format!("--unix-socket={}", socket.display()));
        let proxy = Process::start(&mut command, &dir.join("proxy.log"))?;
        let api = Self { socket, _proxy: proxy };
        wait_for("kubectl proxy", PATIENCE, || api.get("/readyz").ok())?;
        Ok(api)
    }

    pub fn get(&self, path: &str) -> Result<Vec<u8>> {
        self.send("GET", path, &[])
    }

    pub fn create(&self, path: &str, object: &Value) -> Result<()> {
        self.send("POST", path, &serde_json::to_vec(object)?).map(drop)
    }

    pub fn delete(&self, path: &str) -> Result<()> {
        self.send(
            "DELETE",
            path,
            br#"{"gracePeriodSeconds":0,"propagationPolicy":"Background"}"#,
        )
        .map(drop)
    }

    /// Watches a collection from its present state on.
    pub fn watch(&self, path: &str) -> Result<Watch> {
        let list: Value = serde_json::from_slice(&self.get(path)?)?;
        let revision = list["metadata"]["resourceVersion"]
            .as_str()
            .context("the list has no revision")?;
        let joint = if path.contains('?') { '&' } else { '?' };
        let lines = self
            .connection()?
            .stream(&format!("{path}{joint}watch=true&resourceVersion={revision}"))?;
        Ok(Watch { lines })
    }

    pub fn connection(&self) -> Result<Connection> {
        Connection::open(&self.socket, PATIENCE).with_context(|| format!("cannot reach {}", self.socket.display()))
    }

    fn send(&self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>> {
        let response = self.connection()?.request(method, path, body)?;
        let text = String::from_utf8_lossy(&response.body);
        ensure!(response.status < 300, "{method} {path}: {} {text}", response.status);
        Ok(response.body)
    }
}

impl Watch {
    /// The time until `accept` has said yes to an object of this kind so many times.
    pub fn until(&mut self, begun: Instant, mut done: impl FnMut(&Value, bool) -> bool) -> Result<Duration> {
        loop {
            self.wait()?;
            let line = self.lines.next_line().context("the watch ended")?;
            let event: Event = serde_json::from_slice(&line)?;
            if event.kind == "ERROR" {
                bail!("the watch failed: {}", event.object);
            }
            if done(&event.object, event.kind == "DELETED") {
                return Ok(begun.elapsed());
            }
        }
    }
}

impl Watch {
    /// Until something has come; fails when interrupted.
    fn wait(&mut self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while !self.lines.has_come(STEP).context("the watch ended")? {
            signals::check()?;
            ensure!(Instant::now() < until, "waited {} s for an event", PATIENCE.as_secs());
        }
        Ok(())
    }
}

/// Whether an object has a condition that is true.
pub fn is(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|found| found["type"] == condition && found["status"] == "True")
}
