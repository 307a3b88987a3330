//! Attribute-based access: a file with one policy per line.

use serde::Deserialize;

use super::{Attributes, Authorizer, Decision};
use crate::user::AUTHENTICATED;

const VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";

/// All policies of a file; one that fits is enough.
#[derive(Debug, Default)]
pub struct Abac {
    policies: Vec<Spec>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line} of the policy file is invalid: {problem}")]
pub struct PolicyFileError {
    pub line: usize,
    pub problem: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Policy {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Spec {
    user: String,
    group: String,
    readonly: bool,
    #[serde(rename = "apiGroup")]
    api_group: String,
    resource: String,
    namespace: String,
    non_resource_path: String,
}

impl Abac {
    /// Reads a policy file: a JSON object per line, empty lines and those that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Abac, PolicyFileError> {
        let mut policies = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let policy = parse_line(line).map_err(|problem| PolicyFileError {
                line: index + 1,
                problem,
            })?;
            policies.push(policy);
        }
        Ok(Abac { policies })
    }
}

fn parse_line(line: &str) -> Result<Spec, String> {
    let policy: Policy = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if policy.api_version != VERSION || policy.kind != "Policy" {
        let (version, kind) = (policy.api_version, policy.kind);
        return Err(format!(
            "want a Policy of {VERSION}, found kind {kind:?} of {version:?}"
        ));
    }
    Ok(policy.spec)
}

impl Authorizer for Abac {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        match self.policies.iter().any(|policy| policy.allows(attributes)) {
            true => Decision::Allow(String::new()),
            false => Decision::NoOpinion("No policy matched.".to_owned()),
        }
    }
}

impl Spec {
    fn allows(&self, attributes: &Attributes) -> bool {
        let is_read = matches!(attributes.verb, "get" | "list" | "watch");
        let is_about = match attributes.is_resource {
            true => {
                is_or_all(&self.namespace, attributes.namespace)
                    && is_or_all(&self.resource, attributes.resource)
                    && is_or_all(&self.api_group, attributes.group)
            }
            false => match self.non_resource_path.strip_suffix('*') {
                Some(prefix) => attributes.path.starts_with(prefix.trim_end_matches('*')),
                None => self.non_resource_path == attributes.path,
            },
        };
        self.is_for(attributes) && (is_read || !self.readonly) && is_about
    }

    /// All of what a policy says of its subject must fit. "All" means everybody who proved who they are.
    fn is_for(&self, attributes: &Attributes) -> bool {
        let user = attributes.user;
        let by_user = match self.user.as_str() {
            "" => None,
            "*" => Some(user.is_in(AUTHENTICATED)),
            name => Some(user.name == name),
        };
        let by_group = match self.group.as_str() {
            "" => None,
            "*" => Some(user.is_in(AUTHENTICATED)),
            group => Some(user.is_in(group)),
        };
        match (by_user, by_group) {
            (None, None) => false,
            (one, other) => one.unwrap_or(true) && other.unwrap_or(true),
        }
    }
}

fn is_or_all(allowed: &str, asked: &str) -> bool {
    allowed == "*" || allowed == asked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::User;

    fn policy(spec: &str) -> String {
        format!(r#"{{"apiVersion": "{VERSION}", "kind": "Policy", "spec": {spec}}}"#)
    }

    fn allows(spec: &str, attributes: &Attributes) -> bool {
        let abac = Abac::parse(&policy(spec)).expect("a sound policy");
        matches!(abac.authorize(attributes), Decision::Allow(_))
    }

    #[test]
    fn a_policy_allows_what_it_names() {
        let jane = User::system("jane", &["dev"]);
        let read = Attributes::resource(&jane, "get", "", "pods").named("team", "web");
        let write = Attributes::resource(&jane, "update", "", "pods").named("team", "web");
        let path = Attributes::path(&jane, "get", "/healthz/etcd");
        for spec in [
            r#"{"user": "jane", "namespace": "team", "resource": "pods"}"#,
            r#"{"group": "dev", "namespace": "*", "resource": "*", "apiGroup": "*"}"#,
            r#"{"user": "*", "group": "dev", "namespace": "team", "resource": "pods"}"#,
        ] {
            assert!(allows(spec, &read) && allows(spec, &write), "{spec}");
            assert!(!allows(spec, &path), "{spec}");
        }
        let readonly = r#"{"user": "jane", "namespace": "team", "resource": "pods", "readonly": true}"#;
        assert!(allows(readonly, &read) && !allows(readonly, &write));
        for spec in [
            r#"{"user": "jane", "nonResourcePath": "/healthz/*"}"#,
            r#"{"user": "jane", "nonResourcePath": "*"}"#,
        ] {
            assert!(allows(spec, &path) && !allows(spec, &read), "{spec}");
        }
        for spec in [
            r#"{"namespace": "team", "resource": "pods"}"#,
            r#"{"user": "jane", "group": "ops", "namespace": "team", "resource": "pods"}"#,
            r#"{"user": "jane", "namespace": "team", "resource": "pods", "apiGroup": "apps"}"#,
            r#"{"user": "jane", "resource": "pods"}"#,
            r#"{"user": "jan", "namespace": "*", "resource": "*"}"#,
        ] {
            assert!(!allows(spec, &read), "{spec}");
        }
    }

    /// A star is everybody with a name, not everybody.
    #[test]
    fn all_users_are_those_who_proved_who_they_are() {
        let nobody = User::anonymous();
        let read = Attributes::resource(&nobody, "get", "", "pods").named("team", "web");
        for spec in [
            r#"{"user": "*", "namespace": "*", "resource": "*"}"#,
            r#"{"group": "*", "namespace": "*", "resource": "*"}"#,
        ] {
            assert!(!allows(spec, &read), "{spec}");
        }
        assert!(allows(
            r#"{"group": "system:unauthenticated", "namespace": "*", "resource": "*"}"#,
            &read
        ));
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let good = policy(r#"{"user": "jane"}"#);
        for bad in [
            "nonsense".to_owned(),
            r#"{"user": "jane"}"#.to_owned(),
            policy(r#"{"usr": "jane"}"#),
            good.replace("Policy", "Rule"),
            good.replace("v1beta1", "v2"),
        ] {
            let error = Abac::parse(&format!("# who may what\n\n{good}\n{bad}\n")).unwrap_err();
            assert_eq!(error.line, 4, "{error}");
        }
        assert!(Abac::parse("").is_ok());
    }
}
