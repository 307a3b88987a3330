//! Both clusters, started and timed in the same way.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::api::{self, Api};
use crate::cluster::{Karve, Kubectl, Setup, Upstream};
use crate::signals::wait_for;
use crate::{peers, tools};

const PATIENCE: Duration = Duration::from_secs(60);

/// What the measured pods start.
pub const IMAGES: &[&str] = &["pause", "agnhost"];

/// Milliseconds from the start of the first process.
pub struct StartTimes {
    pub readyz: f64,
    pub node_ready: f64,
}

/// Memory and processor time of all processes of a cluster, without its pods.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    pub pss_mb: f64,
    pub cpu_ms: f64,
}

pub enum Cluster {
    Ours(Box<Karve>),
    Upstream(Upstream),
}

impl Cluster {
    pub fn start_ours(setup: &Setup) -> Result<(Self, StartTimes)> {
        let mut karve = Karve::prepare(setup)?;
        let times = up(&mut karve)?;
        for archive in peers::images(IMAGES)? {
            karve.import(&archive)?;
        }
        Ok((Self::Ours(Box::new(karve)), times))
    }

    pub fn start_upstream() -> Result<(Self, StartTimes)> {
        let upstream = Upstream::start(IMAGES)?;
        let times = StartTimes {
            readyz: upstream.milliseconds("readyz_ms")?,
            node_ready: upstream.milliseconds("node_ready_ms")?,
        };
        Ok((Self::Upstream(upstream), times))
    }

    /// Ends the processes and starts them again on what they stored.
    pub fn restart(&mut self) -> Result<StartTimes> {
        match self {
            Self::Ours(karve) => {
                karve.process().context("karve does not run")?.stop();
                up(karve)
            }
            Self::Upstream(upstream) => {
                upstream.restart()?;
                Ok(StartTimes {
                    readyz: upstream.milliseconds("readyz_ms")?,
                    node_ready: upstream.milliseconds("node_ready_ms")?,
                })
            }
        }
    }

    pub fn api(&self, dir: &Path) -> Result<Api> {
        Api::connect(&self.kubectl()?, dir)
    }

    pub fn usage(&mut self) -> Result<Usage> {
        match self {
            Self::Ours(karve) => usage_of(karve.process().context("karve does not run")?.pid()),
            Self::Upstream(upstream) => upstream.usage().map(|(pss_mb, cpu_ms)| Usage { pss_mb, cpu_ms }),
        }
    }

    fn kubectl(&self) -> Result<Kubectl> {
        match self {
            Self::Ours(karve) => karve.kubectl(),
            Self::Upstream(upstream) => upstream.kubectl(),
        }
    }
}

/// Starts Karve and asks with curl until it is ready, as upstream-cluster.sh does for the other side.
fn up(karve: &mut Karve) -> Result<StartTimes> {
    let since = tools::now();
    let begun = Instant::now();
    karve.up()?;
    let result = wait_for("/readyz", PATIENCE, || curl(karve, &["--insecure"], "/readyz"));
    result.with_context(|| karve.last_words())?;
    let readyz = begun.elapsed().as_secs_f64() * 1e3;
    let credentials = credentials(karve)?;
    let credentials: Vec<&str> = credentials.iter().map(String::as_str).collect();
    let ready = wait_for("a Ready node", PATIENCE, || {
        let nodes: Value = serde_json::from_slice(&curl(karve, &credentials, "/api/v1/nodes")?).ok()?;
        let node = nodes["items"].as_array()?.iter().find(|node| api::is(node, "Ready"))?;
        let name = node["metadata"]["name"].as_str()?;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
        let lease: Value = serde_json::from_slice(&curl(karve, &credentials, &path)?).ok()?;
        // After a restart the node's object is still that of before; the lease tells that it was heard from.
        (lease["spec"]["renewTime"].as_str()? > since.as_str()).then_some(())
    });
    ready.with_context(|| karve.last_words())?;
    Ok(StartTimes {
        readyz,
        node_ready: begun.elapsed().as_secs_f64() * 1e3,
    })
}

fn curl(karve: &Karve, credentials: &[&str], path: &str) -> Option<Vec<u8>> {
    let mut command = karve.inside("curl");
    command
        .args(["--silent", "--fail", "--max-time", "5"])
        .args(credentials);
    let output = command
        .arg(format!("https://127.0.0.1:{}{path}", karve.port()))
        .output()
        .ok()?;
    output.status.success().then_some(output.stdout)
}

/// curl's arguments for the administrator's certificate, which the kubeconfig holds.
fn credentials(karve: &Karve) -> Result<Vec<String>> {
    let config = std::fs::read_to_string(karve.kubeconfig())?;
    let mut arguments = Vec::new();
    for (field, flag) in [
        ("certificate-authority-data", "--cacert"),
        ("client-certificate-data", "--cert"),
        ("client-key-data", "--key"),
    ] {
        let marked = format!("{field}: ");
        let data = config.lines().find_map(|line| line.trim().strip_prefix(&marked));
        let pem = STANDARD.decode(data.with_context(|| format!("the kubeconfig has no {field}"))?)?;
        let path = karve.scratch(&format!("{field}.pem"));
        std::fs::write(&path, pem)?;
        arguments.extend([flag.to_owned(), path.display().to_string()]);
    }
    Ok(arguments)
}

fn usage_of(pid: u32) -> Result<Usage> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let pss_kb: f64 = pss
        .and_then(|rest| rest.split_whitespace().next())
        .context("no Pss")?
        .parse()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Ticks of 10 ms in user and kernel mode, counted after the command's name.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: f64 = fields
        .get(11..13)
        .context("no times")?
        .iter()
        .filter_map(|t| t.parse::<f64>().ok())
        .sum();
    Ok(Usage {
        pss_mb: pss_kb / 1e3,
        cpu_ms: ticks * 10.0,
    })
}
