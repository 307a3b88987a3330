//! The API server's flags of what users may do.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use apiserver::{AuthorizationSource, AuthorizerSpec, GateOptions, WebhookSpec};
use auth::authorize::Abac;
use auth::authorize::review::Conditions;
use clap::Args;

use crate::layout::read;

/// How long an authorization webhook may take when flags name it, as upstream does.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Args, Clone, Debug)]
pub struct AuthorizationArgs {
    /// Ordered list of authorizers: Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny [default: Node,RBAC]
    #[arg(long, value_delimiter = ',')]
    pub authorization_mode: Vec<String>,
    /// File with an AuthorizationConfiguration, instead of the flags; reloaded when it changes
    #[arg(long)]
    pub authorization_config: Option<PathBuf>,
    /// File with the policies of mode ABAC, one JSON object per line
    #[arg(long)]
    pub authorization_policy_file: Option<PathBuf>,
    /// Kubeconfig of the authorization webhook
    #[arg(long)]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// Cache duration of allowed responses [default: 5m0s]
    #[arg(long, value_parser = super::duration)]
    pub authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// Cache duration of denied responses [default: 30s]
    #[arg(long, value_parser = super::duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// SubjectAccessReview version sent to the webhook: v1 or v1beta1 [default: v1beta1]
    #[arg(long, value_parser = ["v1", "v1beta1"])]
    pub authorization_webhook_version: Option<String>,
}

impl AuthorizationArgs {
    /// Completes what the gate is told.
    pub fn apply(&self, gate: &mut GateOptions) -> Result<()> {
        if let Some(path) = &self.authorization_policy_file {
            let policies = Abac::parse(&read(path)?);
            gate.abac = Some(policies.with_context(|| format!("{} is invalid", path.display()))?);
        }
        let has_webhook_flags = self.authorization_webhook_config_file.is_some()
            || self.authorization_webhook_cache_authorized_ttl.is_some()
            || self.authorization_webhook_cache_unauthorized_ttl.is_some()
            || self.authorization_webhook_version.is_some();
        gate.authorization = match &self.authorization_config {
            Some(_) if has_webhook_flags || !self.authorization_mode.is_empty() => bail!(
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* \
                 flags are defined"
            ),
            Some(path) => AuthorizationSource::File(path.clone()),
            None => AuthorizationSource::Given(self.modes()?),
        };
        Ok(())
    }

    fn modes(&self) -> Result<Vec<AuthorizerSpec>> {
        let mut modes: Vec<&str> = self.authorization_mode.iter().map(String::as_str).collect();
        if modes.is_empty() {
            modes = vec!["Node", "RBAC"];
        }
        let mut specs = Vec::new();
        for (index, mode) in modes.iter().enumerate() {
            if modes[..index].contains(mode) {
                bail!("authorization-mode {mode:?} has mode specified more than once");
            }
            specs.push(match *mode {
                "Node" => AuthorizerSpec::Node,
                "RBAC" => AuthorizerSpec::Rbac,
                "AlwaysAllow" => AuthorizerSpec::AlwaysAllow,
                "AlwaysDeny" => AuthorizerSpec::AlwaysDeny,
                "ABAC" if self.authorization_policy_file.is_none() => {
                    bail!("authorization-mode ABAC's authorization policy file not passed")
                }
                "ABAC" => AuthorizerSpec::Abac,
                "Webhook" => AuthorizerSpec::Webhook(self.webhook()?),
                other => bail!("authorization-mode {other:?} is not a valid mode"),
            });
        }
        let is_used = |mode: &str| modes.contains(&mode);
        if self.authorization_policy_file.is_some() && !is_used("ABAC") {
            bail!("cannot specify --authorization-policy-file without mode ABAC");
        }
        if self.authorization_webhook_config_file.is_some() && !is_used("Webhook") {
            bail!("cannot specify --authorization-webhook-config-file without mode Webhook");
        }
        Ok(specs)
    }

    fn webhook(&self) -> Result<WebhookSpec> {
        let Some(kubeconfig) = self.authorization_webhook_config_file.clone() else {
            bail!("authorization-mode Webhook's authorization config file not passed");
        };
        let version = self.authorization_webhook_version.as_deref().unwrap_or("v1beta1");
        let ttl = |given: Option<Duration>, default| given.unwrap_or(Duration::from_secs(default));
        Ok(WebhookSpec {
            name: "default".to_owned(),
            kubeconfig,
            version: version.to_owned(),
            timeout: WEBHOOK_TIMEOUT,
            authorized_ttl: ttl(self.authorization_webhook_cache_authorized_ttl, 300),
            unauthorized_ttl: ttl(self.authorization_webhook_cache_unauthorized_ttl, 30),
            denies_on_failure: false,
            conditions: Conditions::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: AuthorizationArgs,
    }

    fn problem(flags: &[&str]) -> String {
        let command = Command::try_parse_from(std::iter::once(&"karve").chain(flags)).expect("flags");
        let accounts = auth::authenticate::ServiceAccounts::new(Vec::new(), Vec::new(), None, Vec::new());
        let mut gate = GateOptions::new(accounts, Vec::new());
        match command.args.apply(&mut gate) {
            Ok(()) => String::new(),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn modes_that_contradict_themselves_are_refused() {
        assert_eq!(problem(&[]), "");
        assert_eq!(problem(&["--authorization-mode=Node,RBAC,AlwaysDeny"]), "");
        for (flags, why) in [
            (&["--authorization-mode=Node,Node"][..], "more than once"),
            (&["--authorization-mode=rbac"], "is not a valid mode"),
            (&["--authorization-mode=ABAC"], "authorization policy file not passed"),
            (
                &["--authorization-mode=Webhook"],
                "authorization config file not passed",
            ),
            (&["--authorization-webhook-config-file=/x"], "without mode Webhook"),
            (&["--authorization-policy-file=/nowhere"], "/nowhere"),
            (
                &["--authorization-config=/x", "--authorization-mode=RBAC"],
                "can not be specified when",
            ),
            (
                &["--authorization-config=/x", "--authorization-webhook-version=v1"],
                "can not be specified when",
            ),
        ] {
            assert!(problem(flags).contains(why), "{flags:?}: {}", problem(flags));
        }
    }
}
