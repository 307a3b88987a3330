//! All objects at once, not compressed.

use std::time::Instant;

use anyhow::Result;
use clap::Args;

use crate::http1::{Connection, encode};
use crate::http2::JSON;
use crate::objects::CONFIG_MAPS;
use crate::stage::{Stage, ready};
use crate::target::Target;
use crate::times::Times;

#[derive(Args)]
pub struct ListArgs {
    #[arg(long, default_value_t = 5)]
    times: usize,
}

pub async fn run(target: &Target, args: &ListArgs) -> Result<()> {
    let mut connection = Connection::open(target).await?;
    let request = encode("GET", CONFIG_MAPS, JSON, &[]);
    ready()?;
    let mut times = Times::default();
    let mut bytes = 0;
    for _ in 0..args.times {
        bytes = 0;
        let begun = Instant::now();
        connection.exchange(&request, |piece| bytes += piece.len()).await?;
        times.add(begun.elapsed());
    }
    let stage = Stage::default()
        .with("operations", args.times as f64)
        .with("bytes", bytes as f64);
    times.describe("", stage).report()
}
