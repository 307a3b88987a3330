//! Devices of the host.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::pods::{Done, Pod, container, pod_spec};
use crate::verdict::{Verdict, judge};
use crate::world::World;

pub const DISKS: Case = Case {
    name: "containers/disks",
    class: "",
    must_not: "A container makes a node for a disk or the kernel's memory and opens it, with SYS_ADMIN and MKNOD too.",
    needs: &[],
    run: disks,
};

/// Where nodes are made: what the runtime mounts, what the image has, a volume, and what only SYS_ADMIN can mount.
const PLACES: &[&str] = &["/dev", "/tmp", "/volume", "/volume/mounted"];

fn disks(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let mut attempts = Vec::new();
    let mut honest = Vec::new();
    for capabilities in [json!({}), json!({"add": ["SYS_ADMIN", "MKNOD", "DAC_READ_SEARCH"]})] {
        let mut main = container(&["wait"]);
        main["securityContext"] = json!({"capabilities": capabilities});
        main["volumeMounts"] = json!([{"name": "v", "mountPath": "/volume"}]);
        let pod = namespace.pod(pod_spec(vec![main], json!([{"name": "v", "emptyDir": {}}])))?;
        pod.running()?;
        pod.must(&["mkdir", "/volume/mounted"])?;
        let mounted = pod.act(&["mount", "tmpfs", "/volume/mounted", "tmpfs"])?;
        ensure!(
            capabilities == json!({}) || mounted.ok,
            "SYS_ADMIN cannot mount: {}",
            mounted.error
        );
        for place in PLACES {
            let made = node(&pod, place, "null", "c", 1, 3)?;
            honest.push(made.ok);
            for (name, kind, major, minor) in targets()? {
                let opened = node(&pod, place, name, kind, major, minor)?;
                attempts.push(match opened.ok || opened.error == "EBUSY" {
                    true => Verdict::Succeeded(format!("{name} was opened in {place} with {capabilities}")),
                    false => Verdict::Blocked(format!("{name} in {place} with {capabilities}: {}", opened.error)),
                });
            }
        }
    }
    ensure!(
        honest.contains(&true),
        "not even /dev/null can be made and opened anywhere"
    );
    judge(&attempts)
}

/// Makes a node and opens it.
fn node(pod: &Pod<'_>, place: &str, name: &str, kind: &str, major: u32, minor: u32) -> Result<Done> {
    let path = format!("{place}/hostile-{name}");
    let made = pod.act(&["node", &path, kind, &major.to_string(), &minor.to_string()])?;
    if !made.ok && made.error != "EEXIST" {
        return Ok(made);
    }
    pod.act(&["open", &path])
}

fn targets() -> Result<Vec<(&'static str, &'static str, u32, u32)>> {
    let (major, minor) = disk()?;
    Ok(vec![
        ("disk", "b", major, minor),
        ("memory", "c", 1, 1),
        ("messages", "c", 1, 11),
        ("kvm", "c", 10, 232),
    ])
}

/// A disk of this machine.
fn disk() -> Result<(u32, u32)> {
    let entries = fs::read_dir("/sys/block")?
        .flatten()
        .map(|entry| entry.path().join("dev"));
    let numbers = entries.filter_map(|path| {
        let text = fs::read_to_string(path).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    let mut all: Vec<(u32, u32)> = numbers.collect();
    // The disk that this program is on is there for certain.
    let here = fs::metadata("/")?.dev();
    all.sort_by_key(|(major, minor)| (libc::makedev(*major, *minor) != here, *major));
    all.first().copied().context("this machine has no disk")
}
