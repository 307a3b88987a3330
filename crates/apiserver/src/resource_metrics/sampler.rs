//! Asks kubelets what is used on their nodes, again and again while somebody wants to know.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use admission::Lookup;
use api::kinds::node::NODE;
use api::{Error, Fields, Reason};
use futures_util::{StreamExt, stream};
use tracing::{debug, warn};

use crate::usage::Sample;
use crate::{ApiServer, connect};

/// How old figures may become before kubelets are asked again.
const RESOLUTION: Duration = Duration::from_secs(15);
/// The same until there are two readings, so that the first who asks need not wait long.
const FIRST_WINDOW: Duration = Duration::from_secs(2);
/// How long a kubelet may take, and how many are asked at once.
const PATIENCE: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 32;
/// The length of a page. One line of it is about 150 bytes, and a container has three.
const MAX_PAGE_BYTES: usize = 8 << 20;

pub async fn follow(server: Arc<ApiServer>) {
    loop {
        server.usage.wanted().await;
        ask_all(&server).await;
        let pause = match server.usage.finish_round() {
            true => RESOLUTION,
            false => FIRST_WINDOW,
        };
        tokio::time::sleep(pause).await;
    }
}

async fn ask_all(server: &ApiServer) {
    let nodes = server.registry.lookup().list(&NODE, "");
    let names: BTreeSet<String> = nodes
        .iter()
        .map(|node| node["metadata"].text("name").to_owned())
        .collect();
    server.usage.retain(&names);
    let asked = stream::iter(names).for_each_concurrent(AT_ONCE, |node| async move {
        match ask(server, &node).await {
            Ok(sample) => server.usage.read(&node, sample),
            Err(error) if server.usage.failed(&node) => {
                warn!(node, %error, "Failed to read the resource metrics of a node");
            }
            Err(error) => debug!(node, %error, "Failed to read the resource metrics of a node, as before"),
        }
    });
    asked.await;
}

async fn ask(server: &ApiServer, node: &str) -> Result<Sample, Error> {
    let asked = connect::ask_kubelet(server, node, "/metrics/resource", MAX_PAGE_BYTES);
    let answered = tokio::time::timeout(PATIENCE, asked).await;
    let page = answered.map_err(|_| Error::new(Reason::Timeout, "the kubelet did not answer in time"))??;
    let now = schema::time::now();
    let now_ms = now.seconds * 1000 + i64::from(now.nanos / 1_000_000);
    Ok(Sample::parse(&String::from_utf8_lossy(&page), now_ms))
}
