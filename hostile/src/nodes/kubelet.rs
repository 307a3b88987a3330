//! The kubelet's own server.

use anyhow::{Result, ensure};

use crate::cases::Case;
use crate::client::Client;
use crate::verdict::{Verdict, blocked, succeeded};
use crate::world::World;

pub const KUBELET_PATHS: Case = Case {
    name: "nodes/kubelet-paths",
    class: "",
    must_not: "The kubelet answers somebody without credentials or without rights.",
    needs: &[],
    run: kubelet_paths,
};

const PATHS: &[(&str, &str)] = &[
    ("GET", "/pods"),
    ("GET", "/pods/"),
    ("GET", "//pods"),
    ("GET", "/runningpods/"),
    ("GET", "/metrics"),
    ("GET", "/metrics/cadvisor"),
    ("GET", "/metrics/probes"),
    ("GET", "/metrics/resource"),
    ("GET", "/stats/summary"),
    ("GET", "/spec/"),
    ("GET", "/configz"),
    ("GET", "/logs/"),
    ("GET", "/logs/../../etc/passwd"),
    ("GET", "/logs/%2e%2e/%2e%2e/etc/passwd"),
    ("GET", "/containerLogs/default/x/main"),
    ("POST", "/run/default/x/main?cmd=id"),
    ("POST", "/exec/default/x/main?command=id&output=1"),
    ("GET", "/exec/default/x/main?command=id&output=1"),
    ("POST", "/attach/default/x/main"),
    ("POST", "/portForward/default/x"),
    ("GET", "/cri/exec/x"),
    ("GET", "/debug/pprof/"),
    ("GET", "/debug/pprof/heap"),
    ("GET", "/debug/flags/v"),
    ("PUT", "/debug/flags/v"),
    ("POST", "/checkpoint/default/x/main"),
    ("GET", "/statusz"),
    ("GET", "/flagz"),
    ("GET", "/healthz/../pods"),
    ("GET", "/healthz/%2e%2e/pods"),
    ("GET", "/pods%2f"),
    ("OPTIONS", "/pods"),
    ("HEAD", "/pods"),
];

fn kubelet_paths(world: &World) -> Result<Verdict> {
    let kubelet = world.cluster.kubelet();
    let honest = world.at(kubelet, "administrator", &["system:masters"])?.get("/pods")?;
    ensure!(honest.is_success(), "the administrator: {}", honest.summary());
    let mut through = Vec::new();
    for (who, client) in [
        ("nobody", Client::anonymous(kubelet)),
        ("a stranger", world.at(kubelet, "stranger", &[])?),
    ] {
        for (method, path) in PATHS {
            let answer = client.send(method, path, &[], &[])?;
            if !matches!(answer.status, 400..500) {
                through.push(format!("{who}: {method} {path} was answered {}", answer.status));
            }
        }
    }
    match through.is_empty() {
        true => blocked(format!("{} paths by 2 identities", PATHS.len())),
        false => succeeded(through.join("; ")),
    }
}
