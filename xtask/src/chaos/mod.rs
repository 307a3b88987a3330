//! `cargo xtask chaos`: a cluster of two nodes is broken at random while [`clients`] write.
//!
//! [`faults`] is the table of what goes wrong. At the end the [`history`] of what clients were told must be explained by
//! one order of events, every acknowledged object must be there, the workload must have come to rest, no [`addresses`]
//! may be held that nobody uses, and nothing may be left on the machine when the cluster is removed.

mod addresses;
mod clients;
mod disk;
mod faults;
mod history;
mod link;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::bench::api::Api;
use crate::cluster::{Karve, Kubectl, Runtime, Setup, Store};
use crate::e2e::footprint::{self, Footprint};
use crate::e2e::workload::{BUILTIN, answers, deploy, service_address, settled};
use crate::namespace::node_address;
use crate::random::Random;
use crate::signals::wait_for;
use crate::tools::{self, is_on_path, is_root, target_dir};
use crate::{dist, signals};
use clients::{Clients, Seen};
use disk::Disk;
use faults::{FAULTS, Fault, World};
use link::Link;

#[derive(Args)]
pub struct ChaosArgs {
    /// The binary to test; built when it is not given
    #[arg(long)]
    karve: Option<PathBuf>,
    /// What decides the order and the length of faults [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// How long faults are made
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    #[arg(long, value_enum, default_value = "embedded")]
    store: Store,
}

/// Where clients and the other node reach the server.
const RELAY_PORT: u16 = 7443;
const REPLICAS: usize = 3;
const NODES: usize = 2;
/// From this on runs have time for every fault.
const LONG_RUN: Duration = Duration::from_secs(180);
/// How long everything may take to come to rest: the other node counts as lost only after forty seconds.
const CONVERGENCE: Duration = Duration::from_secs(120);

const IMPATIENT: &str = r#"{"spec":{"template":{"spec":{"tolerations":[
    {"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":2},
    {"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":2}]}}}}"#;

/// The step of `cargo xtask test`.
pub fn run_quick() -> Result<()> {
    let needs = [&["ip", "nft", "curl"], disk::NEEDS].concat();
    if !is_root() || !needs.iter().all(|program| is_on_path(program)) {
        return tools::skip(&format!("chaos needs root and {}", needs.join(", ")));
    }
    run(&ChaosArgs {
        karve: None,
        seed: None,
        minutes: 1.0,
        store: Store::Embedded,
    })
}

pub fn run(args: &ChaosArgs) -> Result<()> {
    let seed = args.seed.unwrap_or_else(by_the_time);
    println!("-- chaos with --seed {seed} for {} minutes", args.minutes);
    let span = Duration::from_secs_f64(args.minutes * 60.0);
    for fault in FAULTS.iter().filter(|fault| fault.is_long && span < LONG_RUN) {
        println!("   not in runs this short: {}", fault.name);
    }
    let setup = Setup {
        binary: match &args.karve {
            Some(path) => std::path::absolute(path)?,
            None => dist::release()?,
        },
        runtime: Runtime::Embedded,
        store: args.store,
        nodes: NODES,
        pullable: Vec::new(),
        logs: target_dir().join("chaos"),
    };
    // The logs of the last run are enough.
    let _ = std::fs::remove_dir_all(&setup.logs);
    let mut cluster = Karve::prepare(&setup)?;
    let before = footprint::of(&cluster)?;
    let disk = match args.store {
        Store::Embedded => Some(Disk::mount(
            &cluster.scratch("store.img"),
            &cluster.data_dir().join("store"),
        )?),
        Store::Etcd => None,
    };
    let outcome = break_and_check(&mut cluster, disk.as_ref(), args.store, seed, span);
    let outcome = outcome.with_context(|| format!("seed {seed}; logs are in {}", setup.logs.display()));
    cluster.end();
    drop(disk);
    outcome?;
    cluster.remove()?;
    nothing_left(&cluster, &before)?;
    println!("-- chaos passed: nothing lost, nothing left");
    Ok(())
}

fn by_the_time() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map(|since| since.as_secs()).unwrap_or_default()
}

fn break_and_check(cluster: &mut Karve, disk: Option<&Disk>, store: Store, seed: u64, span: Duration) -> Result<()> {
    cluster.up()?;
    cluster.wait_ready()?;
    let namespace = cluster.network().context("chaos needs a network namespace")?;
    let link = Link::open(namespace, RELAY_PORT, cluster.port())?;
    cluster.join(Some(&format!("https://{}:{RELAY_PORT}", node_address(1))))?;
    let kubectl = cluster.kubectl()?;
    deploy(&kubectl, &BUILTIN, REPLICAS)?;
    // Five minutes of patience with a lost node are too many for a test.
    kubectl.run(&["patch", "deployment/web", "--type=merge", "--patch", IMPATIENT])?;
    let clients = Clients::start(relayed_api(cluster)?, seed)?;
    let mut world = World {
        cluster,
        kubectl: &kubectl,
        link: &link,
        disk,
        random: Random::new(seed),
        rollouts: 0,
    };
    let made = make_faults(&mut world, store, span)?;
    link.mend();
    println!("   {made} faults made; waiting for everything to come to rest");
    let rested = at_rest(&kubectl);
    let (seen, stored) = clients.finish()?;
    judge(&seen, &stored)?;
    rested?;
    let held = addresses::none_leaked(cluster, &kubectl)?;
    println!("   {held} addresses are held, all of them in use");
    Ok(())
}

/// Clients go through the relay as the other node does.
fn relayed_api(cluster: &Karve) -> Result<Api> {
    let config = std::fs::read_to_string(cluster.kubeconfig())?;
    let (own, relayed) = (format!(":{}", cluster.port()), format!(":{RELAY_PORT}"));
    let path = cluster.scratch("relayed.conf");
    std::fs::write(&path, config.replace(&own, &relayed))?;
    Api::connect(&Kubectl::new(&path, cluster.network())?, &cluster.scratch(""))
}

/// Every fault once in a random order, then again, until the time is up.
fn make_faults(world: &mut World<'_>, store: Store, span: Duration) -> Result<usize> {
    let begun = Instant::now();
    let mut made = 0;
    loop {
        let mut order: Vec<&Fault> = FAULTS
            .iter()
            .filter(|fault| fault.store.is_none_or(|wanted| wanted == store))
            .filter(|fault| !fault.is_long || span >= LONG_RUN)
            .collect();
        world.random.shuffle(&mut order);
        for fault in order {
            if begun.elapsed() >= span {
                return Ok(made);
            }
            println!("   {:>5.1} s {}", begun.elapsed().as_secs_f64(), fault.name);
            (fault.run)(world).with_context(|| fault.name)?;
            made += 1;
            let pause = world.random.between(500, 2500);
            signals::sleep(pause)?;
        }
    }
}

/// All nodes are Ready, all replicas are of the newest template, and each of them answers.
fn at_rest(kubectl: &Kubectl) -> Result<()> {
    let path = r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}"#;
    kubectl.until("two Ready nodes", CONVERGENCE, &["get", "nodes", "-o", path], |ready| {
        ready == "True True"
    })?;
    let timeout = format!("--timeout={}s", CONVERGENCE.as_secs());
    kubectl
        .run(&["rollout", "status", "deployment/web", &timeout])
        .with_context(|| kubectl.run(&["get", "pods", "-o", "wide"]).unwrap_or_default())?;
    settled(kubectl, REPLICAS)?;
    answers(kubectl, &service_address(kubectl)?, REPLICAS)
}

fn judge(seen: &Seen, stored: &std::collections::BTreeSet<String>) -> Result<()> {
    let lost: Vec<&String> = seen.created.difference(stored).collect();
    ensure!(
        lost.is_empty(),
        "{} of {} acknowledged objects are lost: {lost:?}",
        lost.len(),
        seen.created.len()
    );
    let violations = history::violations(&seen.events);
    ensure!(
        violations.is_empty(),
        "{} of {} events cannot be explained:\n   {}",
        violations.len(),
        seen.events.len(),
        violations.join("\n   ")
    );
    println!(
        "   {} objects and {} reads and writes acknowledged, {} requests not; all of it is explained",
        seen.created.len(),
        seen.events.len(),
        seen.unanswered
    );
    ensure!(seen.created.len() > 50, "clients hardly wrote anything");
    Ok(())
}

/// A network namespace is taken apart by the kernel after its last user has gone, so that it is waited for. Connections that a
/// killed process left behind are such users, until the kernel has given up sending to a peer that is gone.
fn nothing_left(cluster: &Karve, before: &Footprint) -> Result<()> {
    let mut left = Vec::new();
    let gone = wait_for("everything to be gone", Duration::from_secs(180), || {
        let after = footprint::of(cluster).ok()?;
        left = after.difference(before).cloned().collect();
        left.is_empty().then_some(())
    });
    gone.with_context(|| format!("{} things were left:\n   {}", left.len(), left.join("\n   ")))
}
