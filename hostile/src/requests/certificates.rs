//! Requests for certificates.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::client::Client;
use crate::identity::signing_request;
use crate::signals::{self, wait_for};
use crate::verdict::{Verdict, judge};
use crate::wire::http1::Response;
use crate::world::{PATIENCE, World};

pub const CERTIFICATE_REQUESTS: Case = Case {
    name: "requests/certificate-requests",
    class: "",
    must_not: "A user or a node gets a certificate for system:masters, for another node or for a name that is not its own.",
    needs: &[],
    run: certificate_requests,
};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// How long an approval that must not come is waited for.
const WATCHED: Duration = Duration::from_secs(2);

struct Wanted<'a> {
    what: &'a str,
    signer: &'a str,
    name: &'a str,
    groups: &'a [&'a str],
    addresses: &'a [std::net::IpAddr],
    usages: &'a [&'a str],
}

fn certificate_requests(world: &World) -> Result<Verdict> {
    let node = world.user("system:node:evil", &["system:nodes"])?;
    let user = world.user_with(json!([
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests", "certificatesigningrequests/approval"], "verbs": ["*"]},
    ]))?;
    honest(world, &user)?;
    let client = &["digital signature", "client auth"][..];
    let serving = &["digital signature", "server auth"][..];
    let victim: &[std::net::IpAddr] = &[crate::network::NODE.into()];
    let mut made = Vec::new();
    for (who, wanted) in [
        (
            &user,
            Wanted {
                what: "system:masters",
                signer: CLIENT,
                name: "mallory",
                groups: &["system:masters"],
                addresses: &[],
                usages: client,
            },
        ),
        (
            &user,
            Wanted {
                what: "a node by a user",
                signer: KUBELET_CLIENT,
                name: "system:node:victim",
                groups: &["system:nodes"],
                addresses: &[],
                usages: client,
            },
        ),
        (
            &node,
            Wanted {
                what: "another node",
                signer: KUBELET_CLIENT,
                name: "system:node:victim",
                groups: &["system:nodes"],
                addresses: &[],
                usages: client,
            },
        ),
        (
            &node,
            Wanted {
                what: "a node in system:masters",
                signer: KUBELET_CLIENT,
                name: "system:node:evil",
                groups: &["system:nodes", "system:masters"],
                addresses: &[],
                usages: client,
            },
        ),
        (
            &node,
            Wanted {
                what: "another node's server",
                signer: KUBELET_SERVING,
                name: "system:node:victim",
                groups: &["system:nodes"],
                addresses: victim,
                usages: serving,
            },
        ),
        (
            &node,
            Wanted {
                what: "a server at another's address",
                signer: KUBELET_SERVING,
                name: "system:node:evil",
                groups: &["system:nodes"],
                addresses: victim,
                usages: serving,
            },
        ),
    ] {
        made.push(attempt(world, who, wanted)?);
    }
    judge(&outcomes(world, made)?)
}

/// One that the administrator approves of is signed.
fn honest(world: &World, user: &Client) -> Result<()> {
    let wanted = Wanted {
        what: "its own",
        signer: CLIENT,
        name: "mallory",
        groups: &[],
        addresses: &[],
        usages: &["digital signature", "client auth"],
    };
    let mut made = user.must_post(REQUESTS, &request(world, &wanted)?)?;
    let path = path_of(&made)?;
    made["status"] = approval();
    let approved = world.admin.put(&format!("{path}/approval"), &made)?;
    ensure!(approved.is_success(), "an honest approval: {}", approved.summary());
    wait_for("an honest certificate", PATIENCE, || {
        Ok(certificate(world, &path)?.then_some(()))
    })
}

fn approval() -> Value {
    json!({"conditions": [{"type": "Approved", "status": "True", "reason": "x", "message": "x"}]})
}

/// What became of a request at once.
struct Made<'a> {
    wanted: Wanted<'a>,
    /// Where it is, unless it was refused.
    path: Result<String, String>,
    /// What its maker was answered who approved of it himself.
    approval: Option<Response>,
}

fn attempt<'a>(world: &World, client: &Client, wanted: Wanted<'a>) -> Result<Made<'a>> {
    let made = client.post(REQUESTS, &request(world, &wanted)?)?;
    if !made.is_success() {
        return Ok(Made {
            wanted,
            path: Err(made.summary()),
            approval: None,
        });
    }
    let path = path_of(&made.json())?;
    let mut approved = made.json();
    approved["status"] = approval();
    let approval = client.put(&format!("{path}/approval"), &approved)?;
    Ok(Made {
        wanted,
        path: Ok(path),
        approval: Some(approval),
    })
}

/// Waits a while for what must not come.
fn outcomes(world: &World, made: Vec<Made<'_>>) -> Result<Vec<Verdict>> {
    signals::sleep(WATCHED)?;
    let verdict = |made: &Made<'_>| {
        let what = made.wanted.what;
        let (path, approval) = match (&made.path, &made.approval) {
            (Ok(path), Some(approval)) => (path, approval),
            (Err(refusal), _) => return Ok(Verdict::Blocked(format!("{what}: {refusal}"))),
            _ => anyhow::bail!("a request without an answer"),
        };
        let signed = certificate(world, path)?;
        world.admin.must_delete(path)?;
        Ok(match signed || approval.is_success() {
            true => Verdict::Succeeded(format!("{what}: signed {signed}, approval {}", approval.status)),
            false => Verdict::Blocked(format!("{what}: not signed; approving: {}", approval.summary())),
        })
    };
    made.iter().map(verdict).collect()
}

fn request(world: &World, wanted: &Wanted<'_>) -> Result<Value> {
    let pem = signing_request(wanted.name, wanted.groups, wanted.addresses)?;
    Ok(json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": format!("hostile-{}", world.number())},
        "spec": {"request": STANDARD.encode(pem), "signerName": wanted.signer, "usages": wanted.usages},
    }))
}

fn path_of(request: &Value) -> Result<String> {
    let name = request["metadata"]["name"]
        .as_str()
        .context("a request without a name")?;
    Ok(format!("{REQUESTS}/{name}"))
}

fn certificate(world: &World, path: &str) -> Result<bool> {
    let found = world.admin.get(path)?;
    ensure!(found.is_success(), "{path}: {}", found.summary());
    Ok(found.json()["status"]["certificate"].is_string())
}
