//! Clients that want to be all that the server has time for.

mod bodies;
mod frames;
mod slowness;
mod store;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::cases::Case;
use crate::world::World;

pub const CASES: &[Case] = &[
    frames::RAPID_RESET,
    frames::CONTINUATION_FLOOD,
    slowness::SILENT_CLIENTS,
    store::STORE_PORT,
    bodies::BOMBS,
];

/// No honest client waits longer than this while others flood, in the slowest of machines.
const TOLERATED: Duration = Duration::from_secs(10);

/// How long an honest client of both servers waits, each on a new connection.
fn honest_wait(world: &World) -> Result<Duration> {
    let begun = Instant::now();
    for (address, path) in [
        (world.cluster.api(), "/api/v1/namespaces/default"),
        (world.cluster.kubelet(), "/pods"),
    ] {
        let answer = world.at(address, "administrator", &["system:masters"])?.get(path)?;
        ensure!(answer.is_success(), "{address}: {}", answer.summary());
    }
    Ok(begun.elapsed())
}
