//! A machine joins by a bootstrap token, is refused when it must be, and loses its access with its Node.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::World;
use super::workload::step;
use crate::cluster::{Invitation, Karve, Kubectl};
use crate::signals::wait_for;
use crate::tools;

const PATIENCE: Duration = Duration::from_secs(120);

pub fn is_by_token(world: &World) -> Result<()> {
    let mut setup = world.setup();
    setup.nodes = 2;
    let mut cluster = Karve::start(&setup)?;
    let kubectl = cluster.kubectl()?;
    carry(&mut cluster, &kubectl).with_context(|| cluster.last_words())
}

fn carry(cluster: &mut Karve, kubectl: &Kubectl) -> Result<()> {
    kubectl.run(&["wait", "--for=condition=Ready", "node/node-2", "--timeout=120s"])?;
    let approved = ["get", "csr", "-o", "jsonpath={.items[*].spec.signerName}"];
    let signers = kubectl.run(&approved)?;
    ensure!(
        signers.contains("kubernetes.io/kube-apiserver-client-kubelet"),
        "the client certificate was not requested: {signers}"
    );
    refuses(cluster, kubectl)?;
    rotates(cluster)?;

    step("the Node is deleted");
    kubectl.run(&["delete", "node", "node-2", "--timeout=60s"])?;
    let worker = cluster.workers().first().context("there is no worker")?;
    let mut own = worker.kubectl()?;
    wait_for("the end of its access", PATIENCE, || {
        let output = own.output().ok()?;
        String::from_utf8_lossy(&output.stderr)
            .contains("Unauthorized")
            .then_some(())
    })?;
    let nodes = kubectl.run(&["get", "nodes", "-o", "name"])?;
    ensure!(!nodes.contains("node-2"), "the node came back: {nodes}");
    Ok(())
}

fn refuses(cluster: &mut Karve, kubectl: &Kubectl) -> Result<()> {
    step("machines that must not join");
    let worker = cluster.workers().first().context("there is no worker")?;
    let invitation = worker.invitation().clone();
    let (id, _) = invitation.token.split_once('.').context("the token has no dot")?;
    let with = |token: String, ca_hash: &str| Invitation {
        token,
        ca_hash: ca_hash.to_owned(),
        ..invitation.clone()
    };
    let other_hash = format!("sha256:{}", "0".repeat(64));
    for (invitation, node, expected) in [
        (invitation.clone(), "node-2", "already exists in the cluster"),
        (
            with(format!("{id}.0123456789abcdef"), &invitation.ca_hash),
            "node-3",
            "its secret part is wrong",
        ),
        (
            with("zzzzzz.0123456789abcdef".to_owned(), &invitation.ca_hash),
            "node-3",
            "does not know token zzzzzz",
        ),
        (
            with(invitation.token.clone(), &other_hash),
            "node-3",
            "its CA does not match sha256:000",
        ),
    ] {
        let told = worker.refusal(&invitation, node)?;
        ensure!(told.contains(expected), "{told:?} instead of {expected:?}");
        ensure!(!told.contains(&invitation.token), "the token is told: {told:?}");
    }
    step("a token is deleted");
    let listed = tools::output(&mut cluster.karve(&["token", "list"]))?;
    ensure!(listed.contains(id) && !listed.contains(&invitation.token), "{listed}");
    tools::run(&mut cluster.karve(&["token", "delete", id]))?;
    let query = [
        "get",
        "cm",
        "-n",
        "kube-public",
        "cluster-info",
        "-o",
        "jsonpath={.data}",
    ];
    kubectl.until("the end of its signature", PATIENCE, &query, |data| !data.contains(id))?;
    let worker = cluster.workers().first().context("there is no worker")?;
    let told = worker.refusal(&invitation, "node-3")?;
    ensure!(told.contains("has expired or was deleted"), "{told:?}");
    Ok(())
}

/// New certificates in running processes, whose connections stay.
fn rotates(cluster: &mut Karve) -> Result<()> {
    step("certificates are rotated");
    let told = tools::output(&mut cluster.karve(&["certs", "rotate"]))?;
    ensure!(told.contains("kube-apiserver"), "{told}");
    let worker = cluster.workers().first().context("there is no worker")?;
    let mut rotate: Command = worker.karve(&["certs", "rotate"]);
    let told = tools::output(&mut rotate)?;
    ensure!(told.contains("kubelet-client"), "{told}");
    let mut asked = worker.kubectl()?;
    ensure!(asked.output()?.status.success(), "the new certificate is not accepted");
    Ok(())
}
