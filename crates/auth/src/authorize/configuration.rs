//! `AuthorizationConfiguration`: who decides, in which order, as the file of `--authorization-config` has it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use api::{FieldError, Path, Problems, names};
use serde::{Deserialize, Deserializer};

use super::review::Conditions;
use crate::configuration::{self, ConfigurationError};

const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// One who decides, checked.
#[derive(Debug)]
pub enum AuthorizerSpec {
    AlwaysAllow,
    AlwaysDeny,
    Node,
    Rbac,
    Abac,
    Webhook(WebhookSpec),
}

#[derive(Debug)]
pub struct WebhookSpec {
    pub name: String,
    pub kubeconfig: PathBuf,
    /// `v1` or `v1beta1`.
    pub version: String,
    pub timeout: Duration,
    /// How long answers are remembered; not at all when zero.
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    /// Whether a webhook that fails forbids; others are asked otherwise.
    pub denies_on_failure: bool,
    pub conditions: Conditions,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[derive(Default)]
struct File {
    authorizers: Vec<Entry>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    webhook: Option<WebhookEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct WebhookEntry {
    #[serde(rename = "authorizedTTL", deserialize_with = "nanos")]
    authorized_ttl: i64,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL", deserialize_with = "nanos")]
    unauthorized_ttl: i64,
    cache_unauthorized_requests: Option<bool>,
    #[serde(deserialize_with = "nanos")]
    timeout: i64,
    subject_access_review_version: String,
    match_condition_subject_access_review_version: String,
    failure_policy: String,
    connection_info: ConnectionInfo,
    match_conditions: Vec<MatchCondition>,
}

impl Default for WebhookEntry {
    fn default() -> WebhookEntry {
        WebhookEntry {
            authorized_ttl: 300_000_000_000,
            cache_authorized_requests: None,
            unauthorized_ttl: 30_000_000_000,
            cache_unauthorized_requests: None,
            timeout: 0,
            subject_access_review_version: String::new(),
            match_condition_subject_access_review_version: String::new(),
            failure_policy: String::new(),
            connection_info: ConnectionInfo::default(),
            match_conditions: Vec::new(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ConnectionInfo {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "kubeConfigFile")]
    kubeconfig_file: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MatchCondition {
    expression: String,
}

fn nanos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text = String::deserialize(deserializer)?;
    schema::parse_duration(&text).map_err(serde::de::Error::custom)
}

/// Reads and checks the file. Whether files that it names are there is seen when they are opened.
pub fn parse(text: &str) -> Result<Vec<AuthorizerSpec>, ConfigurationError> {
    let versions = [
        "apiserver.config.k8s.io/v1",
        "apiserver.config.k8s.io/v1beta1",
        "apiserver.config.k8s.io/v1alpha1",
    ];
    let file: File = configuration::parse(text, "AuthorizationConfiguration", &versions)?;
    let mut problems = Problems::default();
    let root = Path::new("authorizers");
    if file.authorizers.is_empty() {
        problems.required(&root, "", "at least one authorization mode must be defined");
    }
    let (mut types, mut seen_names) = (HashSet::new(), HashSet::new());
    let mut specs = Vec::new();
    for (index, entry) in file.authorizers.iter().enumerate() {
        let path = root.index(index);
        let kind = entry.kind.as_str();
        if kind.is_empty() {
            problems.required(&path, "type", "");
            continue;
        }
        if !TYPES.contains(&kind) {
            problems.extend([FieldError::not_supported(&path.child("type"), kind, &TYPES)]);
            continue;
        }
        if !types.insert(kind) && kind != "Webhook" {
            problems.duplicate(&path, "type", kind);
            continue;
        }
        check_name(
            &entry.name,
            seen_names.insert(entry.name.as_str()),
            &path,
            &mut problems,
        );
        specs.extend(entry.spec(&path, &mut problems));
    }
    match problems.is_empty() {
        true => Ok(specs),
        false => Err(ConfigurationError::Invalid(problems.into_vec())),
    }
}

fn check_name(name: &str, is_new: bool, path: &Path, problems: &mut Problems) {
    let wrong = names::dns1123_subdomain(name, false);
    if name.is_empty() {
        problems.required(path, "name", "");
    } else if !is_new {
        problems.duplicate(path, "name", name);
    } else if !wrong.is_empty() {
        let detail = format!("authorizer name is invalid: {}", wrong.join(", "));
        problems.invalid(path, "name", name, detail);
    }
}

impl Entry {
    fn spec(&self, path: &Path, problems: &mut Problems) -> Option<AuthorizerSpec> {
        if self.kind == "Webhook" {
            let Some(webhook) = &self.webhook else {
                problems.required(path, "webhook", "required when type=Webhook");
                return None;
            };
            return Some(AuthorizerSpec::Webhook(webhook.spec(&self.name, path, problems)));
        }
        if self.webhook.is_some() {
            problems.invalid(path, "webhook", "non-null", "may only be specified when type=Webhook");
        }
        Some(match self.kind.as_str() {
            "AlwaysAllow" => AuthorizerSpec::AlwaysAllow,
            "AlwaysDeny" => AuthorizerSpec::AlwaysDeny,
            "Node" => AuthorizerSpec::Node,
            "RBAC" => AuthorizerSpec::Rbac,
            _ => AuthorizerSpec::Abac,
        })
    }
}

impl WebhookEntry {
    fn spec(&self, name: &str, path: &Path, problems: &mut Problems) -> WebhookSpec {
        self.check_times(path, problems);
        self.check_versions(path, problems);
        match self.failure_policy.as_str() {
            "" => problems.required(path, "failurePolicy", ""),
            "NoOpinion" | "Deny" => {}
            other => {
                let place = path.child("failurePolicy");
                problems.extend([FieldError::not_supported(&place, other, &["NoOpinion", "Deny"])]);
            }
        }
        let kubeconfig = self.connection_info.check(&path.child("connectionInfo"), problems);
        let expressions: Vec<String> = self
            .match_conditions
            .iter()
            .map(|condition| condition.expression.clone())
            .collect();
        let ttl = |nanos: i64, is_kept: Option<bool>| match is_kept.unwrap_or(true) {
            true => Duration::from_nanos(nanos.unsigned_abs()),
            false => Duration::ZERO,
        };
        WebhookSpec {
            name: name.to_owned(),
            kubeconfig,
            version: self.subject_access_review_version.clone(),
            timeout: Duration::from_nanos(self.timeout.unsigned_abs()),
            authorized_ttl: ttl(self.authorized_ttl, self.cache_authorized_requests),
            unauthorized_ttl: ttl(self.unauthorized_ttl, self.cache_unauthorized_requests),
            denies_on_failure: self.failure_policy == "Deny",
            conditions: Conditions::compile(&expressions, path, problems),
        }
    }

    fn check_times(&self, path: &Path, problems: &mut Problems) {
        let shown = schema::format_duration;
        match self.timeout {
            0 => problems.required(path, "timeout", ""),
            nanos if nanos < 0 || Duration::from_nanos(nanos.unsigned_abs()) > MAX_TIMEOUT => {
                problems.invalid(path, "timeout", shown(nanos), "must be > 0s and <= 30s");
            }
            _ => {}
        }
        for (field, nanos) in [
            ("authorizedTTL", self.authorized_ttl),
            ("unauthorizedTTL", self.unauthorized_ttl),
        ] {
            match nanos {
                0 => problems.required(path, field, ""),
                nanos if nanos < 0 => problems.invalid(path, field, shown(nanos), "must be > 0s"),
                _ => {}
            }
        }
    }

    fn check_versions(&self, path: &Path, problems: &mut Problems) {
        let field = "subjectAccessReviewVersion";
        match self.subject_access_review_version.as_str() {
            "" => problems.required(path, field, ""),
            "v1" | "v1beta1" => {}
            other => problems.extend([FieldError::not_supported(&path.child(field), other, &["v1", "v1beta1"])]),
        }
        let field = "matchConditionSubjectAccessReviewVersion";
        match self.match_condition_subject_access_review_version.as_str() {
            "" if self.match_conditions.is_empty() => {}
            "" => problems.required(path, field, "required if match conditions are specified"),
            "v1" => {}
            other => problems.extend([FieldError::not_supported(&path.child(field), other, &["v1"])]),
        }
    }
}

impl ConnectionInfo {
    fn check(&self, path: &Path, problems: &mut Problems) -> PathBuf {
        let file = self.kubeconfig_file.as_deref().unwrap_or_default();
        match self.kind.as_str() {
            "" => problems.required(path, "type", ""),
            "InClusterConfig" => {
                let detail = "is not supported: name a kubeconfig with type=KubeConfigFile";
                problems.invalid(path, "type", self.kind.as_str(), detail);
            }
            "KubeConfigFile" if file.is_empty() => problems.required(path, "kubeConfigFile", ""),
            "KubeConfigFile" if !file.starts_with('/') => {
                problems.invalid(path, "kubeConfigFile", file, "must be an absolute path");
            }
            "KubeConfigFile" => {}
            other => {
                let supported = ["InClusterConfig", "KubeConfigFile"];
                problems.extend([FieldError::not_supported(&path.child("type"), other, &supported)]);
            }
        }
        PathBuf::from(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: first
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: /etc/hook.kubeconfig}
    matchConditions:
    - expression: has(request.resourceAttributes)
- type: Node
  name: node
- type: RBAC
  name: rbac
";

    #[test]
    fn a_file_names_those_who_decide_in_order() {
        let specs = parse(GOOD).expect("a sound file");
        let [
            AuthorizerSpec::Webhook(webhook),
            AuthorizerSpec::Node,
            AuthorizerSpec::Rbac,
        ] = specs.as_slice()
        else {
            panic!("{specs:?}");
        };
        assert_eq!(webhook.timeout, Duration::from_secs(3));
        assert_eq!(webhook.authorized_ttl, Duration::from_secs(300));
        assert_eq!(webhook.unauthorized_ttl, Duration::from_secs(30));
        assert!(webhook.denies_on_failure);
        let uncached = GOOD.replace("timeout: 3s", "timeout: 3s\n    cacheAuthorizedRequests: false");
        let specs = parse(&uncached).expect("a sound file");
        let [AuthorizerSpec::Webhook(webhook), ..] = specs.as_slice() else {
            panic!("no webhook");
        };
        assert!(webhook.authorized_ttl.is_zero());
    }

    #[test]
    fn what_is_wrong_is_said_in_upstreams_words() {
        for (from, to, why) in [
            (
                "type: RBAC",
                "type: Node",
                r#"authorizers[2].type: Duplicate value: "Node""#,
            ),
            (
                "type: RBAC",
                "type: Rbac",
                r#"authorizers[2].type: Unsupported value: "Rbac": supported values: "ABAC", "AlwaysAllow""#,
            ),
            ("type: RBAC", "type: \"\"", "authorizers[2].type: Required value"),
            (
                "name: rbac",
                "name: node",
                r#"authorizers[2].name: Duplicate value: "node""#,
            ),
            ("name: rbac", "name: R", "authorizer name is invalid"),
            (
                "name: rbac",
                "name: rbac\n  webhook: {}",
                r#"authorizers[2].webhook: Invalid value: "non-null": may only be specified when type=Webhook"#,
            ),
            (
                "timeout: 3s",
                "timeout: 31s",
                r#"authorizers[0].timeout: Invalid value: "31s": must be > 0s and <= 30s"#,
            ),
            ("    timeout: 3s\n", "", "authorizers[0].timeout: Required value"),
            (
                "timeout: 3s",
                "timeout: 3s\n    authorizedTTL: -1s",
                "authorizers[0].authorizedTTL: Invalid value: \"-1s\": must be > 0s",
            ),
            (
                "failurePolicy: Deny",
                "failurePolicy: Allow",
                r#"supported values: "NoOpinion", "Deny""#,
            ),
            (
                "    failurePolicy: Deny\n",
                "",
                "authorizers[0].failurePolicy: Required value",
            ),
            (
                "subjectAccessReviewVersion: v1",
                "subjectAccessReviewVersion: v2",
                "Unsupported value",
            ),
            (
                "    matchConditionSubjectAccessReviewVersion: v1\n",
                "",
                "required if match conditions are specified",
            ),
            ("/etc/hook.kubeconfig", "hook.kubeconfig", "must be an absolute path"),
            ("type: KubeConfigFile", "type: InClusterConfig", "is not supported"),
            (
                "has(request.resourceAttributes)",
                "request.user",
                "must evaluate to bool",
            ),
            ("has(request.resourceAttributes)", "nobody == 1", "undeclared reference"),
            ("authorizers:", "authorizer:", "unknown field `authorizer`"),
        ] {
            let changed = GOOD.replacen(from, to, 1);
            assert_ne!(changed, GOOD, "{from}");
            let error = parse(&changed).expect_err(from).to_string();
            assert!(error.contains(why), "{error}");
        }
        let none = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n";
        let error = parse(none).unwrap_err().to_string();
        assert_eq!(
            error,
            "authorizers: Required value: at least one authorization mode must be defined"
        );
    }
}
