//! `karve join`: this machine as a node of a cluster whose server runs elsewhere.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use api::kinds::node::NODE;
use clap::Args;
use client::Client;
use network::Cidr;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::component::apiserver::default_address;
use crate::layout::{Layout, read, write_private};
use crate::node::{NodeArgs, NodeClients, NodeFootprint, NodeSetup};
use crate::pki::Authority;
use crate::run_file::RunFile;
use crate::token::Token;
use crate::{kubeconfig, stop, up};

/// Flags of `karve join`: the token, and those of the node.
#[derive(Args, Clone, Debug)]
pub struct JoinArgs {
    /// A file with what `karve token create` printed; - for standard input
    token: PathBuf,
    #[command(flatten)]
    node: NodeArgs,
}

pub async fn run(layout: &Layout, args: JoinArgs) -> Result<()> {
    let begun = Instant::now();
    RunFile::ensure_stopped(layout)?;
    let token = read_token(&args)?;
    layout.create()?;
    let client = Client::connect(token.config())?;
    let mut node = args.node;
    node.hostname_override = Some(token.node.clone());
    node.pod_cidr = match node.pod_cidr {
        Some(given) => Some(given),
        None => known_block(&client, &token.node).await?,
    };
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
    // The server's certificate is from an authority of this machine's own: the cluster's key never leaves its server.
    let name = &token.node;
    let serving = Authority::open(layout)?.server(&format!("system:node:{name}"), &[name], &[node_ip])?;
    let runtime = footprint.open_runtime().await?;
    let setup = NodeSetup {
        args: node,
        footprint,
        network: token.network.clone(),
        node_ip,
        serving,
        client_authority_pem: token.authority_pem.clone(),
    };
    let clients = NodeClients {
        kubelet: client.clone(),
        proxy: client.clone(),
        dns: client.clone(),
        admin: None,
    };
    let tasks = setup.start(&runtime, clients)?;
    let mut stop = stop::on_signal();
    tokio::select! {
        () = announce(&client, &token, begun) => {}
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

/// The block that the cluster gave this node before, so that its pods keep their network while karve restarts.
async fn known_block(client: &Client, name: &str) -> Result<Option<Cidr>> {
    match client.resource(&NODE).get::<Value>(name).await {
        Ok(node) => Ok(node["spec"]["podCIDR"].as_str().and_then(|text| text.parse().ok())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error).context("the server cannot be reached"),
    }
}

async fn announce(client: &Client, token: &Token, begun: Instant) {
    loop {
        if let Ok(node) = client.resource(&NODE).get::<Value>(&token.node).await
            && up::is_ready(&node)
        {
            eprintln!(
                "node {} is ready after {} ms at {}",
                token.node,
                begun.elapsed().as_millis(),
                token.server
            );
            return;
        }
        tokio::time::sleep(up::POLL).await;
    }
}
