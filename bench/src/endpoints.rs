//! An endpoint that changes among many Services: the time until a new connection to the Service reaches the new one.
//!
//! Nothing is read from the machine's rules, so that any proxy can be measured: the Service's endpoint is one of two
//! ports that this process listens on, and connections are opened until one arrives at the other port.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use futures_util::future::try_join_all;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http1::{Connection, encode};
use crate::http2::{JSON, MERGE_PATCH};
use crate::stage::{Stage, ready};
use crate::target::Target;
use crate::times::Times;

#[derive(Args)]
pub struct EndpointsArgs {
    /// How many other Services there are, with an endpoint each
    #[arg(long, default_value_t = 10_000)]
    services: usize,
    #[arg(long, default_value_t = 200)]
    changes: usize,
    /// An address of this machine that may be an endpoint
    #[arg(long, default_value = "10.99.0.1")]
    address: IpAddr,
}

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const MEASURED: &str = "measured";
const CLIENTS: usize = 64;
/// How long the rules of all Services may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two connections, so that what the server shares with us is not kept busy by them.
const STEP: Duration = Duration::from_micros(200);
/// A long wait is told this exactly, by so many connections that a slow proxy never uses up the ports there are.
const EXACTNESS: u32 = 100;
const CONNECT: Duration = Duration::from_millis(100);
/// Between two changes, as a proxy may gather changes for a while.
const PAUSE: Duration = Duration::from_millis(20);

pub async fn run(target: &Target, args: &EndpointsArgs) -> Result<()> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Connection::open(target).await?);
    }
    let turns = clients.iter_mut().enumerate().map(async |(first, connection)| {
        for number in (first..args.services).step_by(CLIENTS) {
            let (name, address) = (format!("service-{number}"), far(number));
            publish(connection, &name, &address, 80).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(turns).await?;
    let doors = [listen(args.address)?, listen(args.address)?];
    let ports = [doors[0].local_addr()?.port(), doors[1].local_addr()?.port()];
    let connection = &mut clients[0];
    let service = publish(connection, MEASURED, &args.address.to_string(), ports[0]).await?;
    let prober = Prober { service, doors };
    let prober = wait(prober, 0, Instant::now()).await?.0;
    ready()?;
    let stage = measure(connection, prober, ports, args.changes).await?;
    stage.report()
}

async fn measure(connection: &mut Connection, mut prober: Prober, ports: [u16; 2], changes: usize) -> Result<Stage> {
    let mut times = Times::default();
    for change in 1..=changes {
        let open = change % 2;
        let patch = json!({ "ports": [port(ports[open])] }).to_string();
        let request = encode("PATCH", &format!("{SLICES}/{MEASURED}"), MERGE_PATCH, patch.as_bytes());
        let begun = Instant::now();
        let waiting = tokio::spawn(wait(prober, open, begun));
        connection.exchange(&request, |_| {}).await?;
        let (again, took) = waiting.await??;
        prober = again;
        times.add(took);
        tokio::time::sleep(PAUSE).await;
    }
    let stage = Stage::default().with("operations", changes as f64);
    Ok(times.describe("", stage))
}

/// A Service without a selector and its EndpointSlice; returns where it is reached.
async fn publish(connection: &mut Connection, name: &str, address: &str, to: u16) -> Result<SocketAddr> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "ports": [{ "name": "tcp", "port": 80, "protocol": "TCP" }] },
    });
    let made = connection
        .ask(&encode("POST", SERVICES, JSON, service.to_string().as_bytes()))
        .await?;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }], "ports": [port(to)],
    });
    let request = encode("POST", SLICES, JSON, slice.to_string().as_bytes());
    connection.exchange(&request, |_| {}).await?;
    #[derive(Deserialize)]
    struct Made {
        spec: Spec,
    }
    #[derive(Deserialize)]
    struct Spec {
        #[serde(rename = "clusterIP")]
        cluster_ip: IpAddr,
    }
    let made: Made = serde_json::from_slice(&made).context("a Service without an address")?;
    Ok(SocketAddr::new(made.spec.cluster_ip, 80))
}

fn port(number: u16) -> Value {
    json!({ "name": "tcp", "port": number, "protocol": "TCP" })
}

/// An endpoint that nobody connects to.
fn far(number: usize) -> String {
    format!("10.200.{}.{}", number / 250 % 250, number % 250 + 1)
}

fn listen(address: IpAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind((address, 0)).with_context(|| format!("{address} is not ours"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

struct Prober {
    service: SocketAddr,
    doors: [TcpListener; 2],
}

async fn wait(prober: Prober, open: usize, begun: Instant) -> Result<(Prober, Duration)> {
    tokio::task::spawn_blocking(move || {
        while begun.elapsed() < PATIENCE {
            if prober.knock()? == Some(open) {
                let took = begun.elapsed();
                return Ok((prober, took));
            }
            thread::sleep(STEP.max(begun.elapsed() / EXACTNESS));
        }
        bail!("no connection reached the endpoint in {} s", PATIENCE.as_secs())
    })
    .await?
}

impl Prober {
    /// Opens a connection; at which door it arrived.
    fn knock(&self) -> Result<Option<usize>> {
        if TcpStream::connect_timeout(&self.service, CONNECT).is_err() {
            return Ok(None);
        }
        for (number, door) in self.doors.iter().enumerate() {
            match door.accept() {
                Ok(_) => return Ok(Some(number)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}
