//! The API server's flags of who users are, beyond certificates and service accounts.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use apiserver::{GateOptions, Issuers, IssuersSource, TokenWebhook};
use auth::authenticate::TokenFile;
use auth::authenticate::oidc::spec::{
    ClaimMappings, ClaimValidationRule, IssuerSpec, JwtAuthenticatorSpec, PrefixedClaimOrExpression,
};
use auth::authenticate::oidc::{Algorithm, JwtAuthenticator};
use clap::Args;

use crate::layout::read;

#[derive(Args, Clone, Debug)]
pub struct AuthenticationArgs {
    /// CSV file of static tokens, with lines of token,user,uid,"group,group"
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    /// Accept requests without credentials as user system:anonymous; never with authorization mode AlwaysAllow
    /// [default: true]
    #[arg(long, action = clap::ArgAction::Set)]
    pub anonymous_auth: Option<bool>,
    /// Authenticate with bootstrap tokens: Secrets of type bootstrap.kubernetes.io/token in kube-system
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub enable_bootstrap_token_auth: bool,

    /// File with an AuthenticationConfiguration (OIDC issuers, anonymous access); reloaded when it changes
    #[arg(long)]
    pub authentication_config: Option<PathBuf>,
    /// HTTPS URL of the OIDC issuer
    #[arg(long)]
    pub oidc_issuer_url: Option<String>,
    /// OIDC client ID, which must be an audience of ID tokens
    #[arg(long)]
    pub oidc_client_id: Option<String>,
    /// OIDC claim with the user name
    #[arg(long, default_value = "sub")]
    pub oidc_username_claim: String,
    /// Prefix of user names; "-" for none [default: the issuer's URL and #, unless the claim is email]
    #[arg(long)]
    pub oidc_username_prefix: Option<String>,
    /// OIDC claim with the groups of the user
    #[arg(long)]
    pub oidc_groups_claim: Option<String>,
    /// Prefix of group names
    #[arg(long)]
    pub oidc_groups_prefix: Option<String>,
    /// Claim that ID tokens must have, as claim=value; can be repeated
    #[arg(long, value_delimiter = ',')]
    pub oidc_required_claim: Vec<String>,
    /// CA certificate that verifies the OIDC issuer, PEM [default: the system's CAs]
    #[arg(long)]
    pub oidc_ca_file: Option<PathBuf>,
    /// Accepted signature algorithms of ID tokens
    #[arg(long, value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,

    /// Kubeconfig of the token authentication webhook
    #[arg(long)]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// Cache duration of the webhook's responses
    #[arg(long, default_value = "2m0s", value_parser = super::duration)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// TokenReview version sent to the webhook: v1 or v1beta1
    #[arg(long, default_value = "v1beta1", value_parser = ["v1", "v1beta1"])]
    pub authentication_token_webhook_version: String,
}

impl AuthenticationArgs {
    /// Completes what the gate is told. `own_issuers` sign service account tokens.
    pub fn apply(&self, gate: &mut GateOptions, own_issuers: &[String]) -> Result<()> {
        if let Some(path) = &self.token_auth_file {
            let tokens = TokenFile::parse(&read(path)?);
            gate.tokens = tokens.with_context(|| format!("{} is not a valid token file", path.display()))?;
        }
        gate.allow_anonymous = self.anonymous_auth.unwrap_or(true);
        gate.bootstrap_tokens = self.enable_bootstrap_token_auth;
        if let Some(source) = self.issuers(own_issuers)? {
            let issuers = Issuers::open(source, own_issuers.to_vec())?;
            if issuers.anonymous().is_some() && self.anonymous_auth.is_some() {
                bail!(
                    "--anonymous-auth flag cannot be set when anonymous field is configured in authentication \
                     configuration file"
                );
            }
            gate.issuers = Some(issuers);
        }
        if let Some(path) = &self.authentication_token_webhook_config_file {
            let version = match self.authentication_token_webhook_version.as_str() {
                "v1" => "v1",
                _ => "v1beta1",
            };
            let webhook = TokenWebhook::open(path, version, self.authentication_token_webhook_cache_ttl);
            gate.token_webhook = Some(webhook.context("invalid --authentication-token-webhook-config-file")?);
        }
        Ok(())
    }

    fn issuers(&self, own_issuers: &[String]) -> Result<Option<IssuersSource>> {
        let uses_flags = self.oidc_issuer_url.is_some()
            || self.oidc_client_id.is_some()
            || self.oidc_username_prefix.is_some()
            || self.oidc_groups_claim.is_some()
            || self.oidc_groups_prefix.is_some()
            || self.oidc_ca_file.is_some()
            || !self.oidc_required_claim.is_empty();
        match (&self.authentication_config, uses_flags) {
            (Some(_), true) => bail!("authentication-config file and oidc-* flags are mutually exclusive"),
            (Some(path), false) => Ok(Some(IssuersSource::File(path.clone()))),
            (None, false) => Ok(None),
            (None, true) => Ok(Some(IssuersSource::Flags(Box::new(self.issuer_of_flags(own_issuers)?)))),
        }
    }

    fn issuer_of_flags(&self, own_issuers: &[String]) -> Result<JwtAuthenticator> {
        let (Some(url), Some(client_id)) = (&self.oidc_issuer_url, &self.oidc_client_id) else {
            bail!("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set");
        };
        let username_prefix = match self.oidc_username_prefix.as_deref() {
            Some("-") => String::new(),
            Some(prefix) => prefix.to_owned(),
            None if self.oidc_username_claim == "email" => String::new(),
            // A name is only unique together with who gave it.
            None => format!("{url}#"),
        };
        let groups = match &self.oidc_groups_claim {
            None => PrefixedClaimOrExpression::default(),
            Some(claim) => PrefixedClaimOrExpression {
                claim: claim.clone(),
                prefix: Some(self.oidc_groups_prefix.clone().unwrap_or_default()),
                ..PrefixedClaimOrExpression::default()
            },
        };
        let spec = JwtAuthenticatorSpec {
            issuer: IssuerSpec {
                url: url.clone(),
                audiences: vec![client_id.clone()],
                certificate_authority: self
                    .oidc_ca_file
                    .as_ref()
                    .map(|path| read(path))
                    .transpose()?
                    .unwrap_or_default(),
                ..IssuerSpec::default()
            },
            claim_validation_rules: self.required_claims()?,
            claim_mappings: ClaimMappings {
                username: PrefixedClaimOrExpression {
                    claim: self.oidc_username_claim.clone(),
                    prefix: Some(username_prefix),
                    ..PrefixedClaimOrExpression::default()
                },
                groups,
                ..ClaimMappings::default()
            },
            ..JwtAuthenticatorSpec::default()
        };
        JwtAuthenticator::new(&spec, &self.algorithms()?, own_issuers).context("invalid --oidc-* flags")
    }

    fn required_claims(&self) -> Result<Vec<ClaimValidationRule>> {
        let rules = self.oidc_required_claim.iter().map(|required| {
            let (claim, value) = required
                .split_once('=')
                .filter(|(claim, _)| !claim.is_empty())
                .with_context(|| format!("--oidc-required-claim {required:?} is not claim=value"))?;
            Ok(ClaimValidationRule {
                claim: claim.to_owned(),
                required_value: value.to_owned(),
                ..ClaimValidationRule::default()
            })
        });
        rules.collect()
    }

    fn algorithms(&self) -> Result<Vec<Algorithm>> {
        let mut seen = HashSet::new();
        let mut algorithms = Vec::new();
        for name in self.oidc_signing_algs.iter().filter(|name| seen.insert(name.as_str())) {
            let known = || Algorithm::ALL.map(Algorithm::name).join(", ");
            let algorithm = Algorithm::named(name)
                .with_context(|| format!("oidc: unsupported signing alg: {name:?}; choose from {}", known()))?;
            algorithms.push(algorithm);
        }
        Ok(algorithms)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: AuthenticationArgs,
    }

    fn apply(flags: &[&str]) -> Result<GateOptions> {
        let command = Command::try_parse_from(std::iter::once(&"karve").chain(flags))?;
        let accounts = auth::authenticate::ServiceAccounts::new(Vec::new(), Vec::new(), None, Vec::new());
        let mut gate = GateOptions::new(accounts, Vec::new());
        command.args.apply(&mut gate, &["https://own.example".to_owned()])?;
        Ok(gate)
    }

    #[test]
    fn oidc_flags_make_an_issuer() {
        let good = [
            "--oidc-issuer-url=https://issuer.example",
            "--oidc-client-id=kubernetes",
        ];
        assert!(apply(&good).expect("sound flags").issuers.is_some());
        assert!(apply(&[]).expect("no flags").issuers.is_none());
        assert!(
            apply(&["--enable-bootstrap-token-auth"])
                .expect("a flag")
                .bootstrap_tokens
        );
    }

    #[test]
    fn contradictory_flags_are_refused() {
        let issuer = "--oidc-issuer-url=https://issuer.example";
        let client = "--oidc-client-id=kubernetes";
        for (flags, why) in [
            (
                &[issuer][..],
                "oidc-issuer-url and oidc-client-id must be specified together",
            ),
            (&[client], "must be specified together"),
            (&["--oidc-groups-claim=groups"], "must be specified together"),
            (
                &["--oidc-issuer-url=https://own.example", client],
                "must not overlap with disallowed issuers",
            ),
            (
                &["--oidc-issuer-url=http://issuer.example", client],
                "URL scheme must be https",
            ),
            (&[issuer, client, "--oidc-signing-algs=none"], "unsupported signing alg"),
            (
                &[issuer, client, "--oidc-signing-algs=HS256"],
                "unsupported signing alg",
            ),
            (&[issuer, client, "--oidc-required-claim=x"], "is not claim=value"),
            (
                &[issuer, client, "--authentication-config=/nowhere"],
                "mutually exclusive",
            ),
            (&["--authentication-config=/nowhere"], "cannot read /nowhere"),
            (
                &["--authentication-token-webhook-config-file=/nowhere"],
                "invalid --authentication-token-webhook-config-file",
            ),
            (&["--authentication-token-webhook-version=v2"], "v1beta1"),
        ] {
            let error = format!("{:#}", apply(flags).err().expect("wrong flags"));
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn anonymous_is_configured_in_one_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("authentication.yaml");
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n\
                    anonymous: {enabled: true, conditions: [{path: /livez}]}\n";
        std::fs::write(&path, text).expect("a file");
        let config = format!("--authentication-config={}", path.display());
        assert!(apply(&[&config]).is_ok());
        let error = apply(&[&config, "--anonymous-auth=true"])
            .err()
            .expect("twice")
            .to_string();
        assert!(error.contains("--anonymous-auth flag cannot be set"), "{error}");
    }
}
