//! Registries that lie.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::image::{Image, MANIFEST_TYPE, Tar, digest_of};
use crate::pods::{Settled, container_of, pod_spec};
use crate::verdict::{Verdict, judge};
use crate::wire::serve::Answer;
use crate::world::{Namespace, World};

pub const FALSE_DIGESTS: Case = Case {
    name: "images/false-digests",
    class: "",
    must_not: "A registry's manifest, configuration or layer is taken that is not what its digest says.",
    needs: &[],
    run: false_digests,
};

pub const ENDLESS_BLOB: Case = Case {
    name: "images/endless-blob",
    class: "",
    must_not: "A registry fills the node's disk or memory with a manifest or layer without end.",
    needs: &[],
    run: endless_blob,
};

fn image_of(world: &World, repository: &str) -> Image {
    let mark = Tar::default().file("mark", 0o644, repository.as_bytes()).finish();
    Image::honest(&format!("hostile.test/{repository}:1"), vec![world.base.clone(), mark])
}

/// What became of a pod with this image.
fn started(namespace: &Namespace<'_>, image: &str) -> Result<Settled> {
    let pod = namespace.pod(pod_spec(vec![container_of(image, &["wait"])], json!([])))?;
    let settled = pod.settled()?;
    pod.delete()?;
    Ok(settled)
}

fn verdict(what: &str, settled: Settled) -> Verdict {
    match settled {
        Settled::Ran => Verdict::Succeeded(format!("{what} was taken")),
        Settled::Refused(why) => Verdict::Blocked(format!("{what}: {why}")),
    }
}

fn false_digests(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let honest = image_of(world, "honest");
    world.registry.publish(&honest, None)?;
    ensure!(
        started(&namespace, &honest.name)? == Settled::Ran,
        "an honest image is not started"
    );

    let mut attempts = Vec::new();
    let other_layer = Tar::default().file("mark", 0o644, b"another").finish();
    for (repository, what) in [
        ("layer", "a layer"),
        ("config", "a configuration"),
        ("cut", "a layer that ends early"),
    ] {
        let image = image_of(world, &format!("false-{repository}"));
        world.registry.publish(&image, None)?;
        let (blob, served) = match repository {
            "layer" => (image.layers[1].clone(), other_layer.clone()),
            "cut" => (image.layers[1].clone(), image.layers[1][..600].to_vec()),
            _ => (
                image.configuration(),
                image.clone().with_config("User", json!("0")).configuration(),
            ),
        };
        let path = format!("/v2/false-{repository}/blobs/{}", digest_of(&blob));
        world
            .registry
            .serve(&path, move |_| Answer::Whole(200, vec![], served.clone()));
        attempts.push(verdict(
            &format!("{what} that is not what its digest says"),
            started(&namespace, &image.name)?,
        ));
    }
    // By digest: another manifest than the one that was asked for.
    let wanted = digest_of(b"a manifest that nobody has");
    let manifest = honest.manifest();
    world
        .registry
        .serve(&format!("/v2/honest/manifests/{wanted}"), move |_| {
            Answer::Whole(200, vec![("Content-Type", MANIFEST_TYPE.to_owned())], manifest.clone())
        });
    attempts.push(verdict(
        "another manifest than asked for",
        started(&namespace, &format!("hostile.test/honest@{wanted}"))?,
    ));
    // Layers whose true content is another than the configuration says.
    let mut liar = image_of(world, "false-content");
    liar.diff_ids[1] = digest_of(b"something else");
    world.registry.publish(&liar, None)?;
    attempts.push(verdict(
        "a layer that unpacks to something else",
        started(&namespace, &liar.name)?,
    ));
    judge(&attempts)
}

fn endless_blob(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let mut attempts = Vec::new();
    for what in ["layer", "configuration", "manifest"] {
        let image = image_of(world, &format!("endless-{what}"));
        world.registry.publish(&image, None)?;
        let path = match what {
            "layer" => format!("/v2/endless-layer/blobs/{}", digest_of(&image.layers[1])),
            "configuration" => format!("/v2/endless-configuration/blobs/{}", digest_of(&image.configuration())),
            _ => "/v2/endless-manifest/manifests/1".to_owned(),
        };
        world.registry.serve(&path, |_| {
            Answer::Endless(200, vec![("Content-Type", MANIFEST_TYPE.to_owned())])
        });
        let (begun, before) = (Instant::now(), world.cluster.peak_memory()?);
        let settled = started(&namespace, &image.name)?;
        let grown = world.cluster.peak_memory()?.saturating_sub(before);
        ensure!(
            world.registry.asked().iter().any(|asked| asked.path.starts_with(&path)),
            "{path} was never asked for"
        );
        attempts.push(match grown > 256 << 20 {
            true => Verdict::Succeeded(format!("a {what} without end took {} MB of memory", grown >> 20)),
            false => verdict(
                &format!("a {what} without end ({:.0} s)", begun.elapsed().as_secs_f64()),
                settled,
            ),
        });
    }
    judge(&attempts)
}
