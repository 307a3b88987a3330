//! How reads, writes, watches and memory grow with the number of objects and of watchers.

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::BenchArgs;
use super::api::Api;
use super::curve::Curve;
use super::figures::{Side, write_section};
use super::sides::{Cluster, Usage};
use crate::cluster::Setup;
use crate::signals;
use crate::tools::{self, root};

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 16;
const READS: usize = 100;
const LISTS: usize = 3;
const CHANGES: usize = 10;
/// A ConfigMap of about a kibibyte.
const PAYLOAD: usize = 900;

struct Curves {
    create: Curve,
    create_cpu: Curve,
    get: Curve,
    list: Curve,
    memory: Curve,
    delivery: Curve,
}

impl Curves {
    fn new() -> Self {
        Self {
            create: Curve::new("create by 16 clients, objects", "/s"),
            create_cpu: Curve::new("server CPU per create, objects", "µs"),
            get: Curve::new("GET, objects", "ms"),
            list: Curve::new("LIST of all, objects", "ms"),
            memory: Curve::new("memory, objects", "MB"),
            delivery: Curve::new("change to the last watcher, watchers", "ms"),
        }
    }

    fn all(&self) -> [&Curve; 6] {
        [
            &self.create,
            &self.create_cpu,
            &self.get,
            &self.list,
            &self.memory,
            &self.delivery,
        ]
    }
}

pub fn run(setup: &Setup, args: &BenchArgs) -> Result<()> {
    let mut curves = Curves::new();
    for side in [Side::Ours, Side::Upstream] {
        println!("-- growth: {side:?}");
        measure(side, setup, args, &mut curves)?;
    }
    write(&curves)
}

fn measure(side: Side, setup: &Setup, args: &BenchArgs, curves: &mut Curves) -> Result<()> {
    let (mut cluster, _) = match side {
        Side::Ours => Cluster::start_ours(setup)?,
        Side::Upstream => Cluster::start_upstream()?,
    };
    let scratch = tempfile::tempdir()?;
    let api = cluster.api(scratch.path())?;
    api.create(COLLECTION, &config_map("changed"))?;
    for &watchers in &args.watchers {
        signals::check()?;
        curves
            .delivery
            .add(watchers, side, milliseconds(deliver(&api, watchers)?));
    }
    let mut stored = 0;
    for &size in &args.objects {
        signals::check()?;
        let before = cluster.usage()?;
        let took = fill(&api, stored, size)?;
        let after = cluster.usage()?;
        let made = (size - stored) as f64;
        curves.create.add(size, side, made / took.as_secs_f64());
        curves.create_cpu.add(size, side, cpu(before, after) * 1e3 / made);
        stored = size;
        let get = format!("{COLLECTION}/object-{}", size / 2);
        curves
            .get
            .add(size, side, milliseconds(median(READS, || api.get(&get))?));
        curves
            .list
            .add(size, side, milliseconds(median(LISTS, || api.get(COLLECTION))?));
        curves.memory.add(size, side, cluster.usage()?.pss_mb);
    }
    Ok(())
}

fn cpu(before: Usage, after: Usage) -> f64 {
    after.cpu_ms - before.cpu_ms
}

fn config_map(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"payload": "x".repeat(PAYLOAD)},
    })
}

/// Creates the objects from number `from` up to `to`.
fn fill(api: &Api, from: usize, to: usize) -> Result<Duration> {
    let next = AtomicUsize::new(from);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| scope.spawn(|| write_some(api, &next, to)))
            .collect();
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().ok().context("a writer panicked")?)
    })?;
    Ok(begun.elapsed())
}

fn write_some(api: &Api, next: &AtomicUsize, to: usize) -> Result<()> {
    let mut connection = api.connection()?;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= to {
            return Ok(());
        }
        let body = serde_json::to_vec(&config_map(&format!("object-{number}")))?;
        let response = connection.request("POST", COLLECTION, &body)?;
        anyhow::ensure!(
            response.status == 201,
            "create: {} {}",
            response.status,
            String::from_utf8_lossy(&response.body)
        );
    }
}

/// The median time until every one of so many watchers has seen a change.
fn deliver(api: &Api, watchers: usize) -> Result<Duration> {
    let one = format!("{COLLECTION}?fieldSelector=metadata.name%3Dchanged");
    let ready = Barrier::new(watchers + 1);
    let seen = Barrier::new(watchers + 1);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..watchers)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let watch = api.watch(&one);
                    ready.wait();
                    let mut watch = watch?;
                    for _ in 0..CHANGES {
                        watch.until(Instant::now(), |_, _| true)?;
                        seen.wait();
                    }
                    Ok(())
                })
            })
            .collect();
        ready.wait();
        let mut times = Vec::new();
        for change in 0..CHANGES {
            let mut object = config_map("changed");
            object["data"]["change"] = json!(format!("{watchers}-{change}"));
            let begun = Instant::now();
            api.replace(&format!("{COLLECTION}/changed"), &object)?;
            seen.wait();
            times.push(begun.elapsed());
        }
        running
            .into_iter()
            .try_for_each(|watcher| watcher.join().ok().context("a watcher panicked")?)?;
        times.sort();
        Ok(times[CHANGES / 2])
    })
}

fn median<T>(count: usize, mut ask: impl FnMut() -> Result<T>) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        ask()?;
        times.push(begun.elapsed());
    }
    times.sort();
    Ok(times[count / 2])
}

fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

fn write(curves: &Curves) -> Result<()> {
    let mut content = "## Growth\n\n| measure | size | ratio | Karve | upstream |\n|---|--:|--:|--:|--:|\n".to_owned();
    let mut plots = String::new();
    for curve in curves.all() {
        content += &curve.rows();
        let words: Vec<&str> = curve.measure.split(|c: char| !c.is_alphanumeric()).collect();
        let file = format!("growth-{}.svg", words.join("-").to_lowercase().replace("--", "-"));
        fs::write(root().join("docs").join(&file), curve.svg())?;
        plots += &format!("![{}]({file})\n", curve.measure);
    }
    print!("{content}");
    content += &format!(
        "\nOne run through `kubectl proxy` on {} cores; `cargo xtask bench growth`, commit {}, {}. The ratio is upstream's\nfigure by ours, so that it is below one where more is better.\n\n{plots}",
        std::thread::available_parallelism()?,
        tools::commit()?,
        tools::today(),
    );
    write_section("growth", &content)
}
