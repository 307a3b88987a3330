//! The file as it is written. Fields that are not listed are errors.

use api::Value;
use serde::Deserialize;

use super::{API_VERSION, ConfigurationError, KIND, invalid};

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Wire {
    api_version: String,
    kind: String,
    pub profiles: Vec<WireProfile>,
    pub client_connection: ClientConnection,
    pub leader_election: WireElection,
    /// Every decision is made by one thread; there is nothing to divide.
    parallelism: Option<i64>,
    /// All nodes are scored, whatever the share.
    percentage_of_nodes_to_score: Option<i64>,
    pod_initial_backoff_seconds: Option<i64>,
    pod_max_backoff_seconds: Option<i64>,
    extenders: Vec<Value>,
    enable_profiling: Option<bool>,
    enable_contention_profiling: Option<bool>,
    delay_cache_until_active: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WireProfile {
    pub scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<i64>,
    pub plugins: Plugins,
    plugin_config: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Plugins {
    pub multi_point: PluginSet,
    pub pre_filter: PluginSet,
    pub filter: PluginSet,
    pub post_filter: PluginSet,
    pub pre_score: PluginSet,
    pub score: PluginSet,
    pre_enqueue: PluginSet,
    queue_sort: PluginSet,
    reserve: PluginSet,
    permit: PluginSet,
    pre_bind: PluginSet,
    bind: PluginSet,
    post_bind: PluginSet,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PluginSet {
    pub enabled: Vec<Named>,
    pub disabled: Vec<Named>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Named {
    pub name: String,
    pub weight: i64,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientConnection {
    pub kubeconfig: String,
    accept_content_types: String,
    content_type: String,
    qps: Option<f64>,
    burst: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WireElection {
    pub leader_elect: Option<bool>,
    pub resource_name: Option<String>,
    pub resource_namespace: Option<String>,
    resource_lock: Option<String>,
    lease_duration: Option<String>,
    renew_deadline: Option<String>,
    retry_period: Option<String>,
}

impl Wire {
    pub fn check(&self) -> Result<(), ConfigurationError> {
        if self.api_version != API_VERSION || self.kind != KIND {
            return Err(ConfigurationError::Kind {
                found: format!("{} {}", self.api_version, self.kind),
            });
        }
        if self.parallelism.is_some_and(|many| many < 1) {
            return Err(invalid("parallelism", "must be greater than 0"));
        }
        check_share("percentageOfNodesToScore", self.percentage_of_nodes_to_score)?;
        refuse("extenders", !self.extenders.is_empty(), "plugins are built in")?;
        let backoff = "pods pause for 1 s at first and for 10 s at most";
        refuse(
            "podInitialBackoffSeconds",
            !default_or(self.pod_initial_backoff_seconds, 1),
            backoff,
        )?;
        refuse(
            "podMaxBackoffSeconds",
            !default_or(self.pod_max_backoff_seconds, 10),
            backoff,
        )?;
        let profiling = "there are no Go profiles to serve";
        let contention = self.enable_contention_profiling == Some(true) && self.enable_profiling == Some(true);
        refuse("enableContentionProfiling", contention, profiling)?;
        refuse(
            "delayCacheUntilActive",
            self.delay_cache_until_active,
            "a follower keeps no cache anyway",
        )?;
        self.client_connection.check()?;
        self.leader_election.check()
    }
}

impl WireProfile {
    pub fn check(&self, field: &str) -> Result<(), ConfigurationError> {
        let at = |name: &str| format!("{field}.{name}");
        check_share(&at("percentageOfNodesToScore"), self.percentage_of_nodes_to_score)?;
        let why = "plugins take no arguments yet";
        refuse(&at("pluginConfig"), !self.plugin_config.is_empty(), why)?;
        let plugins = &self.plugins;
        for (point, set) in [
            ("preEnqueue", &plugins.pre_enqueue),
            ("queueSort", &plugins.queue_sort),
            ("reserve", &plugins.reserve),
            ("permit", &plugins.permit),
            ("preBind", &plugins.pre_bind),
            ("bind", &plugins.bind),
            ("postBind", &plugins.post_bind),
        ] {
            let used = !set.enabled.is_empty() || !set.disabled.is_empty();
            let why = "switch the plugin with multiPoint instead";
            refuse(&at(&format!("plugins.{point}")), used, why)?;
        }
        Ok(())
    }
}

impl ClientConnection {
    fn check(&self) -> Result<(), ConfigurationError> {
        let json = |text: &str| text.is_empty() || text == "application/json";
        let why = "the scheduler speaks JSON";
        refuse(
            "clientConnection.acceptContentTypes",
            !json(&self.accept_content_types),
            why,
        )?;
        refuse("clientConnection.contentType", !json(&self.content_type), why)?;
        let why = "the API server limits, not the client";
        refuse("clientConnection.qps", self.qps.is_some(), why)?;
        refuse("clientConnection.burst", self.burst.is_some(), why)
    }
}

impl WireElection {
    fn check(&self) -> Result<(), ConfigurationError> {
        let lock = self.resource_lock.as_deref();
        refuse(
            "leaderElection.resourceLock",
            !matches!(lock, None | Some("leases")),
            "the lock is a Lease",
        )?;
        let why = "only upstream's default is";
        for (field, value, default) in [
            ("leaseDuration", &self.lease_duration, "15s"),
            ("renewDeadline", &self.renew_deadline, "10s"),
            ("retryPeriod", &self.retry_period, "2s"),
        ] {
            let other = value.as_deref().is_some_and(|value| value != default);
            refuse(&format!("leaderElection.{field}"), other, why)?;
        }
        Ok(())
    }
}

fn default_or(value: Option<i64>, default: i64) -> bool {
    value.is_none_or(|value| value == default)
}

fn check_share(field: &str, share: Option<i64>) -> Result<(), ConfigurationError> {
    match share {
        Some(share) if !(0..=100).contains(&share) => Err(invalid(field, "not in valid range [0-100]")),
        _ => Ok(()),
    }
}

fn refuse(field: &str, is_used: bool, why: &'static str) -> Result<(), ConfigurationError> {
    if !is_used {
        return Ok(());
    }
    Err(ConfigurationError::Unsupported {
        field: field.to_owned(),
        why,
    })
}
