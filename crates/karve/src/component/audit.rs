//! The API server's flags of what is written down about requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use apiserver::KubeconfigWebhook;
use audit::{Auditor, BatchOptions, LogFile, LogOptions, Policy, TruncateOptions};
use clap::Args;

use crate::layout::read;

const MEBIBYTE: u64 = 1024 * 1024;

#[derive(Args, Clone, Debug)]
pub struct AuditArgs {
    /// File with the audit policy (Policy of audit.k8s.io/v1)
    #[arg(long)]
    pub audit_policy_file: Option<PathBuf>,
    /// File for audit events; "-" for standard output
    #[arg(long)]
    pub audit_log_path: Option<PathBuf>,
    /// Days to keep rotated audit logs; 0 for no limit
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxage: u64,
    /// Number of rotated audit logs to keep; 0 for no limit
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxbackup: usize,
    /// Size in megabytes at which the audit log is rotated; 0 means 100
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxsize: u64,
    /// Compress rotated audit logs
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub audit_log_compress: bool,
    /// Format of audit events: json
    #[arg(long, default_value = "json", value_parser = ["json"])]
    pub audit_log_format: String,
    /// Write mode; in every mode a separate thread writes, and requests do not wait for it
    #[arg(long, default_value = "blocking", value_parser = ["batch", "blocking"])]
    pub audit_log_mode: String,
    /// Maximum number of buffered events; further events are dropped and counted
    #[arg(long, default_value_t = 10_000)]
    pub audit_log_batch_buffer_size: usize,
    /// Omit objects from events that exceed the maximum size
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub audit_log_truncate_enabled: bool,
    /// Maximum size of an event in bytes
    #[arg(long, default_value_t = 102_400)]
    pub audit_log_truncate_max_event_size: usize,

    /// Kubeconfig of the audit webhook
    #[arg(long)]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// Send mode; events are sent in batches
    #[arg(long, default_value = "batch", value_parser = ["batch"])]
    pub audit_webhook_mode: String,
    /// Delay before the first retry of a failed batch
    #[arg(long, default_value = "10s", value_parser = super::duration)]
    pub audit_webhook_initial_backoff: Duration,
    /// Maximum number of buffered events; further events are dropped and counted
    #[arg(long, default_value_t = 10_000)]
    pub audit_webhook_batch_buffer_size: usize,
    /// Maximum number of events per batch
    #[arg(long, default_value_t = 400)]
    pub audit_webhook_batch_max_size: usize,
    /// Maximum time to wait for a full batch
    #[arg(long, default_value = "30s", value_parser = super::duration)]
    pub audit_webhook_batch_max_wait: Duration,
    /// Limit the rate of batches
    #[arg(long, num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub audit_webhook_batch_throttle_enable: bool,
    /// Batches per second
    #[arg(long, default_value_t = 10.0)]
    pub audit_webhook_batch_throttle_qps: f64,
    /// Maximum burst of batches
    #[arg(long, default_value_t = 15)]
    pub audit_webhook_batch_throttle_burst: u32,
    /// Omit objects from events that exceed the maximum size
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub audit_webhook_truncate_enabled: bool,
    /// Maximum size of an event in bytes
    #[arg(long, default_value_t = 102_400)]
    pub audit_webhook_truncate_max_event_size: usize,
    /// Maximum size of a batch in bytes
    #[arg(long, default_value_t = 10_485_760)]
    pub audit_webhook_truncate_max_batch_size: usize,
}

impl AuditArgs {
    /// What writes audit events down, if anything is to. Must be called within a runtime.
    pub fn auditor(&self) -> Result<Option<Arc<Auditor>>> {
        let has_backend = self.audit_log_path.is_some() || self.audit_webhook_config_file.is_some();
        let policy = match (&self.audit_policy_file, has_backend) {
            (Some(path), true) => path,
            (Some(_), false) => bail!("--audit-policy-file requires --audit-log-path or --audit-webhook-config-file"),
            (None, true) => bail!("--audit-log-path and --audit-webhook-config-file require --audit-policy-file"),
            (None, false) => return Ok(None),
        };
        let parsed = Policy::parse(&read(policy)?);
        let mut auditor =
            Auditor::new(parsed.with_context(|| format!("{} is not a valid audit policy", policy.display()))?);
        if let Some(path) = &self.audit_log_path {
            let log = LogFile::open(self.log_options(path.clone()));
            let log = log.with_context(|| format!("failed to open the audit log {}", path.display()))?;
            auditor.add_log(log).context("failed to start the audit log thread")?;
        }
        if let Some(path) = &self.audit_webhook_config_file {
            let webhook = KubeconfigWebhook::open(path).context("invalid --audit-webhook-config-file")?;
            auditor.add_sink(Arc::new(webhook), self.batch_options(), self.webhook_truncation());
        }
        Ok(Some(Arc::new(auditor)))
    }

    fn log_options(&self, path: PathBuf) -> LogOptions {
        LogOptions {
            path,
            max_age_days: self.audit_log_maxage,
            max_backups: self.audit_log_maxbackup,
            max_bytes: match self.audit_log_maxsize {
                0 => 100 * MEBIBYTE,
                megabytes => megabytes.saturating_mul(MEBIBYTE),
            },
            compress: self.audit_log_compress,
            buffer_size: self.audit_log_batch_buffer_size,
            truncate: TruncateOptions {
                enabled: self.audit_log_truncate_enabled,
                max_event_bytes: self.audit_log_truncate_max_event_size,
                ..TruncateOptions::default()
            },
        }
    }

    fn batch_options(&self) -> BatchOptions {
        let throttled = self.audit_webhook_batch_throttle_enable;
        BatchOptions {
            buffer_size: self.audit_webhook_batch_buffer_size,
            max_size: self.audit_webhook_batch_max_size.max(1),
            max_wait: self.audit_webhook_batch_max_wait,
            throttle_qps: throttled.then_some(self.audit_webhook_batch_throttle_qps),
            throttle_burst: self.audit_webhook_batch_throttle_burst,
            initial_backoff: self.audit_webhook_initial_backoff,
        }
    }

    fn webhook_truncation(&self) -> TruncateOptions {
        TruncateOptions {
            enabled: self.audit_webhook_truncate_enabled,
            max_event_bytes: self.audit_webhook_truncate_max_event_size,
            max_batch_bytes: self.audit_webhook_truncate_max_batch_size,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: AuditArgs,
    }

    fn auditor(flags: &[&str]) -> Result<Option<Arc<Auditor>>> {
        Command::try_parse_from(std::iter::once(&"karve").chain(flags))?
            .args
            .auditor()
    }

    #[tokio::test]
    async fn a_policy_and_a_backend_need_each_other() {
        assert!(auditor(&[]).expect("no flags").is_none());
        for (flags, why) in [
            (
                &["--audit-policy-file=/x"][..],
                "--audit-policy-file requires --audit-log-path",
            ),
            (&["--audit-log-path=-"], "require --audit-policy-file"),
            (&["--audit-policy-file=/nowhere", "--audit-log-path=-"], "/nowhere"),
            (&["--audit-log-mode=blocking-strict"], "blocking-strict"),
            (&["--audit-log-format=legacy"], "legacy"),
        ] {
            let error = format!("{:#}", auditor(flags).err().expect("wrong flags"));
            assert!(error.contains(why), "{error}");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let policy = directory.path().join("policy.yaml");
        std::fs::write(
            &policy,
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n",
        )
        .expect("a file");
        let policy = format!("--audit-policy-file={}", policy.display());
        let log = format!("--audit-log-path={}", directory.path().join("audit.log").display());
        assert!(auditor(&[&policy, &log]).expect("sound flags").is_some());
        let error = auditor(&[&policy, "--audit-log-path=/nowhere/audit.log"])
            .err()
            .expect("no directory");
        assert!(
            format!("{error:#}").contains("failed to open the audit log"),
            "{error:#}"
        );
    }
}
