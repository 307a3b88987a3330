//! Links in images, where the runtime looks for files.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::image::{Image, Tar};
use crate::pods::{Pod, Settled, container_of, pod_spec};
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, World};

pub const LINKS_IN_THE_IMAGE: Case = Case {
    name: "containers/links-in-the-image",
    class: "CVE-2019-19921, CVE-2021-30465",
    must_not: "Links in an image lead the runtime to the host's files when it mounts, makes directories or looks for users.",
    needs: &[],
    run: links_in_the_image,
};

/// A user that only the host has.
const USER: &str = "hostonly";

fn links_in_the_image(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let host = world.host_dir()?;
    fs::write(host.join("passwd"), format!("{USER}:x:1234:1234::/:/\n"))?;
    fs::write(host.join("file"), "untouched")?;
    let before = listing(&host)?;
    let up = format!("{}{}", "../".repeat(12), host.display()).replace("//", "/");

    let (mut tries, mut images) = (Vec::new(), Vec::new());
    for target in [host.to_string_lossy().into_owned(), up] {
        for (what, layer, config, change) in attacks(&target) {
            let name = format!("hostile.test/links:{}", world.number());
            let mut image = Image::honest(&name, vec![world.base.clone(), layer.finish()]);
            if let Some((field, value)) = config {
                image = image.with_config(field, value);
            }
            images.push(image);
            tries.push((what, name, change));
        }
    }
    world.import_all(&images)?;
    let mut pods = Vec::new();
    for (what, name, change) in &tries {
        pods.push((*what, start(&namespace, name, change)?));
    }
    let attempts: Result<Vec<Verdict>> = pods.iter().map(|(what, pod)| outcome(what, pod)).collect();
    let mut attempts = attempts?;
    let after = listing(&host)?;
    if after != before {
        attempts.push(Verdict::Succeeded(format!("the host's directory became {after:?}")));
    }
    judge(&attempts)
}

type Attack = (&'static str, Tar, Option<(&'static str, Value)>, Value);

/// What is wrong with each image, and with the container that uses it.
fn attacks(target: &str) -> Vec<Attack> {
    let none = Value::Null;
    let etc = Tar::default().directory("etc", 0o755);
    vec![
        (
            "hosts",
            etc.clone().symlink("etc/hosts", &format!("{target}/file")),
            None,
            none.clone(),
        ),
        (
            "resolv.conf",
            etc.clone().symlink("etc/resolv.conf", &format!("{target}/new")),
            None,
            none.clone(),
        ),
        (
            "hostname",
            etc.clone().symlink("etc/hostname", &format!("{target}/file")),
            None,
            none.clone(),
        ),
        ("etc", Tar::default().symlink("etc", target), None, none.clone()),
        (
            "passwd",
            etc.symlink("etc/passwd", &format!("{target}/passwd")),
            Some(("User", json!(USER))),
            none.clone(),
        ),
        ("proc", Tar::default().symlink("proc", target), None, none.clone()),
        ("sys", Tar::default().symlink("sys", target), None, none.clone()),
        ("dev", Tar::default().symlink("dev", target), None, none.clone()),
        (
            "working directory",
            Tar::default().symlink("work", target),
            Some(("WorkingDir", json!("/work/made"))),
            none.clone(),
        ),
        (
            "mount",
            Tar::default().symlink("link", target),
            None,
            json!({"mountPath": "/link/mounted"}),
        ),
        (
            "termination log",
            Tar::default().symlink("log", target),
            None,
            json!({"terminationMessagePath": "/log/file"}),
        ),
        (
            "image volume",
            Tar::default().symlink("vol", target),
            Some(("Volumes", json!({"/vol/made": {}}))),
            none,
        ),
    ]
}

fn start<'a>(namespace: &'a Namespace<'a>, image: &str, change: &Value) -> Result<Pod<'a>> {
    let mut main = container_of(image, &["status", "Uid", "then", "wait"]);
    let mut volumes = json!([]);
    if let Some(path) = change["mountPath"].as_str() {
        volumes = json!([{"name": "v", "emptyDir": {}}]);
        main["volumeMounts"] = json!([{"name": "v", "mountPath": path}]);
    }
    if let Some(path) = change["terminationMessagePath"].as_str() {
        main["terminationMessagePath"] = json!(path);
    }
    namespace.pod(pod_spec(vec![main], volumes))
}

fn outcome(what: &str, pod: &Pod<'_>) -> Result<Verdict> {
    Ok(match pod.settled()? {
        Settled::Refused(why) => Verdict::Blocked(format!("{what} as a link: {why}")),
        Settled::Ran if what == "passwd" => Verdict::Succeeded("a user was found in a file of the host".to_owned()),
        Settled::Ran => {
            let status = pod.act(&["status", "Seccomp"])?;
            ensure!(
                status.ok || what == "proc",
                "the container's /proc is not the kernel's: {}",
                status.error
            );
            match status.ok {
                true => Verdict::Blocked(format!("{what} as a link: resolved inside of the container")),
                false => Verdict::Succeeded("the container runs without the kernel's /proc".to_owned()),
            }
        }
    })
}

/// Names and contents.
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
