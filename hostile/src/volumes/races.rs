//! Links that come and go while the kubelet and the runtime look.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::cluster::mounts_below;
use crate::pods::{Pod, container, pod_spec};
use crate::verdict::{Verdict, blocked, succeeded};
use crate::world::{Namespace, World};

pub const SUBPATH_RACE: Case = Case {
    name: "volumes/subpath-race",
    class: "CVE-2021-25741",
    must_not: "A subPath that is exchanged with a link while containers start leads one of them to the host's files.",
    needs: &[],
    run: subpath_race,
};

pub const DESTINATION_RACE: Case = Case {
    name: "volumes/destination-race",
    class: "CVE-2021-30465",
    must_not: "A mount's destination in a shared volume that is exchanged with a link while containers start is mounted on the host.",
    needs: &[],
    run: destination_race,
};

const SECRET: &str = "secret-of-the-host";
/// Each of them is one look.
const CONTAINERS: usize = 10;
const ROUNDS: usize = 3;
/// On a busy machine the exchange may stand still while a whole round is started; so many rounds are tried until a container
/// was started on the directory.
const MOST_ROUNDS: usize = 30;

/// A directory that pods share, one of which exchanges `dir` and `link` in it without end.
fn swapper<'a>(namespace: &'a Namespace<'a>, shared: &Path, target: &Path) -> Result<Pod<'a>> {
    fs::create_dir_all(shared.join("dir/sub"))?;
    fs::write(shared.join("dir/secret"), "inside")?;
    std::os::unix::fs::symlink(target, shared.join("link"))?;
    let mut main = container(&["swap", "/shared/dir", "/shared/link"]);
    main["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
    let pod = namespace.pod(pod_spec(vec![main], volumes(shared)))?;
    pod.running()?;
    let is_link = || fs::symlink_metadata(shared.join("dir")).is_ok_and(|found| found.is_symlink());
    crate::signals::wait_for("the exchange", crate::world::PATIENCE, || Ok(is_link().then_some(())))?;
    Ok(pod)
}

fn volumes(shared: &Path) -> Value {
    json!([{"name": "shared", "hostPath": {"path": shared}}, {"name": "other", "emptyDir": {}}])
}

fn subpath_race(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let (shared, host) = (world.host_dir()?, world.host_dir()?);
    fs::write(host.join("secret"), SECRET)?;
    let _swapper = swapper(&namespace, &shared, &host)?;
    let (mut seen_inside, mut rounds) = (0, 0);
    while rounds < ROUNDS || (seen_inside == 0 && rounds < MOST_ROUNDS) {
        rounds += 1;
        for text in round(&namespace, &shared, |container| {
            container["args"] = json!(["read", "/mnt/secret"]);
            container["volumeMounts"] = json!([{"name": "shared", "mountPath": "/mnt", "subPath": "dir"}]);
        })? {
            if text.contains(SECRET) {
                return succeeded("a container reads a file of the host");
            }
            seen_inside += usize::from(text.contains("inside"));
        }
    }
    ensure!(seen_inside > 0, "not one container was started");
    blocked(format!(
        "{} containers, {seen_inside} of which were started on the directory",
        rounds * CONTAINERS
    ))
}

fn destination_race(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let (shared, host) = (world.host_dir()?, world.host_dir()?);
    fs::create_dir(host.join("sub"))?;
    let _swapper = swapper(&namespace, &shared, &host)?;
    let (mut started, mut rounds) = (0, 0);
    while rounds < ROUNDS || (started == 0 && rounds < MOST_ROUNDS) {
        rounds += 1;
        for text in round(&namespace, &shared, |container| {
            container["args"] = json!(["write", "/shared/dir/sub/written", "x", "then", "mounts"]);
            container["volumeMounts"] =
                json!([{"name": "shared", "mountPath": "/shared"}, {"name": "other", "mountPath": "/shared/dir/sub"}]);
        })? {
            started += usize::from(!text.is_empty());
        }
        let mounted = mounts_below(&host);
        if !mounted.is_empty() {
            return succeeded(format!("{mounted:?} are mounted on the host"));
        }
        if host.join("sub/written").exists() {
            return succeeded("a container writes to a directory of the host");
        }
    }
    ensure!(started > 0, "not one container was started");
    blocked(format!(
        "{} containers, {started} of which were started",
        rounds * CONTAINERS
    ))
}

/// Starts a pod of many containers and returns what each of them said.
fn round(namespace: &Namespace<'_>, shared: &Path, change: impl Fn(&mut Value)) -> Result<Vec<String>> {
    let containers = (0..CONTAINERS).map(|index| {
        let mut container = container(&[]);
        container["name"] = json!(format!("c{index}"));
        change(&mut container);
        container
    });
    let pod = namespace.pod(pod_spec(containers.collect(), volumes(shared)))?;
    pod.wait("try all containers", |pod| {
        let statuses = pod["status"]["containerStatuses"].as_array()?;
        let over = |status: &Value| {
            let waits = status["state"]["waiting"]["reason"]
                .as_str()
                .is_some_and(|why| why.contains("Error"));
            status["state"]["terminated"].is_object() || waits
        };
        (statuses.len() == CONTAINERS && statuses.iter().all(over)).then_some(())
    })?;
    let said = (0..CONTAINERS)
        .map(|index| pod.log_text(&format!("c{index}")).unwrap_or_default())
        .collect();
    pod.delete()?;
    Ok(said)
}
