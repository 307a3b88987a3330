//! Digests that are none.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::image::{Image, Tar};
use crate::pods::{MAIN, Settled, container_of, pod_spec};
use crate::verdict::{Verdict, judge};
use crate::world::World;

pub const DIFF_ID_AS_PATH: Case = Case {
    name: "images/diff-id-as-path",
    class: "",
    must_not: "An image whose diff_ids are paths leaves files on the host or reads the authority's key.",
    needs: &[],
    run: diff_id_as_path,
};

fn diff_id_as_path(world: &World) -> Result<Verdict> {
    let honest = Image::honest(
        "hostile.test/two-layers:1",
        vec![world.base.clone(), Tar::default().file("second", 0o644, b"2").finish()],
    );
    world.import(&honest)?;
    // Short, for what names a directory is cut.
    let place = PathBuf::from(format!("/tmp/h{}-{}", std::process::id(), world.number()));
    let verdict = judge(&[imported(world, &place)?, pulled(world, &place)?]);
    for left in [
        place.clone(),
        with_suffix(&place, ".partial"),
        with_suffix(&place, ".size"),
    ] {
        let _ = fs::remove_dir_all(&left);
        let _ = fs::remove_file(&left);
    }
    verdict
}

/// The first image: a link to the keys, and then something that no layer may have, so that unpacking fails midway.
fn first(world: &World, place: &Path) -> Image {
    let keys = world.cluster.data_dir().join("pki");
    let layer = Tar::default()
        .symlink("b", &keys.to_string_lossy())
        .file("b.size", 0o644, b"1")
        .entry(b'Z', "forbidden", "", 0o644, &[])
        .finish();
    let mut image = Image::honest("hostile.test/first:1", vec![layer]);
    image.diff_ids = vec![place.to_string_lossy().into_owned()];
    image
}

/// The second one: its lowest layer is what the link of the first leads to.
fn second(world: &World, place: &Path) -> Image {
    let layer = Tar::default().file("x", 0o644, b"x").finish();
    let mut image = Image::honest("hostile.test/second:1", vec![layer, world.base.clone()]);
    image.diff_ids[0] = format!("{}.partial/b", place.display());
    image
}

fn imported(world: &World, place: &Path) -> Result<Verdict> {
    let Err(first) = world.import(&first(world, place)) else {
        bail!("an image with a forbidden entry was taken")
    };
    let left = with_suffix(place, ".partial");
    if left.exists() {
        let keys = match world.import(&second(world, place)) {
            Ok(()) => read_keys(world, "hostile.test/second:1")?,
            Err(error) => format!("the second image was refused: {error:#}"),
        };
        return Ok(Verdict::Succeeded(format!(
            "{} was left on the host; {keys}",
            left.display()
        )));
    }
    match world.import(&second(world, place)) {
        Ok(()) => Ok(Verdict::Succeeded(read_keys(world, "hostile.test/second:1")?)),
        Err(_) => Ok(Verdict::Blocked(format!("{first:#}"))),
    }
}

fn pulled(world: &World, place: &Path) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let mut refusals = Vec::new();
    for mut image in [first(world, place), second(world, place)] {
        image.name = image.name.replace(":1", ":pulled");
        world.registry.publish(&image, None)?;
        let pod = namespace.pod(pod_spec(vec![container_of(&image.name, &["list", "/"])], json!([])))?;
        match pod.settled()? {
            Settled::Ran => {
                return Ok(Verdict::Succeeded(format!(
                    "{} was started: {:?}",
                    image.name,
                    pod.log(MAIN)?
                )));
            }
            Settled::Refused(why) => refusals.push(why),
        }
        let asked = world
            .registry
            .asked()
            .iter()
            .any(|asked| asked.path.contains("manifests/pulled"));
        ensure!(asked, "the image was never pulled");
    }
    if with_suffix(place, ".partial").exists() {
        return Ok(Verdict::Succeeded("a pull left files on the host".to_owned()));
    }
    Ok(Verdict::Blocked(refusals.join("; ")))
}

/// What a container of the image sees.
fn read_keys(world: &World, image: &str) -> Result<String> {
    let namespace = world.namespace(json!({}))?;
    let pod = namespace.pod(pod_spec(
        vec![container_of(image, &["list", "/", "then", "read", "/ca.key"])],
        json!([]),
    ))?;
    match pod.settled()? {
        Settled::Ran => {
            pod.ended()?;
            let done = pod.log(MAIN)?;
            let read = done.last().is_some_and(|key| key.text().contains("PRIVATE KEY"));
            Ok(format!(
                "a container was started on it and {} the authority's key",
                if read { "reads" } else { "does not read" }
            ))
        }
        Settled::Refused(why) => Ok(format!("no container was started on it: {why}")),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}
