//! Shares of the machine.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::cluster::{LOG_MAX_BYTES, LOG_MAX_FILES, POD_MAX_PIDS};
use crate::pods::{MAIN, container, pod_spec};
use crate::signals::wait_for;
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::world::{PATIENCE, World};

pub const PROCESSES: Case = Case {
    name: "containers/processes",
    class: "",
    must_not: "One pod makes so many processes that the node has none left.",
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
    let of_machine: u64 = fs::read_to_string("/proc/sys/kernel/pid_max")?.trim().parse()?;
    // Far less than the machine has, and more than a pod of this node may have.
    let wanted = (of_machine / 2).min(3 * POD_MAX_PIDS);
    let namespace = world.namespace(json!({}))?;
    let pod = namespace.attacker()?;
    let done = pod.must(&["fork", &wanted.to_string()])?;
    let forked = done["forked"].as_u64().context("no count")?;
    ensure!(forked > 0, "not one process could be made: {done}");
    let of_one_pod = match done["refused"].as_str() {
        Some(why) => Verdict::Blocked(format!("stopped after {forked} processes: {why}")),
        None => Verdict::Succeeded(format!("{forked} processes in one pod, and no end")),
    };
    let uid = pod.read()?["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    judge(&[of_one_pod, of_all_pods(&uid, of_machine)?])
}

/// The bound that is there whatever a pod may have by itself. Reaching it would take the machine from everybody else, so it
/// is only looked up, above the pod's own cgroup.
fn of_all_pods(uid: &str, of_machine: u64) -> Result<Verdict> {
    let mounts = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new);
    let found = mounts
        .iter()
        .find_map(|mount| directory_named(mount, &format!("pod{uid}"), CGROUP_DEPTH));
    let cgroup = found.context("the pod has no cgroup")?;
    let mut above = cgroup.ancestors();
    let pods = above.find(|path| path.file_name() == Some(OsStr::new("kubepods")));
    let pods = pods.context("no cgroup holds all pods")?;
    let max = fs::read_to_string(pods.join("pids.max"))?;
    Ok(match max.trim().parse::<u64>() {
        Ok(max) if max < of_machine => Verdict::Blocked(format!("all pods may have {max} processes of {of_machine}")),
        _ => Verdict::Succeeded(format!("all pods may have {} processes of {of_machine}", max.trim())),
    })
}

/// How deep below the root of a hierarchy cgroups of pods are looked for.
const CGROUP_DEPTH: usize = 6;

fn directory_named(above: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let entries = fs::read_dir(above).ok()?.flatten();
    let directories: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    let found = directories
        .iter()
        .find(|path| path.file_name() == Some(OsStr::new(name)));
    let deeper = || {
        directories
            .iter()
            .find_map(|path| directory_named(path, name, depth.checked_sub(1)?))
    };
    found.cloned().or_else(deeper)
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
