//! `karve join`: this machine as a node of a cluster whose server runs elsewhere.

mod discovery;
mod membership;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::kinds::node::NODE;
use clap::Args;
use client::when::Moment;
use client::{Client, Config};
use kubelet::{ClientCertificate, ServingCertificate};
use network::Cidr;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::component::apiserver::default_address;
use crate::layout::{Layout, read, write_private};
use crate::node::{ClusterNetwork, NodeArgs, NodeClients, NodeFootprint, NodeSetup, Policies};
use crate::run_file::RunFile;
use crate::token::{AuthorityHash, BootstrapToken, Token};
use crate::{component, kubeconfig, readiness, renewal, say, stop};
use membership::{Invitation, Membership};

/// How often a server that cannot be reached is asked again, and how often that is told.
const ASK_EVERY: Duration = Duration::from_millis(500);
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Flags of `karve join`: which cluster, and those of the node.
#[derive(Args, Clone, Debug)]
pub struct JoinArgs {
    /// URL of the API server, with --token; or a file with the output of `karve token create NODE`, - for standard
    /// input. Omit it on a machine that has already joined
    target: Option<String>,
    /// Bootstrap token printed by `karve token create`
    #[arg(long, requires_all = ["target", "ca_hash"], env = "KARVE_JOIN_TOKEN", hide_env_values = true)]
    token: Option<BootstrapToken>,
    /// The hash of the cluster's authority, as `karve token create` prints it
    #[arg(
        long,
        alias = "discovery-token-ca-cert-hash",
        requires = "token",
        value_name = "sha256:…"
    )]
    ca_hash: Option<AuthorityHash>,
    #[command(flatten)]
    node: NodeArgs,
}

/// This machine as a node, however it came to be one.
struct Member {
    node: String,
    server: String,
    authority_pem: String,
    network: ClusterNetwork,
    config: Config,
    kubeconfig: String,
    /// The certificate that is renewed while the node runs.
    certificate: Option<ClientCertificate>,
}

pub async fn run(layout: &Layout, args: JoinArgs) -> Result<()> {
    let (begun, since) = (Instant::now(), Moment::now());
    RunFile::ensure_stopped(layout).await?;
    ensure!(
        args.node.pod_cidr.is_none(),
        "--pod-cidr only applies to `karve up`: the cluster assigns a block to nodes that join; remove the flag"
    );
    layout.create()?;
    let member = member(layout, &args).await?;
    let client = Client::connect(member.config.clone())?;
    let mut node = args.node;
    node.hostname_override = Some(member.node.clone());
    node.pod_cidr = known_block(&client, &member.node, &member.server).await?;
    let node_ip = node.node_ip.unwrap_or_else(default_address);
    let footprint = NodeFootprint::new(layout, &node, &member.network);
    RunFile::new(&member.server, Some(footprint.clone())).write(layout)?;
    write_private(&layout.kubeconfig(), member.kubeconfig.as_bytes())?;
    // The cluster's key never leaves its server, so the certificate that the kubelet serves with is asked for there.
    let serving = ServingCertificate::Requested {
        directory: layout.pki(),
        authority: Some(member.authority_pem.clone().into_bytes()),
    };
    let runtime = footprint.open_runtime(Policies::Enforced).await?;
    let setup = NodeSetup {
        args: node,
        footprint,
        network: member.network.clone(),
        node_ip,
        api_servers: component::server_address(&member.server).into_iter().collect(),
        serving,
        chooses_block: false,
        client_authority_pem: member.authority_pem.clone(),
    };
    let clients = NodeClients {
        kubelet: client.clone(),
        proxy: client.clone(),
        dns: client.clone(),
        policy: client.clone(),
        admin: None,
    };
    let mut tasks = setup.start(&runtime, clients)?;
    if let Some(certificate) = member.certificate.clone() {
        tasks.push(tokio::spawn(certificate.clone().keep(client.clone())));
        tasks.push(tokio::spawn(renew_on_request(certificate, client.clone())));
    }
    let mut stop = stop::on_signal();
    tokio::select! {
        () = announce(&client, &member, begun, since) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    // The sender of a closed channel is gone with its process.
    let _ = stop.wait_for(|stop| *stop).await;
    tasks.iter().for_each(JoinHandle::abort);
    Ok(())
}

/// Asks for another certificate whenever `karve certs rotate` wants it, for ever.
async fn renew_on_request(certificate: ClientCertificate, client: Client) {
    let mut asked = renewal::hangup();
    loop {
        renewal::recv(&mut asked).await;
        if let Err(error) = certificate.obtain(&client).await {
            tracing::warn!(%error, "Failed to renew the node's client certificate");
        }
    }
}

/// Who this machine is to the cluster: by what it kept, by a bootstrap token, or by a file.
async fn member(layout: &Layout, args: &JoinArgs) -> Result<Member> {
    let kept = Membership::read(layout)?;
    match (&args.target, &args.token, &args.ca_hash) {
        (Some(server), Some(token), Some(hash)) => {
            ensure!(
                server.starts_with("https://"),
                "{server:?} is not the URL of an API server, such as https://10.0.0.1:6443"
            );
            let node = args.node.node_name();
            let invitation = Invitation { server, token, hash };
            let membership = match kept {
                Some(kept) if kept.server == *server && kept.node == node && is_accepted(layout, &kept).await => kept,
                _ => invitation.accept(layout, &node).await?,
            };
            Ok(Member::requested(layout, membership))
        }
        (Some(url), ..) if url.starts_with("https://") => bail!(
            "joining {url} requires a token and the CA hash; run `karve token create` on the server, then: \
             karve join {url} --token TOKEN --ca-hash HASH"
        ),
        (Some(file), ..) => Member::of_file(layout, &read_token(Path::new(file), &args.node)?),
        (None, ..) => {
            let kept = kept.with_context(|| {
                format!(
                    "this machine has not joined a cluster as {}; see `karve join --help`",
                    layout.name
                )
            })?;
            ensure!(
                kept.certificate(layout).is_usable(),
                "the certificate of node {} has expired or does not exist; join again with a new token: karve join {} --token TOKEN --ca-hash HASH",
                kept.node,
                kept.server
            );
            Ok(Member::requested(layout, kept))
        }
    }
}

/// Whether the server still takes what was kept. One that cannot be reached is waited for later; only its word that it
/// does not know this node any more counts.
async fn is_accepted(layout: &Layout, kept: &Membership) -> bool {
    if !kept.certificate(layout).is_usable() {
        return false;
    }
    let Ok(client) = Client::connect(kept.config(layout)) else {
        return false;
    };
    match client.resource(&NODE).get::<Value>(&kept.node).await {
        Err(error) => !error.is_unauthorized(),
        Ok(_) => true,
    }
}

impl Member {
    fn requested(layout: &Layout, membership: Membership) -> Member {
        let certificate = membership.certificate(layout);
        let config = membership.config(layout);
        Member {
            kubeconfig: kubeconfig::render_with_file(
                &layout.name,
                &membership.server,
                &membership.authority_pem,
                &membership.node,
                &certificate.path(),
            ),
            node: membership.node,
            server: membership.server,
            authority_pem: membership.authority_pem,
            network: membership.network,
            config,
            certificate: Some(certificate),
        }
    }

    fn of_file(layout: &Layout, token: &Token) -> Result<Member> {
        Ok(Member {
            kubeconfig: kubeconfig::render(
                &layout.name,
                &token.server,
                &token.authority_pem,
                &token.node,
                &token.identity(),
            ),
            node: token.node.clone(),
            server: token.server.clone(),
            authority_pem: token.authority_pem.clone(),
            network: token.network.clone(),
            config: token.config(),
            certificate: None,
        })
    }
}

fn read_token(path: &Path, node: &NodeArgs) -> Result<Token> {
    let text = match path.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()).context("failed to read the token")?,
        false => read(path)?,
    };
    let token = Token::decode(&text)?;
    if let Some(wanted) = &node.hostname_override {
        ensure!(
            *wanted == token.node,
            "the token is for node {}, not for node {wanted}",
            token.node
        );
    }
    Ok(token)
}

/// The block that the cluster gave this node before, so that its pods keep their network while karve restarts. A machine
/// may start before its server does, or before it has a network: that is waited for.
async fn known_block(client: &Client, name: &str, server: &str) -> Result<Option<Cidr>> {
    let mut told: Option<Instant> = None;
    loop {
        match client.resource(&NODE).get::<Value>(name).await {
            Ok(node) => return Ok(node["spec"]["podCIDR"].as_str().and_then(|text| text.parse().ok())),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) if error.is_temporary() => {
                if told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
                    say::remark(format_args!("waiting for the API server at {server}: {error}"));
                    told = Some(Instant::now());
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
            Err(error) => return Err(error).with_context(|| format!("the API server at {server} rejected the node")),
        }
    }
}

async fn announce(client: &Client, member: &Member, begun: Instant, since: Moment) {
    loop {
        if readiness::is_node_ready(client, &member.node, since).await {
            say::remark(format_args!(
                "node {} is ready after {} ms at {}",
                member.node,
                begun.elapsed().as_millis(),
                member.server
            ));
            return;
        }
        tokio::time::sleep(readiness::POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use bytes::Bytes;
    use client::{Body, Transport, TransportError, body_from_bytes};
    use http::{Request, Response, StatusCode};
    use serde_json::json;

    use super::*;

    /// A server that cannot be reached at first.
    struct Late {
        missed: AtomicUsize,
        code: StatusCode,
        answer: Value,
    }

    #[async_trait]
    impl Transport for Late {
        async fn send(&self, _: Request<Bytes>) -> Result<Response<Body>, TransportError> {
            if self.missed.fetch_add(1, Ordering::Relaxed) < 3 {
                let source = std::io::ErrorKind::HostUnreachable.into();
                return Err(TransportError::Connect {
                    address: "10.0.0.1:6443".to_owned(),
                    source,
                });
            }
            let mut response = Response::new(body_from_bytes(self.answer.to_string().into()));
            *response.status_mut() = self.code;
            Ok(response)
        }
    }
    async fn block(code: u16, answer: Value) -> Result<Option<Cidr>> {
        let server = Late {
            missed: AtomicUsize::new(0),
            code: StatusCode::from_u16(code)?,
            answer,
        };
        known_block(&Client::new(Arc::new(server)), "node-2", "https://10.0.0.1:6443").await
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_yet_is_waited_for() {
        let node = json!({"kind": "Node", "apiVersion": "v1", "spec": {"podCIDR": "10.244.1.0/24"}});
        let known = block(200, node).await.unwrap();
        assert_eq!(known.unwrap().to_string(), "10.244.1.0/24");
    }

    #[tokio::test]
    async fn a_server_that_refuses_is_not_asked_again() {
        let refusal =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401});
        let error = block(401, refusal).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the API server at https://10.0.0.1:6443 rejected the node"
        );
    }
}
