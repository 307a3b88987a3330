//! `AuthenticationConfiguration`, as it is written in the file.

use serde::{Deserialize, Serialize};

use crate::configuration::{self, ConfigurationError};

/// The file of `--authentication-config`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AuthenticationConfiguration {
    pub jwt: Vec<JwtAuthenticatorSpec>,
    pub anonymous: Option<AnonymousSpec>,
}

/// Who may come without credentials. Without conditions it is everybody, to every path.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AnonymousSpec {
    pub enabled: bool,
    pub conditions: Vec<AnonymousCondition>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AnonymousCondition {
    pub path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct JwtAuthenticatorSpec {
    pub issuer: IssuerSpec,
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    pub claim_mappings: ClaimMappings,
    pub user_validation_rules: Vec<UserValidationRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IssuerSpec {
    pub url: String,
    #[serde(rename = "discoveryURL")]
    pub discovery_url: String,
    /// PEM certificates; without them the system's are trusted.
    pub certificate_authority: String,
    pub audiences: Vec<String>,
    pub audience_match_policy: String,
    pub egress_selector_type: String,
}

/// A claim must have a value, or an expression must hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClaimValidationRule {
    pub claim: String,
    pub required_value: String,
    pub expression: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClaimMappings {
    pub username: PrefixedClaimOrExpression,
    pub groups: PrefixedClaimOrExpression,
    pub uid: ClaimOrExpression,
    pub extra: Vec<ExtraMapping>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PrefixedClaimOrExpression {
    pub claim: String,
    pub prefix: Option<String>,
    pub expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClaimOrExpression {
    pub claim: String,
    pub expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ExtraMapping {
    pub key: String,
    pub value_expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct UserValidationRule {
    pub expression: String,
    pub message: String,
}

impl AuthenticationConfiguration {
    /// Reads the file; whether it makes sense is checked when authenticators are made of it.
    pub fn parse(text: &str) -> Result<AuthenticationConfiguration, ConfigurationError> {
        let versions = [
            "apiserver.config.k8s.io/v1",
            "apiserver.config.k8s.io/v1beta1",
            "apiserver.config.k8s.io/v1alpha1",
        ];
        configuration::parse(text, "AuthenticationConfiguration", &versions)
    }
}
