//! Images that nobody uses are removed when their disk fills up, the longest unused first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cri::v1;

use crate::limits;
use crate::moment::Moment;
use crate::options::ImageGcOptions;
use crate::pressure::{Measurements, Places, Signal};
use crate::shared::Shared;

/// An image as the collector knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    first_seen: Moment,
    last_used: Moment,
    bytes: u64,
    in_use: bool,
}

/// Collects now and then, for as long as it is not dropped.
pub async fn collect(shared: Arc<Shared>, options: ImageGcOptions, root: std::path::PathBuf) {
    let mut known = BTreeMap::new();
    let mut look = tokio::time::interval(limits::IMAGE_GC);
    loop {
        look.tick().await;
        if let Err(error) = observe(&shared, &mut known, Moment::now()).await {
            tracing::warn!(%error, "Failed to list images for garbage collection");
            continue;
        }
        let places = Places::find(&*shared.runtime, &root).await;
        let Some(level) = Measurements::take(&places).level(Signal::ImagefsAvailable) else {
            continue;
        };
        let Some(excess) = options.excess(level.available, level.capacity) else {
            continue;
        };
        let chosen = choose(&known, excess, Moment::now());
        tracing::info!(
            excess,
            images = chosen.len(),
            "Image filesystem is above the high threshold; removing unused images"
        );
        for id in chosen {
            remove(&shared, &id).await;
        }
    }
}

/// Removes every image that no container stands on.
pub async fn remove_unused(shared: &Shared) {
    let mut known = BTreeMap::new();
    if let Err(error) = observe(shared, &mut known, Moment::now()).await {
        return tracing::warn!(%error, "Failed to list images for garbage collection");
    }
    for (id, _) in known.iter().filter(|(_, image)| !image.in_use) {
        remove(shared, id).await;
    }
}

async fn remove(shared: &Shared, id: &str) {
    let request = v1::RemoveImageRequest {
        image: Some(v1::ImageSpec {
            image: id.to_owned(),
            ..v1::ImageSpec::default()
        }),
    };
    match shared.runtime.remove_image(request).await {
        Ok(_) => tracing::info!(image = id, "Removed an unused image"),
        // It may be in use again by now.
        Err(error) => tracing::debug!(image = id, %error, "Failed to remove an unused image"),
    }
}

/// Takes note of which images there are and which are used.
async fn observe(shared: &Shared, known: &mut BTreeMap<String, Known>, now: Moment) -> cri::Result<()> {
    let images = shared
        .runtime
        .list_images(v1::ListImagesRequest::default())
        .await?
        .images;
    let containers = shared
        .runtime
        .list_containers(v1::ListContainersRequest::default())
        .await?
        .containers;
    let mut used = BTreeSet::new();
    for container in &containers {
        used.insert(container.image_ref.as_str());
        used.insert(container.image_id.as_str());
        used.extend(container.image.as_ref().map(|image| image.image.as_str()));
    }
    let present: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
    shared.pull_records.prune(&present, now);
    known.retain(|id, _| present.contains(id.as_str()));
    // Pinned images are the runtime's own.
    for image in images.iter().filter(|image| !image.pinned) {
        let names = image.repo_tags.iter().chain(&image.repo_digests).chain([&image.id]);
        let in_use = names.into_iter().any(|name| used.contains(name.as_str()));
        let entry = known.entry(image.id.clone()).or_insert_with(|| Known {
            first_seen: now,
            ..Known::default()
        });
        entry.bytes = image.size;
        entry.in_use = in_use;
        if in_use {
            entry.last_used = now;
        }
    }
    Ok(())
}

/// The images to remove so that `excess` bytes become free, the longest unused first. Young ones stay: a pod that is
/// about to start may have pulled them.
fn choose(known: &BTreeMap<String, Known>, excess: u64, now: Moment) -> Vec<String> {
    let mut unused: Vec<(&String, &Known)> = known
        .iter()
        .filter(|(_, image)| !image.in_use && now.since(image.first_seen) >= limits::IMAGE_MINIMUM_AGE)
        .collect();
    unused.sort_by_key(|(_, image)| (image.last_used, image.first_seen));
    let mut freed = 0;
    let mut chosen = Vec::new();
    for (id, image) in unused {
        if freed >= excess {
            break;
        }
        freed += image.bytes;
        chosen.push(id.clone());
    }
    chosen
}

impl ImageGcOptions {
    /// How many bytes too many are used, if the disk is so full that something must be done.
    fn excess(&self, available: u64, capacity: u64) -> Option<u64> {
        if self.high_percent >= 100 || capacity == 0 {
            return None;
        }
        let used = capacity.saturating_sub(available);
        let percent = |share: u64| (u128::from(capacity) * u128::from(share) / 100) as u64;
        (used >= percent(self.high_percent)).then(|| used.saturating_sub(percent(self.low_percent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_brought_from_the_high_mark_to_the_low_one() {
        let options = ImageGcOptions {
            high_percent: 85,
            low_percent: 80,
        };
        assert_eq!(options.excess(20, 100), None);
        assert_eq!(options.excess(10, 100), Some(10));
        let off = ImageGcOptions {
            high_percent: 100,
            low_percent: 80,
        };
        assert_eq!(off.excess(0, 100), None);
    }

    #[test]
    fn the_longest_unused_go_first_and_the_used_and_the_young_stay() {
        let minutes = |minutes: i64| Moment(minutes * 60_000);
        let image = |first, used, in_use| Known {
            first_seen: minutes(first),
            last_used: minutes(used),
            bytes: 10,
            in_use,
        };
        let known = BTreeMap::from([
            ("used".to_owned(), image(0, 60, true)),
            ("old".to_owned(), image(0, 5, false)),
            ("older".to_owned(), image(0, 1, false)),
            ("young".to_owned(), image(59, 0, false)),
        ]);
        assert_eq!(choose(&known, 5, minutes(60)), ["older"]);
        assert_eq!(choose(&known, 500, minutes(60)), ["older", "old"]);
    }
}
