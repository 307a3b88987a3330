//! A killed Karve loses neither an acknowledged write nor a running container.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::World;
use super::workload::{BUILTIN, available, deploy, fetch, pods, service_address};
use crate::cluster::{Karve, Kubectl, Store};
use crate::process::Process;
use crate::signals::wait_for;

const WRITERS: usize = 6;
/// More than can be written before the kill.
const OBJECTS_PER_WRITER: usize = 1500;
/// The kill comes when so many writes were acknowledged.
const ACKNOWLEDGED_AT_KILL: usize = 300;
const ROUNDS: usize = 2;

pub fn loses_nothing(world: &World, store: Store) -> Result<()> {
    let mut setup = world.setup();
    setup.store = store;
    let mut cluster = Karve::start(&setup)?;
    let kubectl = cluster.kubectl()?;
    deploy(&kubectl, &BUILTIN, 2)?;
    let containers = containers(&kubectl)?;
    for round in 1..=ROUNDS {
        let acknowledged = write_until_killed(&mut cluster, &kubectl, &world.logs, round)?;
        still_serving(&kubectl, &containers)?;
        cluster.up()?;
        cluster.wait_ready()?;
        let stored = config_maps(&kubectl)?;
        let lost: Vec<&String> = acknowledged.difference(&stored).collect();
        ensure!(lost.is_empty(), "{} acknowledged writes are lost: {lost:?}", lost.len());
        println!(
            "   round {round}: {} acknowledged, {} stored, none lost",
            acknowledged.len(),
            stored.len()
        );
        available(&kubectl, 2)?;
        ensure!(
            self::containers(&kubectl)? == containers,
            "containers were restarted: {containers:?} became {:?}",
            self::containers(&kubectl)?
        );
    }
    service_works(&kubectl)
}

/// Lets clients write, kills the server in the midst, and returns what they were told is stored.
fn write_until_killed(cluster: &mut Karve, kubectl: &Kubectl, logs: &Path, round: usize) -> Result<BTreeSet<String>> {
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let manifest = logs.join(format!("write-{round}-{writer}.yaml"));
        fs::write(&manifest, config_map_list(round, writer))?;
        let log = logs.join(format!("write-{round}-{writer}.log"));
        let mut command = kubectl.command(&["create", "--validate=false", "-f"]);
        writers.push(Process::start(command.arg(&manifest), &log)?);
    }
    let mut told = BTreeSet::new();
    let enough = wait_for("acknowledged writes", Duration::from_secs(60), || {
        told = acknowledged(&writers);
        (told.len() >= ACKNOWLEDGED_AT_KILL).then_some(())
    });
    enough.with_context(|| format!("{} were acknowledged; {}", told.len(), cluster.last_words()))?;
    cluster.process().context("karve does not run")?.crash();
    writers.iter_mut().for_each(Process::stop);
    let told = acknowledged(&writers);
    ensure!(
        told.len() < WRITERS * OBJECTS_PER_WRITER,
        "everything was written before the kill"
    );
    Ok(told)
}

fn config_map_list(round: usize, writer: usize) -> String {
    (0..OBJECTS_PER_WRITER)
        .map(|number| {
            format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: w-{round}-{writer}-{number} }}\ndata: {{ number: \"{number}\" }}\n"
            )
        })
        .collect()
}

/// kubectl prints a line when the server has answered.
fn acknowledged(writers: &[Process]) -> BTreeSet<String> {
    let logs = writers.iter().filter_map(|writer| fs::read_to_string(&writer.log).ok());
    logs.flat_map(|log| log.lines().filter_map(created).collect::<Vec<_>>())
        .collect()
}

fn created(line: &str) -> Option<String> {
    line.strip_suffix(" created").map(str::to_owned)
}

fn config_maps(kubectl: &Kubectl) -> Result<BTreeSet<String>> {
    let names = kubectl.run(&["get", "configmaps", "-o", "name"])?;
    Ok(names.lines().map(str::to_owned).collect())
}

/// Identity and start of each container: a restart changes one or the other.
fn containers(kubectl: &Kubectl) -> Result<BTreeSet<String>> {
    let path = r#"jsonpath={range .items[*]}{.status.podIP} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].state.running.startedAt} {.status.containerStatuses[0].restartCount}{"\n"}{end}"#;
    let lines = kubectl.run(&["get", "pods", "-l", "app=web", "-o", path])?;
    Ok(lines.lines().map(str::to_owned).collect())
}

/// Pods answer while nothing manages them.
fn still_serving(kubectl: &Kubectl, containers: &BTreeSet<String>) -> Result<()> {
    for container in containers {
        let address = container.split(' ').next().unwrap_or_default();
        fetch(kubectl, &format!("{address}:8080"))
            .with_context(|| format!("{container} does not run without karve"))?;
    }
    Ok(())
}

fn service_works(kubectl: &Kubectl) -> Result<()> {
    let address = service_address(kubectl)?;
    let name = fetch(kubectl, &address)?;
    ensure!(pods(kubectl)?.contains(&name), "{name} answered and is no pod");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_acknowledgements() {
        assert_eq!(
            created("configmap/w-1-2-3 created").as_deref(),
            Some("configmap/w-1-2-3")
        );
        assert_eq!(created("Unable to connect to the server: EOF"), None);
    }
}
