//! What a cluster leaves on a machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cluster::Karve;
use crate::cluster::workdir::mounts_below;
use crate::tools::output;

/// Each entry names one thing, beginning with what it is.
pub type Footprint = BTreeSet<String>;

/// Everything on this machine that belongs to the cluster, by its directory, its name or its network namespace.
pub fn of(cluster: &Karve) -> Result<Footprint> {
    let marks = [cluster.data_dir().display().to_string(), cluster.name()];
    let mut found: Footprint = processes(&marks).into_iter().collect();
    let states = state_dirs(&cluster.name());
    // All nodes keep their files beside each other.
    for dir in states.iter().chain([&cluster.scratch("")]) {
        found.extend(mounts_below(dir).iter().map(|path| format!("mount {}", path.display())));
    }
    found.extend(states.iter().map(|path| format!("directory {}", path.display())));
    found.extend(
        cgroups(&marks)
            .into_iter()
            .map(|path| format!("cgroup {}", path.display())),
    );
    let links = output(cluster.inside("ip").args(["-brief", "link"]))?;
    found.extend(lines("link", &links, link_name));
    let rules = output(cluster.inside("nft").args(["list", "tables"]))?;
    found.extend(lines("table", &rules, str::to_owned));
    let legacy = output(&mut cluster.inside("iptables-save")).unwrap_or_default();
    let rules: String = legacy
        .lines()
        .filter(|line| line.starts_with('-'))
        .map(|line| format!("{line}\n"))
        .collect();
    found.extend(lines("rule", &rules, str::to_owned));
    Ok(found)
}

/// Those of the server's node and of the nodes that joined it, whose names begin alike.
fn state_dirs(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/run/karve").into_iter().flatten().flatten();
    let is_ours = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|found| found.to_string_lossy().starts_with(name))
    };
    entries.map(|entry| entry.path()).filter(is_ours).collect()
}

fn lines(kind: &str, text: &str, name: impl Fn(&str) -> String) -> Vec<String> {
    text.lines().map(|line| format!("{kind} {}", name(line))).collect()
}

/// "veth1@if2  UP  …" → "veth1"
fn link_name(line: &str) -> String {
    let name = line.split_whitespace().next().unwrap_or_default();
    name.split('@').next().unwrap_or_default().to_owned()
}

/// Processes that run from the cluster's directory, were started with its name, or sit in its cgroup.
fn processes(marks: &[String]) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok())
        })
        .filter(|path| !path.ends_with(std::process::id().to_string()))
        .filter_map(|path| describe(&path, marks))
        .collect()
}

fn describe(process: &Path, marks: &[String]) -> Option<String> {
    let read = |name: &str| fs::read(process.join(name)).unwrap_or_default();
    let arguments = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
    let cgroup = String::from_utf8_lossy(&read("cgroup")).into_owned();
    let link = |name: &str| fs::read_link(process.join(name)).unwrap_or_default();
    let places = format!(
        "{arguments}\n{cgroup}\n{}\n{}",
        link("cwd").display(),
        link("root").display()
    );
    let stat = String::from_utf8_lossy(&read("stat")).into_owned();
    let is_zombie = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
    let belongs = marks.iter().any(|mark| places.contains(mark.as_str())) && !is_zombie;
    belongs.then(|| format!("process {} {}", process.display(), arguments.trim()))
}

fn cgroups(marks: &[String]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = pending.pop() {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        for path in entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir() && !path.is_symlink())
        {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match marks.iter().any(|mark| name.contains(mark.as_str())) {
                true => found.push(path),
                false => pending.push(path),
            }
        }
    }
    found
}

/// Removes the empty cgroups of a cluster whose kubelet ran alone; `karve reset` does not know of them.
pub fn remove_cgroups(name: &str) -> Result<()> {
    let mut pending = cgroups(&[name.to_owned()]);
    let mut found = Vec::new();
    while let Some(dir) = pending.pop() {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        pending.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        found.push(dir);
    }
    for dir in found.iter().rev() {
        fs::remove_dir(dir).with_context(|| format!("cannot remove the cgroup {}", dir.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_named_without_their_peers() {
        assert_eq!(link_name("veth1@if2        UP             02:42:ac"), "veth1");
        assert_eq!(link_name("lo               UNKNOWN        00:00:00"), "lo");
    }
}
