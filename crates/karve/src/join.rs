//! `karve join`: this machine as a node of a cluster whose server runs elsewhere.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::kinds::node::NODE;
use clap::Args;
use client::Client;
use client::when::Moment;
use kubelet::ServingCertificate;
use network::Cidr;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::component::apiserver::default_address;
use crate::layout::{Layout, read, write_private};
use crate::node::{NodeArgs, NodeClients, NodeFootprint, NodeSetup, Policies};
use crate::run_file::RunFile;
use crate::token::Token;
use crate::{component, kubeconfig, readiness, say, stop};

/// How often a server that cannot be reached is asked again, and how often that is told.
const ASK_EVERY: Duration = Duration::from_millis(500);
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Flags of `karve join`: the token, and those of the node.
#[derive(Args, Clone, Debug)]
pub struct JoinArgs {
    /// A file with what `karve token create` printed; - for standard input
    token: PathBuf,
    #[command(flatten)]
    node: NodeArgs,
}

pub async fn run(layout: &Layout, args: JoinArgs) -> Result<()> {
    let (begun, since) = (Instant::now(), Moment::now());
    RunFile::ensure_stopped(layout).await?;
    let token = read_token(&args)?;
    layout.create()?;
    let client = Client::connect(token.config())?;
    let mut node = args.node;
    node.hostname_override = Some(token.node.clone());
    ensure!(
        node.pod_cidr.is_none(),
        "--pod-cidr is for `karve up`: the cluster gives nodes that join their block; leave it out"
    );
    node.pod_cidr = known_block(&client, &token.node, &token.server).await?;
    let node_ip = node.node_ip.unwrap_or_else(default_address);
    let footprint = NodeFootprint::new(layout, &node, &token.network);
    RunFile::new(&token.server, Some(footprint.clone())).write(layout)?;
    write_private(
        &layout.kubeconfig(),
        kubeconfig::render(
            &layout.name,
            &token.server,
            &token.authority_pem,
            &token.node,
            &token.identity(),
        )
        .as_bytes(),
    )?;
    // The cluster's key never leaves its server, so the certificate that the kubelet serves with is asked for there.
    let serving = ServingCertificate::Requested {
        directory: layout.pki(),
        authority: Some(token.authority_pem.clone().into_bytes()),
    };
    let runtime = footprint.open_runtime(Policies::Enforced).await?;
    let setup = NodeSetup {
        args: node,
        footprint,
        network: token.network.clone(),
        node_ip,
        api_servers: component::server_address(&token.server).into_iter().collect(),
        serving,
        chooses_block: false,
        client_authority_pem: token.authority_pem.clone(),
    };
    let clients = NodeClients {
        kubelet: client.clone(),
        proxy: client.clone(),
        dns: client.clone(),
        policy: client.clone(),
        admin: None,
    };
    let tasks = setup.start(&runtime, clients)?;
    let mut stop = stop::on_signal();
    tokio::select! {
        () = announce(&client, &token, begun, since) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    // The sender of a closed channel is gone with its process.
    let _ = stop.wait_for(|stop| *stop).await;
    tasks.iter().for_each(JoinHandle::abort);
    Ok(())
}

fn read_token(args: &JoinArgs) -> Result<Token> {
    let text = match args.token.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()).context("cannot read the token")?,
        false => read(&args.token)?,
    };
    let token = Token::decode(&text)?;
    if let Some(wanted) = &args.node.hostname_override {
        ensure!(
            *wanted == token.node,
            "the token is for node {}, not for {wanted}",
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
                    say::remark(format_args!("waiting for the server at {server}: {error}"));
                    told = Some(Instant::now());
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
            Err(error) => return Err(error).with_context(|| format!("the server at {server} refuses")),
        }
    }
}

async fn announce(client: &Client, token: &Token, begun: Instant, since: Moment) {
    loop {
        if readiness::is_node_ready(client, &token.node, since).await {
            say::remark(format_args!(
                "node {} is ready after {} ms at {}",
                token.node,
                begun.elapsed().as_millis(),
                token.server
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
        assert_eq!(error.to_string(), "the server at https://10.0.0.1:6443 refuses");
    }
}
