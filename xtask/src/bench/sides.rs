//! Both clusters, started and timed in the same way.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::api::{self, Api};
use super::figures::Side;
use super::load::Access;
use super::pin::{self, Role};
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
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub pss_mb: f64,
    /// The most that was resident since [`Cluster::forget_peak`].
    pub peak_mb: f64,
    pub rss_mb: f64,
    pub cpu_ms: f64,
}

/// How much of a cluster a benchmark needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Parts {
    /// The API server and its store.
    Server,
    /// With controllers and scheduler.
    ControlPlane,
    /// With a node.
    Node,
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

    /// A cluster whose start is not timed, on the server's core.
    pub fn start(side: Side, parts: Parts, setup: &Setup) -> Result<Self> {
        pin::on(Role::Server, || match side {
            Side::Ours => start_ours(parts, setup).map(|karve| Self::Ours(Box::new(karve))),
            Side::Upstream => start_upstream(parts).map(Self::Upstream),
        })
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
        let all: Result<Vec<Usage>> = self.processes()?.into_iter().map(usage_of).collect();
        let sum = |of: fn(&Usage) -> f64| all.as_ref().map_or(0.0, |all| all.iter().map(of).sum());
        let total = Usage {
            pss_mb: sum(|usage| usage.pss_mb),
            peak_mb: sum(|usage| usage.peak_mb),
            rss_mb: sum(|usage| usage.rss_mb),
            cpu_ms: sum(|usage| usage.cpu_ms),
        };
        all.map(|_| total)
    }

    /// Lets the peak begin at what is resident now.
    pub fn forget_peak(&mut self) {
        for pid in self.processes().unwrap_or_default() {
            // Without the right to do so, peaks are of the whole life.
            let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
    }

    fn processes(&mut self) -> Result<Vec<u32>> {
        match self {
            Self::Ours(karve) => Ok(vec![karve.process().context("karve does not run")?.pid()]),
            Self::Upstream(upstream) => upstream.processes(),
        }
    }

    /// What every process of the cluster, pods' included, can be known by.
    pub fn marks(&self) -> Result<Vec<String>> {
        match self {
            Self::Ours(karve) => Ok(vec![karve.data_dir().display().to_string(), karve.name()]),
            Self::Upstream(upstream) => upstream.marks(),
        }
    }

    /// How a load generator reaches it.
    pub fn access(&self) -> Result<Access> {
        match self {
            Self::Ours(karve) => {
                let [authority, certificate, key] = credentials(karve)?;
                Ok(Access {
                    server: format!("127.0.0.1:{}", karve.port()),
                    authority,
                    certificate,
                    key,
                    authority_key: karve.data_dir().join("pki/ca.key"),
                    network: karve.network().map(Path::to_owned),
                })
            }
            Self::Upstream(upstream) => Ok(Access {
                server: "127.0.0.1:6443".to_owned(),
                authority: upstream.path("pki/ca.crt"),
                certificate: upstream.path("pki/admin.crt"),
                key: upstream.path("pki/admin.key"),
                authority_key: upstream.path("pki/ca.key"),
                network: Some(upstream.network()),
            }),
        }
    }

    fn kubectl(&self) -> Result<Kubectl> {
        match self {
            Self::Ours(karve) => karve.kubectl(),
            Self::Upstream(upstream) => upstream.kubectl(),
        }
    }
}

fn start_ours(parts: Parts, setup: &Setup) -> Result<Karve> {
    let nodes = usize::from(parts == Parts::Node);
    let setup = Setup { nodes, ..setup.clone() };
    match parts {
        Parts::Server => Karve::start_server(&setup),
        Parts::ControlPlane | Parts::Node => Karve::start(&setup),
    }
}

fn start_upstream(parts: Parts) -> Result<Upstream> {
    match parts {
        Parts::Server => Upstream::start_control(&[]),
        Parts::ControlPlane => Upstream::start_control(&["kube-controller-manager", "kube-scheduler"]),
        Parts::Node => Upstream::start(&["pause"]),
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
    let files = credentials(karve)?.map(|path| path.display().to_string());
    let credentials = ["--cacert", &files[0], "--cert", &files[1], "--key", &files[2]];
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

/// The files of the authority, the administrator's certificate and its key, which the kubeconfig holds.
fn credentials(karve: &Karve) -> Result<[PathBuf; 3]> {
    let config = std::fs::read_to_string(karve.kubeconfig())?;
    let place = |field: &str| {
        let marked = format!("{field}: ");
        let data = config.lines().find_map(|line| line.trim().strip_prefix(&marked));
        let pem = STANDARD.decode(data.with_context(|| format!("the kubeconfig has no {field}"))?)?;
        let path = karve.scratch(&format!("{field}.pem"));
        std::fs::write(&path, pem)?;
        anyhow::Ok(path)
    };
    Ok([
        place("certificate-authority-data")?,
        place("client-certificate-data")?,
        place("client-key-data")?,
    ])
}

/// What one process uses.
pub fn usage_of(pid: u32) -> Result<Usage> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Ticks of 10 ms in user and kernel mode, counted after the command's name.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let times = fields.get(11..13).context("no times")?;
    let ticks: f64 = times.iter().filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(Usage {
        pss_mb: megabytes(&rollup, "Pss:")?,
        peak_mb: megabytes(&status, "VmHWM:")?,
        rss_mb: megabytes(&status, "VmRSS:")?,
        cpu_ms: ticks * 10.0,
    })
}

/// A figure in kB of a file of the kernel.
pub fn megabytes(text: &str, name: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    let kilobytes: f64 = number.with_context(|| format!("no {name}"))?.parse()?;
    Ok(kilobytes / 1e3)
}
