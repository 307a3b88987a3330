//! The flags of the embedded store, for whoever opens it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::Args;
use store::codec::Codec;
use store::embedded::{DEFAULT_QUOTA_BYTES, Embedded, Options};

use crate::layout::Layout;

#[derive(Args, Clone, Debug)]
pub struct EmbeddedStoreArgs {
    /// Maximum total size of all objects in the embedded store, in bytes; 0 means 2 GiB, as with etcd, and a negative
    /// value no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0, allow_negative_numbers = true)]
    quota_backend_bytes: i64,
    /// Open an embedded store whose log has lost acknowledged writes up to this revision, and continue without them
    #[arg(long, value_name = "REVISION")]
    accept_lost_revisions: Option<u64>,
}

impl EmbeddedStoreArgs {
    /// Values lie on the disk as `codec` has them.
    pub async fn open(&self, layout: &Layout, codec: Arc<dyn Codec>) -> Result<Arc<Embedded>> {
        let options = Options {
            quota_bytes: self.quota_bytes(),
            accept_lost_to: self.accept_lost_revisions,
            ..Options::default()
        };
        let opened = store::embedded::open_with_codec(&layout.store(), options, codec).await;
        opened.with_context(|| format!("failed to open the store in {}", layout.store().display()))
    }

    /// Where objects are kept elsewhere, none of the flags would do anything.
    pub fn ensure_unused(&self) -> Result<()> {
        ensure!(
            self.quota_backend_bytes == 0 && self.accept_lost_revisions.is_none(),
            "--quota-backend-bytes and --accept-lost-revisions only apply to the embedded store; with --etcd-servers, set the quota of etcd"
        );
        Ok(())
    }

    fn quota_bytes(&self) -> u64 {
        match self.quota_backend_bytes {
            0 => DEFAULT_QUOTA_BYTES,
            // A negative quota is none.
            given => u64::try_from(given).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(quota_backend_bytes: i64) -> u64 {
        EmbeddedStoreArgs {
            quota_backend_bytes,
            accept_lost_revisions: None,
        }
        .quota_bytes()
    }

    #[test]
    fn the_quota_is_told_as_to_etcd() {
        assert_eq!((quota(0), quota(-1), quota(77)), (2 << 30, 0, 77));
    }

    #[test]
    fn flags_that_would_do_nothing_are_refused() {
        let args = |quota_backend_bytes, accept_lost_revisions| EmbeddedStoreArgs {
            quota_backend_bytes,
            accept_lost_revisions,
        };
        assert!(args(0, None).ensure_unused().is_ok());
        assert!(args(1, None).ensure_unused().is_err());
        assert!(args(0, Some(1)).ensure_unused().is_err());
    }
}
