//! Prefers nodes that hold the pod's images already, the more the larger they are.

use async_trait::async_trait;

use crate::framework::{MAX_SCORE, Plugin};
use crate::nodes::{NodeId, Nodes};
use crate::pod::Pod;

/// Below this sum images are pulled quickly anyway, …
const MIN_BYTES: i64 = 23 << 20;
/// … and above this, per container, more does not count.
const MAX_BYTES_PER_CONTAINER: i64 = 1000 << 20;

pub struct ImageLocality;

#[async_trait]
impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn pre_score(&self, pod: &Pod, _nodes: &Nodes) -> bool {
        pod.demand.images.iter().any(|image| !image.is_empty())
    }

    /// An image counts less the fewer nodes hold it, so that pods do not crowd where it happens to be.
    fn score(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> i64 {
        let images = &pod.demand.images;
        if nodes.images[node].is_empty() {
            return 0;
        }
        let bytes = images
            .iter()
            .map(|image| nodes.spread_image_bytes(node, &normalized(image)));
        let bytes: i64 = bytes.sum();
        let most = MAX_BYTES_PER_CONTAINER * images.len() as i64;
        let bytes = bytes.clamp(MIN_BYTES, most.max(MIN_BYTES + 1));
        MAX_SCORE * (bytes - MIN_BYTES) / (most - MIN_BYTES)
    }
}

/// Nodes report images with a tag.
fn normalized(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains([':', '@']) {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}
