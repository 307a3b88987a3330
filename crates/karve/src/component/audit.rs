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
    /// A Policy of audit.k8s.io/v1 that says what is written down about requests
    #[arg(long)]
    pub audit_policy_file: Option<PathBuf>,
    /// Write audit events to this file, "-" for the standard output
    #[arg(long)]
    pub audit_log_path: Option<PathBuf>,
    /// Remove audit logs that were put aside after so many days; 0 for never
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxage: u64,
    /// Keep so many audit logs that were put aside; 0 for all
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxbackup: usize,
    /// Put the audit log aside when it has so many megabytes; 0 for 100
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxsize: u64,
    /// Compress audit logs that are put aside
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub audit_log_compress: bool,
    /// How events are written: json
    #[arg(long, default_value = "json", value_parser = ["json"])]
    pub audit_log_format: String,
    /// Either way a thread of its own writes events, and no request waits for it
    #[arg(long, default_value = "blocking", value_parser = ["batch", "blocking"])]
    pub audit_log_mode: String,
    /// Events that may wait to be written; what comes beyond is lost and counted
    #[arg(long, default_value_t = 10_000)]
    pub audit_log_batch_buffer_size: usize,
    /// Leave objects out of events that are too long
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub audit_log_truncate_enabled: bool,
    /// The longest event, in bytes
    #[arg(long, default_value_t = 102_400)]
    pub audit_log_truncate_max_event_size: usize,

    /// A kubeconfig that names a webhook to send audit events to
    #[arg(long)]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// Events are sent many at a time
    #[arg(long, default_value = "batch", value_parser = ["batch"])]
    pub audit_webhook_mode: String,
    /// How long to wait before events that could not be sent are sent again
    #[arg(long, default_value = "10s", value_parser = super::duration)]
    pub audit_webhook_initial_backoff: Duration,
    /// Events that may wait to be sent; what comes beyond is lost and counted
    #[arg(long, default_value_t = 10_000)]
    pub audit_webhook_batch_buffer_size: usize,
    /// The most events that are sent at a time
    #[arg(long, default_value_t = 400)]
    pub audit_webhook_batch_max_size: usize,
    /// How long events wait for others
    #[arg(long, default_value = "30s", value_parser = super::duration)]
    pub audit_webhook_batch_max_wait: Duration,
    /// Whether batches are throttled
    #[arg(long, num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub audit_webhook_batch_throttle_enable: bool,
    /// Batches per second
    #[arg(long, default_value_t = 10.0)]
    pub audit_webhook_batch_throttle_qps: f64,
    /// Batches that may be sent at once if none were before
    #[arg(long, default_value_t = 15)]
    pub audit_webhook_batch_throttle_burst: u32,
    /// Leave objects out of events that are too long
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub audit_webhook_truncate_enabled: bool,
    /// The longest event, in bytes
    #[arg(long, default_value_t = 102_400)]
    pub audit_webhook_truncate_max_event_size: usize,
    /// The longest batch, in bytes
    #[arg(long, default_value_t = 10_485_760)]
    pub audit_webhook_truncate_max_batch_size: usize,
}

impl AuditArgs {
    /// What writes audit events down, if anything is to. Must be called within a runtime.
    pub fn auditor(&self) -> Result<Option<Arc<Auditor>>> {
        let has_backend = self.audit_log_path.is_some() || self.audit_webhook_config_file.is_some();
        let policy = match (&self.audit_policy_file, has_backend) {
            (Some(path), true) => path,
            (Some(_), false) => bail!(
                "--audit-policy-file has no effect without --audit-log-path or --audit-webhook-config-file; give one of them"
            ),
            (None, true) => bail!("--audit-log-path and --audit-webhook-config-file need --audit-policy-file"),
            (None, false) => return Ok(None),
        };
        let parsed = Policy::parse(&read(policy)?);
        let mut auditor =
            Auditor::new(parsed.with_context(|| format!("{} is not a usable audit policy", policy.display()))?);
        if let Some(path) = &self.audit_log_path {
            let log = LogFile::open(self.log_options(path.clone()));
            let log = log.with_context(|| format!("cannot write the audit log {}", path.display()))?;
            auditor
                .add_log(log)
                .context("the thread of the audit log cannot be started")?;
        }
        if let Some(path) = &self.audit_webhook_config_file {
            let webhook = KubeconfigWebhook::open(path).context("--audit-webhook-config-file cannot be used")?;
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
            (&["--audit-policy-file=/x"][..], "has no effect without"),
            (&["--audit-log-path=-"], "need --audit-policy-file"),
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
        assert!(format!("{error:#}").contains("cannot write the audit log"), "{error:#}");
    }
}
