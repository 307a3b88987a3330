//! Single objects written and read by many clients.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use futures_util::future::try_join_all;

use crate::http1::{Connection, encode};
use crate::http2::JSON;
use crate::objects::{CONFIG_MAPS, PODS, config_map, ensure_service_account, replica};
use crate::stage::{Stage, ready};
use crate::target::Target;
use crate::times::Times;

#[derive(Args)]
pub struct CreateArgs {
    /// How many create at once, each on a connection of its own
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// The number of the first object
    #[arg(long, default_value_t = 0)]
    from: usize,
    /// The number behind the last object
    #[arg(long, default_value_t = usize::MAX)]
    to: usize,
    /// How long at most
    #[arg(long, default_value_t = 600.0)]
    seconds: f64,
    /// Bytes of each object
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Pods as a Deployment makes them, in place of ConfigMaps
    #[arg(long)]
    pods: bool,
    /// What the names begin with
    #[arg(long, default_value = "object")]
    prefix: String,
}

#[derive(Args)]
pub struct GetArgs {
    /// How many read at once, each on a connection of its own
    #[arg(long, default_value_t = 64)]
    clients: usize,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Bytes of the object
    #[arg(long, default_value_t = 1024)]
    size: usize,
}

pub async fn create(target: &Target, args: &CreateArgs) -> Result<()> {
    if args.pods {
        ensure_service_account(target).await?;
    }
    let next = Cell::new(args.from);
    let request = || {
        let number = next.get();
        (number < args.to).then(|| {
            next.set(number + 1);
            let name = format!("{}-{number}", args.prefix);
            match args.pods {
                true => encode("POST", PODS, JSON, &replica(&name)),
                false => encode("POST", CONFIG_MAPS, JSON, &config_map(&name, args.size)),
            }
        })
    };
    repeat(target, args.clients, args.seconds, request).await
}

pub async fn get(target: &Target, args: &GetArgs) -> Result<()> {
    let mut connection = Connection::open(target).await?;
    let put = encode(
        "PATCH",
        &format!("{CONFIG_MAPS}/read?fieldManager=load&force=true"),
        "application/apply-patch+yaml",
        &config_map("read", args.size),
    );
    connection.ask(&put).await?;
    let request = encode("GET", &format!("{CONFIG_MAPS}/read"), JSON, &[]);
    repeat(target, args.clients, args.seconds, || Some(request.clone())).await
}

/// Sends requests from all clients until there are no more or the time is up.
async fn repeat(target: &Target, clients: usize, seconds: f64, next: impl Fn() -> Option<Vec<u8>>) -> Result<()> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(Connection::open(target).await?);
    }
    ready()?;
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(seconds);
    let bytes = Cell::new(0);
    let each = connections.iter_mut().map(async |connection| -> Result<Times> {
        let mut times = Times::default();
        while Instant::now() < until
            && let Some(request) = next()
        {
            let sent = Instant::now();
            let count = |piece: &[u8]| bytes.set(bytes.get() + piece.len());
            connection.exchange(&request, count).await?;
            times.add(sent.elapsed());
        }
        Ok(times)
    });
    let mut times = Times::default();
    try_join_all(each)
        .await?
        .into_iter()
        .for_each(|some| times.extend(some));
    let took = begun.elapsed().as_secs_f64();
    let stage = Stage::default()
        .with("operations", times.len() as f64)
        .with("bytes", bytes.get() as f64)
        .with("rate", times.len() as f64 / took);
    times.describe("", stage).report()
}
