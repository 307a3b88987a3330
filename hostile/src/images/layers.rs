//! Layers that are not what they seem.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::image::{Image, Tar, gzip};
use crate::pods::{Settled, container_of, pod_spec};
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::world::World;

pub const ENDLESS_RECORDS: Case = Case {
    name: "images/endless-records",
    class: "",
    must_not: "A small image whose tar has records without end takes the node's memory.",
    needs: &[],
    run: endless_records,
};

pub const UNPACKED_OUTSIDE: Case = Case {
    name: "images/unpacked-outside",
    class: "",
    must_not: "A layer's links, names or devices let it write outside of its directory, or something of it is left after it was refused.",
    needs: &[],
    run: unpacked_outside,
};

/// How much a record says to hold.
const CLAIMED: u64 = 1 << 30;
/// How much of it is really there, once unpacked.
const SENT: usize = 700 << 20;
/// How much more memory is plainly none that depends on the image.
const TOLERATED: u64 = 256 << 20;

fn endless_records(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let zeros = gzip([vec![0; 1 << 20]])?;
    let mut attempts = Vec::new();
    for (kind, what) in [
        (b'x', "a pax record"),
        (b'L', "a long name"),
        (b'K', "a long link"),
        (b'g', "a global record"),
    ] {
        let head = gzip([Tar::default().head_only(kind, "record", CLAIMED).unfinished()])?;
        let layer = [head, zeros.repeat(SENT >> 20)].concat();
        let mut image = Image::honest(&format!("hostile.test/records:{}", world.number()), vec![layer]);
        image.diff_ids = vec![format!("sha256:{:064x}", world.number())];
        world.registry.publish(&image, None)?;
        let before = world.cluster.peak_memory()?;
        let pod = namespace.pod(pod_spec(vec![container_of(&image.name, &["wait"])], json!([])))?;
        let settled = pod.settled()?;
        let grown = world.cluster.peak_memory()?.saturating_sub(before);
        attempts.push(match settled {
            Settled::Ran => Verdict::Succeeded(format!("an image with {what} without end was started")),
            Settled::Refused(_) if grown > TOLERATED => {
                Verdict::Succeeded(format!("{what} took {} MB of memory", grown >> 20))
            }
            Settled::Refused(why) => Verdict::Blocked(format!("{what}: {} MB of memory; {why}", grown >> 20)),
        });
        pod.delete()?;
    }
    judge(&attempts)
}

fn unpacked_outside(world: &World) -> Result<Verdict> {
    let host = world.host_dir()?;
    fs::write(host.join("file"), "untouched")?;
    world.import(&Image::honest(
        "hostile.test/honest-links:1",
        vec![
            world.base.clone(),
            Tar::default()
                .directory("d", 0o755)
                .symlink("a", "d")
                .file("a/x", 0o644, b"x")
                .finish(),
        ],
    ))?;
    let before = (listing(&host)?, store_of(world)?);
    let mut refused = 0;
    let layers = layers(&host.to_string_lossy());
    let count = layers.len();
    for layer in layers {
        let name = format!("hostile.test/outside:{}", world.number());
        let image = Image::honest(&name, vec![layer.finish(), world.base.clone()]);
        // What a layer has that was taken was put inside.
        if world.import(&image).is_err() {
            refused += 1;
            let left: Vec<String> = store_of(world)?.difference(&before.1).cloned().collect();
            let unfinished: Vec<&String> = left
                .iter()
                .filter(|name| name.contains("partial") || name.contains("spool/"))
                .collect();
            if !unfinished.is_empty() {
                return succeeded(format!("a refused image left {unfinished:?}"));
            }
        }
    }
    let after = listing(&host)?;
    ensure!(refused > 0, "not one layer was refused");
    match after == before.0 {
        true => blocked(format!(
            "{count} layers, {refused} of them refused, and the host's directory is as it was"
        )),
        false => succeeded(format!("the host's directory became {after:?}")),
    }
}

/// All of them aim at one directory of the host.
fn layers(target: &str) -> Vec<Tar> {
    let up = format!("{}{}", "../".repeat(20), target.trim_start_matches('/'));
    let new = || Tar::default();
    vec![
        new().file(&format!("{up}/file"), 0o644, b"evil"),
        new().file(&format!("{target}/file"), 0o644, b"evil"),
        new().file("a/../../../../x", 0o644, b"evil"),
        new().symlink("link", target).file("link/file", 0o644, b"evil"),
        new().symlink("link", target).file("link/new", 0o644, b"evil"),
        new().symlink("link", &up).file("link/file", 0o644, b"evil"),
        new()
            .symlink("link", target)
            .directory("link", 0o777)
            .file("link/new", 0o644, b"evil"),
        new()
            .symlink("one", "two")
            .symlink("two", target)
            .file("one/file", 0o644, b"evil"),
        new()
            .hard_link("file", &format!("{target}/file"))
            .file("file", 0o644, b"evil"),
        new().hard_link("file", &format!("{up}/file")),
        new().symlink("link", target).hard_link("file", "link/file"),
        new()
            .symlink("file", &format!("{target}/file"))
            .file("file", 0o644, b"inside"),
        new()
            .symlink("link", target)
            .entry(b'0', "link/.wh.file", "", 0o644, &[]),
        new()
            .symlink("link", target)
            .entry(b'0', "link/.wh..wh..opq", "", 0o644, &[]),
        new().entry(b'0', &format!("{up}/.wh.file"), "", 0o644, &[]),
        new().entry(b'0', ".wh...", "", 0o644, &[]),
        new().entry(b'0', ".wh.", "", 0o644, &[]),
        new().entry(b'Z', "unknown", "", 0o644, &[]),
        new().head_only(b'0', "cut", 1 << 20),
    ]
}

fn listing(dir: &Path) -> Result<Vec<(String, String)>> {
    let mut found: Vec<(String, String)> = fs::read_dir(dir)?
        .flatten()
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                fs::read_to_string(entry.path()).unwrap_or_default(),
            )
        })
        .collect();
    found.sort();
    Ok(found)
}

/// The names of everything in the node's image store, not deeper than its layers.
fn store_of(world: &World) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    collect(&world.cluster.data_dir().join("node"), 5, &mut names);
    ensure!(!names.is_empty(), "the image store was not found");
    Ok(names)
}

fn collect(dir: &Path, depth: u32, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        names.insert(entry.path().to_string_lossy().into_owned());
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory && depth > 0 {
            collect(&entry.path(), depth - 1, names);
        }
    }
}
