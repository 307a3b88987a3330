//! Shares of the machine.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::cluster::{LOG_MAX_BYTES, LOG_MAX_FILES, POD_MAX_PIDS};
use crate::pods::{MAIN, container, pod_spec};
use crate::signals::wait_for;
use crate::verdict::{Verdict, blocked, succeeded};
use crate::world::{PATIENCE, World};

pub const PROCESSES: Case = Case {
    name: "containers/processes",
    class: "",
    must_not: "One pod makes more processes than --pod-max-pids allows.",
    needs: &[],
    run: processes,
};

pub const LOG_FLOOD: Case = Case {
    name: "containers/log-flood",
    class: "",
    must_not: "A container that prints without end fills the disk between two rotations of its log.",
    needs: &[],
    run: log_flood,
};

fn processes(world: &World) -> Result<Verdict> {
    let wanted = 2 * POD_MAX_PIDS;
    let namespace = world.namespace(json!({}))?;
    let pod = namespace.attacker()?;
    let done = pod.must(&["fork", &wanted.to_string()])?;
    let forked = done["forked"].as_u64().context("no count")?;
    ensure!(forked > 0, "not one process could be made: {done}");
    match done["refused"].as_str() {
        Some(why) => blocked(format!("stopped after {forked} processes: {why}")),
        None => succeeded(format!("{forked} processes in one pod, and no end")),
    }
}

fn log_flood(world: &World) -> Result<Verdict> {
    // What is kept, and as much again for what is on its way.
    let allowed = 2 * LOG_MAX_FILES * LOG_MAX_BYTES;
    let printed = 5 * allowed;
    let namespace = world.namespace(json!({}))?;
    let pod = namespace.pod(pod_spec(vec![container(&["print", &printed.to_string()])], json!([])))?;
    let mut most = 0;
    wait_for("the container to print", PATIENCE, || {
        let uid = pod.read()?["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        most = most.max(size_of_logs(world, &uid));
        let phase = pod.read()?["status"]["phase"].as_str().unwrap_or_default().to_owned();
        Ok(matches!(phase.as_str(), "Succeeded" | "Failed").then_some(()))
    })?;
    ensure!(pod.log_text(MAIN)?.contains("xxxx"), "the container printed nothing");
    ensure!(most > 0, "the logs of the container were not found");
    match most > allowed {
        true => succeeded(format!(
            "logs of {} MB where {} MB are allowed",
            most >> 20,
            allowed >> 20
        )),
        false => blocked(format!(
            "{} MB were printed, and no more than {} MB kept",
            printed >> 20,
            most >> 20
        )),
    }
}

/// The bytes of all logs of a pod.
fn size_of_logs(world: &World, uid: &str) -> u64 {
    let dirs = fs::read_dir(world.cluster.data_dir().join("node/logs/pods"))
        .into_iter()
        .flatten()
        .flatten();
    let own = dirs.filter(|dir| dir.file_name().to_string_lossy().ends_with(uid));
    own.map(|dir| size_of(&dir.path())).sum()
}

fn size_of(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size_of(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
