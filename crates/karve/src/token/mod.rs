//! `karve token`: what lets another machine become a node of this cluster.
//!
//! A bootstrap token is short, for any node, and soon over: `bootstrap`. A file for one node, with its certificate in it,
//! is what `karve token create NODE` still prints: `node_file`.

mod bootstrap;
mod node_file;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;

use crate::component;
use crate::layout::Layout;
use crate::run_file::{JoinFacts, RunFile};

pub use bootstrap::{AuthorityHash, BootstrapToken};
pub use node_file::{Token, grant};

#[derive(Subcommand, Clone, Debug)]
pub enum TokenCommand {
    /// Create a bootstrap token and print it with the command that joins a machine
    ///
    /// Example: karve token create --ttl 1h
    Create {
        /// Print a file for this one node instead, which holds a certificate for a year; keep it as secret as a key
        #[arg(conflicts_with_all = ["ttl", "description", "output"])]
        node: Option<String>,
        /// Where nodes reach the server, such as a load balancer [default: the server's advertised address]
        #[arg(long)]
        server: Option<String>,
        /// How long the token can be used; 0 for ever
        #[arg(long, default_value = "24h", value_parser = component::duration)]
        ttl: Duration,
        /// What the token is for
        #[arg(long, default_value = "")]
        description: String,
        /// Output format: `json`
        #[arg(long, short, value_parser = ["json"])]
        output: Option<String>,
    },
    /// List bootstrap tokens, without their secret parts
    ///
    /// Example: karve token list
    List {
        /// Output format: `json`
        #[arg(long, short, value_parser = ["json"])]
        output: Option<String>,
    },
    /// Delete bootstrap tokens; they can no longer be used to join
    ///
    /// Example: karve token delete abcdef
    Delete {
        /// The tokens, or their first parts
        #[arg(required = true)]
        tokens: Vec<String>,
    },
}

pub async fn run(layout: &Layout, command: &TokenCommand) -> Result<()> {
    match command {
        TokenCommand::Create {
            node: Some(node),
            server,
            ..
        } => node_file::create(layout, node, facts(layout, server.as_deref())?).await,
        TokenCommand::Create {
            server,
            ttl,
            description,
            output,
            ..
        } => {
            let facts = facts(layout, server.as_deref())?;
            bootstrap::create(layout, &facts.server, *ttl, description, output.is_some()).await
        }
        TokenCommand::List { output } => bootstrap::list(layout, output.is_some()).await,
        TokenCommand::Delete { tokens } => bootstrap::delete(layout, tokens).await,
    }
}

/// What the running server knows about joining it.
fn facts(layout: &Layout, server: Option<&str>) -> Result<JoinFacts> {
    let run = RunFile::read(layout)?.filter(RunFile::is_running);
    let mut facts = run.and_then(|run| run.join).with_context(|| {
        format!(
            "the API server of cluster {} is not running on this machine; start it with `karve up`",
            layout.name
        )
    })?;
    if let Some(server) = server {
        server.clone_into(&mut facts.server);
    }
    check_reachable(&facts.server)?;
    Ok(facts)
}

fn check_reachable(server: &str) -> Result<()> {
    let host = server
        .trim_start_matches("https://")
        .rsplit_once(':')
        .map(|(host, _)| host);
    let local = host
        .and_then(|host| host.parse::<IpAddr>().ok())
        .is_some_and(|address| address.is_loopback());
    ensure!(
        !local,
        "other machines cannot reach {server}; start the API server with --advertise-address"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_loopback_gives_no_tokens() {
        assert!(check_reachable("https://10.99.0.1:6443").is_ok());
        assert!(check_reachable("https://127.0.0.1:6443").is_err());
    }
}
