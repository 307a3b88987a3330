//! Parts of volumes.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::pods::{MAIN, container, pod_spec};
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::world::World;

pub const RESTART_TRUNCATES: Case = Case {
    name: "volumes/restart-truncates",
    class: "",
    must_not: "A container that restarts empties the file of the host that is mounted into it by subPath.",
    needs: &[],
    run: restart_truncates,
};

pub const LINK_AS_SUBPATH: Case = Case {
    name: "volumes/link-as-subpath",
    class: "CVE-2017-1002101",
    must_not: "A subPath that a container has made a link leads to the host's files.",
    needs: &[],
    run: link_as_subpath,
};

const SECRET: &str = "secret-of-the-host";

fn restart_truncates(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let host = world.host_dir()?;
    fs::write(host.join("file"), "precious")?;
    let mut main = container(&["read", "/mnt/file", "then", "exit", "1"]);
    main["volumeMounts"] = json!([{"name": "host", "mountPath": "/mnt/file", "subPath": "file", "readOnly": true}]);
    let mut spec = pod_spec(vec![main], json!([{"name": "host", "hostPath": {"path": host}}]));
    spec["restartPolicy"] = json!("Always");
    let pod = namespace.pod(spec)?;
    pod.wait("restart", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        let waits = status["state"]["waiting"]["reason"] == "CrashLoopBackOff";
        (status["restartCount"].as_u64()? >= 1 && (waits || status["state"]["terminated"].is_object())).then_some(())
    })?;
    let content = fs::read_to_string(host.join("file"))?;
    if content != "precious" {
        return succeeded(format!(
            "a file of the host holds {content:?} after a restart, through a read-only mount"
        ));
    }
    let last = pod.log(MAIN)?;
    ensure!(
        last.first().is_some_and(|read| read.text() == "precious"),
        "the container did not see the file: {last:?}"
    );
    blocked("the file is as it was after a restart")
}

fn link_as_subpath(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let host = world.host_dir()?;
    fs::write(host.join("secret"), SECRET)?;
    let target = host.to_string_lossy().into_owned();
    let up = format!("{}{target}", "../".repeat(12)).replace("//", "/");
    let file = format!("{target}/secret");
    let links = [
        ("root", "/"),
        ("host", target.as_str()),
        ("up", up.as_str()),
        ("file", file.as_str()),
        ("dir/inner", target.as_str()),
    ];
    let mut actions = vec![
        "mkdir",
        "/v/dir",
        "then",
        "mkdir",
        "/v/honest",
        "then",
        "write",
        "/v/honest/secret",
        "inside",
        "then",
    ];
    let places: Vec<String> = links.iter().map(|(name, _)| format!("/v/{name}")).collect();
    for ((_, target), place) in links.iter().zip(&places) {
        actions.extend(["link", target, place.as_str(), "then"]);
    }
    actions.extend(["list", "/v"]);
    let mut fill = container(&actions);
    fill["name"] = json!("fill");
    fill["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let below = target.trim_start_matches('/');
    let root_path = format!("root/{below}");
    let subpaths = [
        "honest",
        "root",
        "host",
        "up",
        "file",
        "dir/inner",
        "dir/inner/secret",
        root_path.as_str(),
    ];
    let containers = subpaths.iter().enumerate().map(|(index, subpath)| {
        let found = format!("/mnt/{below}/secret");
        let mut container = container(&["read", "/mnt/secret", "then", "read", &found, "then", "read", "/mnt"]);
        container["name"] = json!(format!("c{index}"));
        container["volumeMounts"] = json!([{"name": "v", "mountPath": "/mnt", "subPath": subpath}]);
        container
    });
    let mut spec = pod_spec(containers.collect(), json!([{"name": "v", "emptyDir": {}}]));
    spec["initContainers"] = json!([fill]);
    let pod = namespace.pod(spec)?;
    pod.wait("try all links", |pod| {
        let statuses = pod["status"]["containerStatuses"].as_array()?;
        let over = |status: &serde_json::Value| {
            let waits = status["state"]["waiting"]["reason"]
                .as_str()
                .is_some_and(|why| why.contains("Error"));
            status["state"]["terminated"].is_object() || waits
        };
        (statuses.len() == subpaths.len() && statuses.iter().all(over)).then_some(())
    })?;
    ensure!(
        pod.log_text("c0")?.contains("inside"),
        "an honest subPath does not work"
    );
    let mut attempts = Vec::new();
    for (index, subpath) in subpaths.iter().enumerate().skip(1) {
        let log = pod.log_text(&format!("c{index}")).unwrap_or_default();
        attempts.push(match log.contains(SECRET) {
            true => Verdict::Succeeded(format!("subPath {subpath} leads to the host: {log}")),
            false => Verdict::Blocked(format!(
                "subPath {subpath}: {}",
                if log.is_empty() {
                    "not started"
                } else {
                    "nothing of the host"
                }
            )),
        });
    }
    judge(&attempts)
}
