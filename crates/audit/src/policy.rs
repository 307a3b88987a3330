//! What is noted of a request: the first rule that fits decides.

use api::{FieldError, Path, Problems};
use auth::Attributes;
use auth::configuration::{self, ConfigurationError};
use serde::{Deserialize, Serialize};

use crate::Stage;

/// How much is noted, each level more than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    #[default]
    None,
    Metadata,
    Request,
    RequestResponse,
}

/// What one request is worth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    pub level: Level,
    pub omit_stages: Vec<Stage>,
    pub omit_managed_fields: bool,
}

/// The file of `--audit-policy-file`, checked.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<(RuleSpec, Treatment)>,
}

pub type PolicyError = ConfigurationError;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct PolicySpec {
    metadata: serde_json::Value,
    rules: Vec<RuleSpec>,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct RuleSpec {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl Level {
    fn named(name: &str) -> Option<Level> {
        match name {
            "None" => Some(Level::None),
            "Metadata" => Some(Level::Metadata),
            "Request" => Some(Level::Request),
            "RequestResponse" => Some(Level::RequestResponse),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

impl Policy {
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let spec: PolicySpec = configuration::parse(text, "Policy", &["audit.k8s.io/v1"])?;
        let mut problems = Problems::default();
        let root = Path::new("rules");
        if spec.rules.is_empty() {
            problems.required(&root, "", "loaded illegal policy with 0 rules");
        }
        let omitted = stages(&spec.omit_stages, &Path::new("omitStages"), &mut problems);
        let omit_managed_fields = spec.omit_managed_fields;
        let mut rules = Vec::new();
        for (index, rule) in spec.rules.into_iter().enumerate() {
            let path = root.index(index);
            rule.check(&path, &mut problems);
            let mut omit_stages = omitted.clone();
            omit_stages.extend(stages(&rule.omit_stages, &path.child("omitStages"), &mut problems));
            let treatment = Treatment {
                level: Level::named(&rule.level).unwrap_or_default(),
                omit_stages,
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(omit_managed_fields),
            };
            rules.push((rule, treatment));
        }
        match problems.is_empty() {
            true => Ok(Policy { rules }),
            false => Err(ConfigurationError::Invalid(problems.into_vec())),
        }
    }

    /// What becomes of a request. What no rule is about is not noted.
    pub fn treatment(&self, attributes: &Attributes<'_>) -> Treatment {
        let found = self.rules.iter().find(|(rule, _)| rule.fits(attributes));
        found.map(|(_, treatment)| treatment.clone()).unwrap_or_default()
    }
}

fn stages(names: &[String], path: &Path, problems: &mut Problems) -> Vec<Stage> {
    let mut found = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match Stage::ALL.into_iter().find(|stage| stage.name() == name) {
            Some(stage) => found.push(stage),
            None => {
                let supported = Stage::ALL.map(Stage::name);
                problems.extend([FieldError::not_supported(&path.index(index), name.as_str(), &supported)]);
            }
        }
    }
    found
}

impl RuleSpec {
    fn check(&self, path: &Path, problems: &mut Problems) {
        match self.level.as_str() {
            "" => problems.required(path, "level", ""),
            level if Level::named(level).is_none() => {
                let supported = ["None", "Metadata", "Request", "RequestResponse"];
                problems.extend([FieldError::not_supported(&path.child("level"), level, &supported)]);
            }
            _ => {}
        }
        let is_of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if is_of_resources && !self.non_resource_urls.is_empty() {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            let shown = self.non_resource_urls.clone();
            problems.invalid(path, "nonResourceURLs", shown, detail);
        }
        for (index, url) in self.non_resource_urls.iter().enumerate() {
            let place = path.child("nonResourceURLs").index(index);
            if url == "*" {
                continue;
            }
            if !url.starts_with('/') {
                let detail = "non-resource URL rules must begin with a '/' character";
                problems.invalid(&place, "", url.as_str(), detail);
            }
            if url.trim_end_matches('*').contains('*') || url.ends_with("**") {
                let detail = "non-resource URL wildcards '*' must be the final character of the rule";
                problems.invalid(&place, "", url.as_str(), detail);
            }
        }
        for (index, resources) in self.resources.iter().enumerate() {
            if resources.resources.is_empty() && !resources.resource_names.is_empty() {
                let place = path.child("resources").index(index);
                let detail = "using resourceNames requires at least one resource";
                problems.invalid(&place, "resourceNames", resources.resource_names.clone(), detail);
            }
        }
    }

    fn fits(&self, attributes: &Attributes<'_>) -> bool {
        let has = |values: &[String], wanted: &str| values.iter().any(|value| value == wanted);
        if !self.users.is_empty() && !has(&self.users, &attributes.user.name) {
            return false;
        }
        let groups = &attributes.user.groups;
        if !self.user_groups.is_empty() && !groups.iter().any(|group| has(&self.user_groups, group)) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, attributes.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.is_resource
                && (self.namespaces.is_empty() || has(&self.namespaces, attributes.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|group| group.fits(attributes)));
        }
        if !self.non_resource_urls.is_empty() {
            return !attributes.is_resource && self.non_resource_urls.iter().any(|url| url_fits(url, attributes.path));
        }
        true
    }
}

fn url_fits(url: &str, path: &str) -> bool {
    match url.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => url == path,
    }
}

impl GroupResources {
    fn fits(&self, attributes: &Attributes<'_>) -> bool {
        if self.group != attributes.group {
            return false;
        }
        let is_named = self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == attributes.name);
        self.resources.is_empty() || is_named && self.resources.iter().any(|rule| resource_fits(rule, attributes))
    }
}

/// `pods`, `pods/log`, `*` for all, `*/scale` for a subresource of all, `pods/*` for all below.
fn resource_fits(rule: &str, attributes: &Attributes<'_>) -> bool {
    let (resource, subresource) = (attributes.resource, attributes.subresource);
    match rule.split_once('/') {
        None => rule == "*" || subresource.is_empty() && rule == resource,
        Some(("*", below)) => !subresource.is_empty() && below == subresource,
        Some((above, "*")) => above == resource,
        Some((above, below)) => above == resource && below == subresource,
    }
}

#[cfg(test)]
mod tests {
    use auth::User;

    use super::*;

    fn policy(rules: &str) -> String {
        format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n{rules}")
    }

    fn level(rules: &str, attributes: &Attributes<'_>) -> Level {
        Policy::parse(&policy(rules))
            .expect("a sound policy")
            .treatment(attributes)
            .level
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let jane = User::new("jane", &["dev"]);
        let log = Attributes::resource(&jane, "get", "", "pods")
            .named("team", "web")
            .subresource("log");
        let secret = Attributes::resource(&jane, "update", "", "secrets").named("team", "s");
        let deployment = Attributes::resource(&jane, "list", "apps", "deployments").named("team", "");
        let health = Attributes::path(&jane, "get", "/healthz/etcd");
        let rules = "
- {level: None, nonResourceURLs: ['/healthz*', /version]}
- {level: Metadata, resources: [{group: '', resources: [secrets, configmaps]}]}
- {level: Request, users: [jane], verbs: [get], resources: [{group: '', resources: ['pods/*']}]}
- {level: RequestResponse, namespaces: [team], userGroups: [dev]}
- {level: Metadata}
";
        assert_eq!(level(rules, &health), Level::None);
        assert_eq!(level(rules, &secret), Level::Metadata);
        assert_eq!(level(rules, &log), Level::Request);
        assert_eq!(level(rules, &deployment), Level::RequestResponse);
        assert_eq!(
            level(rules, &Attributes::path(&jane, "get", "/metrics")),
            Level::Metadata
        );
        assert_eq!(
            level("- {level: Request, users: [joe]}", &log),
            Level::None,
            "what no rule is about"
        );
    }

    #[test]
    fn rules_name_resources_subresources_and_names() {
        let jane = User::new("jane", &[]);
        let scale = Attributes::resource(&jane, "update", "apps", "deployments")
            .subresource("scale")
            .named("n", "web");
        for (resources, fits) in [
            ("{group: apps}", true),
            ("{group: apps, resources: ['*']}", true),
            ("{group: apps, resources: ['*/scale']}", true),
            ("{group: apps, resources: ['deployments/*']}", true),
            (
                "{group: apps, resources: [deployments/scale], resourceNames: [web]}",
                true,
            ),
            (
                "{group: apps, resources: [deployments/scale], resourceNames: [db]}",
                false,
            ),
            ("{group: apps, resources: [deployments]}", false),
            ("{group: apps, resources: ['*/status']}", false),
            ("{group: '', resources: ['*']}", false),
        ] {
            let found = level(&format!("- {{level: Request, resources: [{resources}]}}"), &scale);
            assert_eq!(found == Level::Request, fits, "{resources}");
        }
    }

    #[test]
    fn a_rule_leaves_out_stages_beyond_those_of_all() {
        let rules = "- {level: Metadata, omitStages: [Panic], omitManagedFields: true}";
        let jane = User::new("jane", &[]);
        let treatment = Policy::parse(&policy(rules))
            .expect("a policy")
            .treatment(&Attributes::path(&jane, "get", "/"));
        assert_eq!(treatment.omit_stages, [Stage::RequestReceived, Stage::Panic]);
        assert!(treatment.omit_managed_fields);
    }

    #[test]
    fn what_is_wrong_with_a_policy_is_said() {
        for (rules, why) in [
            ("- {level: All}", r#"rules[0].level: Unsupported value: "All""#),
            ("- {}", "rules[0].level: Required value"),
            (
                "- {level: None, nonResourceURLs: [/a], namespaces: [b]}",
                "rules cannot apply to both regular resources",
            ),
            (
                "- {level: None, nonResourceURLs: [a]}",
                "must begin with a '/' character",
            ),
            (
                "- {level: None, nonResourceURLs: ['/a*b']}",
                "must be the final character of the rule",
            ),
            (
                "- {level: None, omitStages: [Never]}",
                r#"rules[0].omitStages[0]: Unsupported value: "Never""#,
            ),
            (
                "- {level: None, resources: [{group: a, resourceNames: [b]}]}",
                "using resourceNames requires at least one resource",
            ),
            ("- {level: None, user: [jane]}", "unknown field `user`"),
            ("[]", "loaded illegal policy with 0 rules"),
        ] {
            let text = match rules {
                "[]" => "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: []\n".to_owned(),
                rules => policy(rules),
            };
            let error = Policy::parse(&text).expect_err(rules).to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(Policy::parse("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: []\n").is_err());
    }
}
