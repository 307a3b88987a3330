//! Pod networks by CNI plugins: programs that an administrator installed and configured.
//!
//! The protocol is version 1.0 of the CNI specification; `config` reads which plugins to call, `plugin` calls one,
//! `record` remembers what was done.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;

use crate::error::During;
use crate::netlink::Namespace;
use crate::route::{LOOPBACK, Route};
use crate::{Cidr, NetworkError, POD_INTERFACE, PodAddresses, PodNetwork, SandboxNetwork};
pub use config::ConfigError;
use config::{NetworkConfig, plugin_type};
use plugin::Verb;
use record::{Record, Records};

mod config;
mod plugin;
mod record;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniOptions {
    /// Where networks are configured.
    pub config_dir: PathBuf,
    /// Where plugins are installed; the first that has one of the name wins.
    pub bin_dirs: Vec<PathBuf>,
    /// Where is remembered what was done; nobody else's directory.
    pub data_dir: PathBuf,
}

impl CniOptions {
    /// The usual directories.
    pub fn new(data_dir: impl Into<PathBuf>) -> CniOptions {
        CniOptions {
            config_dir: "/etc/cni/net.d".into(),
            bin_dirs: vec!["/opt/cni/bin".into()],
            data_dir: data_dir.into(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CniError {
    #[error("no network is configured in {}", directory.display())]
    NoConfiguration { directory: PathBuf },

    #[error("the network configuration {} cannot be used: {source}", path.display())]
    BadConfiguration { path: PathBuf, source: ConfigError },

    #[error("CNI plugin {plugin} is not in {directories}")]
    NoPlugin { plugin: String, directories: String },

    #[error("failed to run CNI plugin {plugin}: {source}")]
    Run { plugin: String, source: io::Error },

    #[error("CNI plugin {plugin} timed out and was killed")]
    Timeout { plugin: String },

    #[error("CNI plugin {plugin} failed {verb}: {reason}")]
    Refused {
        plugin: String,
        verb: &'static str,
        reason: String,
    },

    #[error("CNI plugin {plugin} returned an invalid result: {reason}")]
    BadResult { plugin: String, reason: String },

    #[error("sandbox id {id:?} is refused: it cannot name a file")]
    SandboxId { id: String },

    #[error("failed to {operation} {}: {source}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// A network of plugins. Its configuration is read anew for each sandbox, so that an administrator can change it.
#[derive(Clone, Debug)]
pub struct Cni {
    options: CniOptions,
    records: Records,
}

/// Whether a directory has the configuration of a network, be it one that cannot be used.
pub fn is_configured(config_dir: &Path) -> bool {
    !matches!(NetworkConfig::load(config_dir), Err(CniError::NoConfiguration { .. }))
}

/// Prepares to call plugins. That nothing is configured yet is no error here but in [`PodNetwork::status`].
pub fn open(options: CniOptions) -> Cni {
    let records = Records(options.data_dir.join("sandboxes"));
    Cni { options, records }
}

impl Cni {
    /// Asks the plugins whether a sandbox is connected as they left it.
    pub async fn check(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError> {
        let Some(record) = self.records.read(&sandbox.id)? else {
            return Ok(());
        };
        if record.network.can_check() {
            for plugin in &record.network.plugins {
                self.call(Verb::Check, &record, plugin, record.result.as_ref()).await?;
            }
        }
        Ok(())
    }

    /// Calls the plugins in their order, each with the result of the one before.
    async fn add(&self, record: &Record) -> Result<Value, CniError> {
        let mut result = None;
        for plugin in &record.network.plugins {
            let answer = self.call(Verb::Add, record, plugin, result.as_ref()).await?;
            let parsed = serde_json::from_slice(&answer).map_err(|error| CniError::BadResult {
                plugin: plugin_type(plugin).unwrap_or_default().to_owned(),
                reason: error.to_string(),
            })?;
            result = Some(parsed);
        }
        Ok(result.unwrap_or_default())
    }

    /// Calls the plugins backwards. All are called, also after one that fails; the first failure is told.
    async fn delete(&self, record: &Record) -> Result<(), CniError> {
        let mut outcome = Ok(());
        for plugin in record.network.plugins.iter().rev() {
            let called = self.call(Verb::Delete, record, plugin, record.result.as_ref()).await;
            if let Err(error) = called
                && outcome.is_ok()
            {
                outcome = Err(error);
            }
        }
        outcome?;
        self.records.remove(&record.sandbox.id)
    }

    async fn call(
        &self,
        verb: Verb,
        record: &Record,
        plugin: &serde_json::Map<String, Value>,
        previous: Option<&Value>,
    ) -> Result<Vec<u8>, CniError> {
        let (network, sandbox) = (&record.network, &record.sandbox);
        plugin::call(verb, network, plugin, sandbox, previous, &self.options.bin_dirs).await
    }
}

#[async_trait]
impl PodNetwork for Cni {
    async fn setup(&self, sandbox: &SandboxNetwork) -> Result<PodAddresses, NetworkError> {
        let known = self.records.read(&sandbox.id)?;
        if let Some(result) = known.as_ref().and_then(|record| record.result.as_ref()) {
            return Ok(addresses(result)?);
        }
        if let Some(unfinished) = known {
            self.delete(&unfinished).await?;
        }
        bring_up_loopback(sandbox).await?;
        let mut record = Record {
            sandbox: sandbox.clone(),
            network: NetworkConfig::load(&self.options.config_dir)?,
            result: None,
        };
        self.records.write(&record)?;
        let added = match self.add(&record).await {
            Ok(result) => addresses(&result).map(|addresses| (result, addresses)),
            Err(error) => Err(error),
        };
        match added {
            Ok((result, addresses)) => {
                record.result = Some(result);
                self.records.write(&record)?;
                crate::mark_connected(sandbox);
                Ok(addresses)
            }
            Err(error) => {
                if let Err(error) = self.delete(&record).await {
                    tracing::warn!(sandbox = sandbox.id, %error, "Failed to clean up after a failed network set-up of a sandbox");
                }
                Err(error.into())
            }
        }
    }

    async fn teardown(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError> {
        if let Some(record) = self.records.read(&sandbox.id)? {
            self.delete(&record).await?;
        }
        Ok(())
    }

    async fn status(&self) -> Result<(), NetworkError> {
        let network = NetworkConfig::load(&self.options.config_dir)?;
        for plugin in &network.plugins {
            plugin::find(plugin_type(plugin).unwrap_or_default(), &self.options.bin_dirs)?;
        }
        Ok(())
    }

    async fn reconcile(&self, live: &[SandboxNetwork]) -> Result<(), NetworkError> {
        let live: BTreeSet<&str> = live.iter().map(|sandbox| sandbox.id.as_str()).collect();
        let records = self.records.all()?.into_iter();
        for stale in records.filter(|record| !live.contains(record.sandbox.id.as_str())) {
            tracing::info!(
                sandbox = stale.sandbox.id,
                "Tearing down the network of a removed sandbox"
            );
            self.delete(&stale).await?;
        }
        Ok(())
    }

    /// Where addresses come from is said by the plugins' own configuration.
    async fn update_pod_cidrs(&self, _pod_cidrs: &[Cidr]) -> Result<(), NetworkError> {
        Ok(())
    }
}

/// What of a result is needed here.
#[derive(Deserialize)]
struct CniResult {
    #[serde(default)]
    ips: Vec<CniIp>,
}

#[derive(Deserialize)]
struct CniIp {
    address: String,
    gateway: Option<String>,
}

/// The pod's addresses, at most one of each family, as the result lists them.
fn addresses(result: &Value) -> Result<PodAddresses, CniError> {
    let bad = |reason: String| CniError::BadResult {
        plugin: "of the network".to_owned(),
        reason,
    };
    let result: CniResult = serde_json::from_value(result.clone()).map_err(|error| bad(error.to_string()))?;
    let mut addresses = PodAddresses {
        ips: Vec::new(),
        gateways: Vec::new(),
        interface: POD_INTERFACE.to_owned(),
    };
    for given in &result.ips {
        let text = given.address.split('/').next().unwrap_or_default();
        let ip: IpAddr = text
            .parse()
            .map_err(|_| bad(format!("{:?} is no address", given.address)))?;
        if addresses.ips.iter().all(|known| known.is_ipv4() != ip.is_ipv4()) {
            addresses.ips.push(ip);
            addresses.gateways.extend(
                given
                    .gateway
                    .as_ref()
                    .and_then(|gateway| gateway.parse::<IpAddr>().ok()),
            );
        }
    }
    match addresses.ips.is_empty() {
        true => Err(bad("it has no address".to_owned())),
        false => Ok(addresses),
    }
}

/// Plugins leave the pod's loopback to the runtime.
async fn bring_up_loopback(sandbox: &SandboxNetwork) -> Result<(), NetworkError> {
    let path = sandbox.netns_path.clone();
    let work = move || {
        let namespace = Namespace::open(&path).map_err(|source| NetworkError::OpenNamespace { path, source })?;
        let pod = Route::open_in(&namespace).during(|| "open the links of the pod".to_owned())?;
        pod.set_up(LOOPBACK).during(|| "bring up lo in the pod".to_owned())
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(NetworkError::Interrupted(panic.to_string())))
}
