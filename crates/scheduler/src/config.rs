//! The configuration file of upstream's scheduler, KubeSchedulerConfiguration v1.
//!
//! What is not supported is refused with the field's name: a setting that is read and not followed would be worse.

mod wire;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::framework::Row;
use crate::plugins;
use crate::profile::Profile;
use wire::{PluginSet, Wire, WireProfile};

pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
pub const KIND: &str = "KubeSchedulerConfiguration";
/// More profiles than anybody needs.
const MAX_PROFILES: usize = 64;

/// What a configuration file says.
pub struct Configuration {
    pub profiles: Vec<Profile>,
    /// How to reach the API server.
    pub kubeconfig: Option<PathBuf>,
    pub leader_election: LeaderElection,
}

/// What the file says of leader election; what it leaves out is for flags and defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderElection {
    pub leader_elect: Option<bool>,
    pub resource_name: Option<String>,
    pub resource_namespace: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    #[error("the configuration cannot be read: {0}")]
    Syntax(String),
    #[error("the configuration is {found:?}, not {KIND:?} of {API_VERSION:?}")]
    Kind { found: String },
    #[error("{field} is not supported: {why}")]
    Unsupported { field: String, why: &'static str },
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
}

impl Configuration {
    pub fn parse(text: &str) -> Result<Configuration, ConfigurationError> {
        let wire: Wire = serde_saphyr::from_str(text).map_err(|error| ConfigurationError::Syntax(error.to_string()))?;
        wire.check()?;
        let profiles = match wire.profiles.is_empty() {
            true => vec![Profile::default()],
            false => profiles(&wire.profiles)?,
        };
        let election = wire.leader_election;
        let kubeconfig = Some(wire.client_connection.kubeconfig).filter(|path| !path.is_empty());
        Ok(Configuration {
            profiles,
            kubeconfig: kubeconfig.map(PathBuf::from),
            leader_election: LeaderElection {
                leader_elect: election.leader_elect,
                resource_name: election.resource_name,
                resource_namespace: election.resource_namespace,
            },
        })
    }
}

fn profiles(wire: &[WireProfile]) -> Result<Vec<Profile>, ConfigurationError> {
    if wire.len() > MAX_PROFILES {
        return Err(invalid("profiles", format!("more than {MAX_PROFILES}")));
    }
    let mut names = BTreeSet::new();
    let mut profiles = Vec::new();
    for (index, one) in wire.iter().enumerate() {
        let field = format!("profiles[{index}]");
        let name = one.scheduler_name.clone();
        let scheduler_name = name.unwrap_or_else(|| Profile::default().scheduler_name);
        if scheduler_name.is_empty() || !names.insert(scheduler_name.clone()) {
            let problem = format!("{scheduler_name:?} is empty or there twice");
            return Err(invalid(&format!("{field}.schedulerName"), problem));
        }
        let rows = rows(&field, one)?;
        // Profiles live as long as the process, and a file is read once.
        let rows = Box::leak(rows.into_boxed_slice());
        profiles.push(Profile { scheduler_name, rows });
    }
    Ok(profiles)
}

/// The default plugins with what the profile changes about them.
fn rows(field: &str, profile: &WireProfile) -> Result<Vec<Row>, ConfigurationError> {
    profile.check(field)?;
    let plugins = &profile.plugins;
    let mut rows: Vec<(bool, Row)> = plugins::table().iter().map(|row| (true, *row)).collect();
    let at = |point: &str| format!("{field}.plugins.{point}");
    apply(&at("multiPoint"), &plugins.multi_point, &mut rows, |row, weight| {
        row.0 = weight.is_some();
        if let Some(weight) = weight.filter(|weight| *weight > 0) {
            row.1.weight = weight;
        }
    })?;
    for (point, set) in [("preFilter", &plugins.pre_filter), ("filter", &plugins.filter)] {
        apply(&at(point), set, &mut rows, |row, weight| {
            row.1.filters = weight.is_some()
        })?;
    }
    apply(&at("postFilter"), &plugins.post_filter, &mut rows, |row, weight| {
        row.1.rescues = weight.is_some();
    })?;
    for (point, set) in [("preScore", &plugins.pre_score), ("score", &plugins.score)] {
        apply(&at(point), set, &mut rows, |row, weight| {
            row.1.weight = weight.map_or(0, |weight| weight.max(1));
        })?;
    }
    let rows: Vec<Row> = rows.into_iter().filter(|(on, _)| *on).map(|(_, row)| row).collect();
    for needed in ["PrioritySort", "DefaultBinder"] {
        if !rows.iter().any(|row| row.plugin.name() == needed) {
            return Err(invalid(
                &at("multiPoint"),
                format!("without {needed} no pod could be scheduled"),
            ));
        }
    }
    Ok(rows)
}

/// Tells `change` of every plugin that is disabled (`None`) or enabled (with its weight), the disabled first.
fn apply(
    field: &str,
    set: &PluginSet,
    rows: &mut [(bool, Row)],
    change: impl Fn(&mut (bool, Row), Option<i64>),
) -> Result<(), ConfigurationError> {
    let known = |name: &str| plugins::table().iter().any(|row| row.plugin.name() == name);
    let named = set.disabled.iter().chain(&set.enabled);
    if let Some(unknown) = named.map(|one| &one.name).find(|name| *name != "*" && !known(name)) {
        return Err(invalid(field, format!("there is no plugin {unknown:?}")));
    }
    for row in rows.iter_mut() {
        let name = row.1.plugin.name();
        if set.disabled.iter().any(|one| one.name == name || one.name == "*") {
            change(row, None);
        }
        if let Some(enabled) = set.enabled.iter().find(|one| one.name == name) {
            change(row, Some(enabled.weight));
        }
    }
    Ok(())
}

fn invalid(field: &str, problem: impl Into<String>) -> ConfigurationError {
    ConfigurationError::Invalid {
        field: field.to_owned(),
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    fn parse(rest: &str) -> Result<Configuration, String> {
        Configuration::parse(&format!("{HEAD}{rest}")).map_err(|error| error.to_string())
    }

    fn weight(profile: &Profile, name: &str) -> Option<i64> {
        let row = profile.rows.iter().find(|row| row.plugin.name() == name);
        row.map(|row| row.weight)
    }

    #[test]
    fn a_file_without_anything_gives_the_defaults() {
        let configuration = parse("").unwrap();
        assert_eq!(configuration.profiles.len(), 1);
        assert_eq!(configuration.profiles[0].scheduler_name, "default-scheduler");
        assert_eq!(configuration.profiles[0].rows.len(), plugins::table().len());
        assert_eq!(configuration.leader_election, LeaderElection::default());
    }

    #[test]
    fn profiles_switch_plugins_and_weigh_them() {
        let configuration = parse(
            "
parallelism: 8
percentageOfNodesToScore: 50
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}
leaderElection: {leaderElect: false, resourceName: mine}
profiles:
- {}
- schedulerName: packing
  plugins:
    multiPoint: {disabled: [{name: InterPodAffinity}]}
    score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, weight: 7}, {name: NodeAffinity}]}
    postFilter: {disabled: [{name: DefaultPreemption}]}
",
        )
        .unwrap();
        assert_eq!(configuration.leader_election.leader_elect, Some(false));
        assert_eq!(configuration.leader_election.resource_name.as_deref(), Some("mine"));
        assert!(configuration.kubeconfig.is_some());
        let packing = &configuration.profiles[1];
        assert_eq!(packing.scheduler_name, "packing");
        assert_eq!(weight(packing, "InterPodAffinity"), None);
        assert_eq!(weight(packing, "ImageLocality"), Some(7));
        assert_eq!(weight(packing, "NodeAffinity"), Some(1));
        assert_eq!(weight(packing, "NodeResourcesFit"), Some(0));
        let rescues = packing.rows.iter().filter(|row| !row.rescues);
        let rescues: Vec<&str> = rescues.map(|row| row.plugin.name()).collect();
        assert_eq!(rescues, ["DefaultPreemption"]);
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_name() {
        let refused = |rest: &str, message: &str| {
            let error = parse(rest).map(drop).unwrap_err();
            assert!(error.contains(message), "{error}");
        };
        refused("profiles: [{schedulerName: a}, {schedulerName: a}]", "there twice");
        refused("extenders: [{urlPrefix: http://x}]", "extenders is not supported");
        refused("podMaxBackoffSeconds: 60", "podMaxBackoffSeconds is not supported");
        refused("percentageOfNodesToScore: 101", "percentageOfNodesToScore");
        refused("parallelism: 0", "parallelism");
        refused("nonsense: 1", "nonsense");
        refused(
            "profiles: [{pluginConfig: [{name: NodeAffinity}]}]",
            "profiles[0].pluginConfig is not supported",
        );
        refused(
            "profiles: [{plugins: {permit: {enabled: [{name: Mine}]}}}]",
            "profiles[0].plugins.permit is not supported",
        );
        refused(
            "profiles: [{plugins: {score: {enabled: [{name: Mine}]}}}]",
            "there is no plugin \"Mine\"",
        );
        refused(
            "profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}]}}}]",
            "without PrioritySort",
        );
        let other = Configuration::parse("apiVersion: v1\nkind: Pod").map(drop).unwrap_err();
        assert!(other.to_string().starts_with("the configuration is \"v1 Pod\""));
    }
}
