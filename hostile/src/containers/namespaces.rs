//! Users of containers and of the host.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::host_process;
use crate::cases::Case;
use crate::pods::{Settled, container, pod_spec};
use crate::verdict::{Verdict, blocked, succeeded};
use crate::world::World;

pub const ROOT_OF_THE_HOST: Case = Case {
    name: "containers/root-of-the-host",
    class: "",
    must_not: "Root of a pod with `hostUsers: false` is root of the host.",
    needs: &[],
    run: root_of_the_host,
};

fn root_of_the_host(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let marker = format!("/never-{}", world.number());
    let mut spec = pod_spec(
        vec![container(&["until", &marker])],
        json!([{"name": "v", "emptyDir": {}}]),
    );
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    spec["hostUsers"] = json!(false);
    let pod = namespace.pod(spec)?;
    if let Settled::Refused(why) = pod.settled()? {
        // Never weaker without a word: that it says why is all that can be asked of a machine that cannot.
        ensure!(!why.is_empty(), "the pod was refused without a reason");
        return blocked(format!("refused: {why}"));
    }
    let inside = pod.must(&["status", "Uid"])?;
    ensure!(
        inside.as_str().is_some_and(|ids| ids.starts_with("0 ")),
        "the container is not root inside: {inside}"
    );
    let map = pod.must(&["read", "/proc/self/uid_map"])?;
    let status = fs::read_to_string(format!("/proc/{}/status", host_process(&marker)?))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .context("no line about users")?;
    let host: u32 = line.split_whitespace().next().context("no user")?.parse()?;
    let written = pod.act(&["write", "/v/file", "x"])?;
    ensure!(
        written.ok,
        "root of the container cannot write its own volume: {}",
        written.error
    );
    match host {
        0 => succeeded(format!("root of the container is root of the host (map {map})")),
        other => blocked(format!("root of the container is user {other} of the host")),
    }
}
