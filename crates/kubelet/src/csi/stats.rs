//! How full volumes are that drivers mount: only their drivers know. They are asked in the background, so that nobody who
//! asks the kubelet for figures waits for a driver that hangs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use csi::v1::NodeGetVolumeStatsRequest;
use csi::v1::volume_usage::Unit;

use super::publish::{Published, connect};
use crate::shared::Shared;
use crate::volumes::{DriverError, VolumeStats};

/// How often drivers are asked.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long one may take; it is asked for nothing more in the same round then.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks for as long as it is not dropped.
pub async fn keep(shared: Arc<Shared>) {
    loop {
        let published: Vec<Published> = shared.csi.published.lock().values().cloned().collect();
        let mut failed = BTreeSet::new();
        for one in published.iter().filter(|one| !one.volume.is_block) {
            if failed.contains(&one.volume.driver) {
                continue;
            }
            match ask(&shared, one).await {
                Ok(Some(stats)) => shared.volumes.tell(&one.target, stats),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(volume = one.volume.name, %error, "Failed to get a volume's statistics from its driver");
                    failed.insert(&one.volume.driver);
                }
            }
        }
        let _ = tokio::time::timeout(INTERVAL, shared.csi.mounted.notified()).await;
    }
}

/// None if the driver has no figures.
async fn ask(shared: &Shared, published: &Published) -> Result<Option<VolumeStats>, DriverError> {
    let volume = &published.volume;
    let client = connect(shared, &volume.driver).await?.within(TIMEOUT);
    if !client.capabilities().await?.volume_stats {
        return Ok(None);
    }
    let request = NodeGetVolumeStatsRequest {
        volume_id: volume.handle.clone(),
        volume_path: published.target.display().to_string(),
        staging_target_path: String::new(),
    };
    let answer = client.volume_stats(request).await?;
    let mut stats = VolumeStats::default();
    let figure = |number: i64| u64::try_from(number).unwrap_or(0);
    for usage in answer.usage {
        match usage.unit() {
            Unit::Bytes => {
                stats.available_bytes = figure(usage.available);
                stats.capacity_bytes = figure(usage.total);
                stats.used_bytes = figure(usage.used);
            }
            Unit::Inodes => {
                stats.inodes_free = figure(usage.available);
                stats.inodes = figure(usage.total);
                stats.inodes_used = figure(usage.used);
            }
            Unit::Unknown => {}
        }
    }
    Ok(Some(stats))
}
