//! `cargo xtask authorization`: random roles and users on upstream's API server and on ours, random requests to both, and
//! whether both let the same ones through.
//!
//! [`world`] is who there is, what they may do and what there is to be had; [`ask`] makes requests, most of them odd: other
//! scopes than the kind has, verbs in the path, encodings, subresources, paths that name no resource. Writes are dry runs,
//! so that both servers stay the same.

mod ask;
mod verdict;
mod world;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::cluster::workdir::WorkDir;
use crate::differential::servers::{self, Server};
use crate::differential::{self, cases::Request};
use crate::random::Random;
use crate::signals::{self, wait_for};
use crate::{dist, tools};
use verdict::{Answer, Report};
use world::World;

/// How many requests a step of the tests makes.
const QUICK: usize = 1_000;
/// How long both may take to learn of roles.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct AuthorizationArgs {
    /// The binary to compare; built when it is not given
    #[arg(long)]
    karve: Option<PathBuf>,
    /// How many requests to make
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// Where the random numbers begin, to have a run again [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Show also where the answers differ in nothing but their status
    #[arg(long)]
    statuses: bool,
}

pub fn run(args: &AuthorizationArgs) -> Result<()> {
    let binary = match &args.karve {
        Some(path) => std::path::absolute(path)?,
        None => dist::release()?,
    };
    let by_time = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs())
    };
    let seed = args.seed.unwrap_or_else(by_time);
    println!("seed {seed}");
    let report = differential::in_a_network(|| compare(&binary, seed, args.requests))?;
    print!("{}", report.text(args.statuses));
    ensure!(
        report.differences() == 0,
        "{} requests were answered otherwise; have them again with --seed {seed}",
        report.differences()
    );
    Ok(())
}

/// Some requests, as a step of the tests.
pub fn run_quick() -> Result<()> {
    if !tools::is_root() {
        return tools::skip("the comparison of authorization: it needs root");
    }
    run(&AuthorizationArgs {
        karve: None,
        requests: QUICK,
        seed: None,
        statuses: false,
    })
}

fn compare(binary: &Path, seed: u64, requests: usize) -> Result<Report> {
    let mut random = Random::new(seed);
    let world = World::new(&mut random);
    let requests: Vec<Request> = (0..requests).map(|_| ask::request(&mut random)).collect();
    let dir = WorkDir::create()?;
    servers::prepare(dir.path(), &world.tokens())?;
    let karve =
        servers::karve(binary, dir.path()).with_context(|| tools::last_lines(&dir.path().join("karve.log"), 10))?;
    let upstream = servers::upstream(dir.path(), "")
        .with_context(|| tools::last_lines(&dir.path().join("kube-apiserver.log"), 10))?;
    let (theirs, ours) = thread::scope(|scope| {
        let ours = scope.spawn(|| play(&karve, &world, &requests).context("karve"));
        let theirs = play(&upstream, &world, &requests).context("upstream");
        let ours = ours.join().unwrap_or_else(|_| bail!("the run panicked"));
        anyhow::Ok((theirs?, ours?))
    })?;
    Ok(Report::new(requests, theirs, ours))
}

/// Makes the world on a server and asks everything of it.
fn play(server: &Server, world: &World, requests: &[Request]) -> Result<Vec<Answer>> {
    for request in world.setup() {
        let answer = server.connect()?.ask(&request)?;
        let told = String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(
            matches!(answer.status, 200 | 201 | 409),
            "{} {} was answered {}: {told}",
            request.method,
            request.path,
            answer.status
        );
    }
    for request in world.signs() {
        let what = format!("{} to be answered", request.path);
        wait_for(&what, PATIENCE, || {
            let answer = server.connect().and_then(|mut client| client.ask(&request)).ok()?;
            world::is_sign(&answer).then_some(())
        })?;
    }
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        signals::check()?;
        answers.push(answer_of(server, request).with_context(|| format!("{} {}", request.method, request.path))?);
    }
    Ok(answers)
}

/// On a connection of its own: some answers have no end, and some are followed by the end of the connection.
fn answer_of(server: &Server, request: &Request) -> Result<Answer> {
    let mut client = server.connect()?;
    if ask::may_be_endless(request) {
        return Ok(Answer::new(client.status_of(request)?, Vec::new()));
    }
    let response = client.ask(request)?;
    Ok(Answer::new(response.status, response.body))
}
