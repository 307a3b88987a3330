//! What a machine keeps of the cluster that it joined by a bootstrap token, so that it needs no token again.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use api::Value;
use api::kinds::node::NODE;
use client::{Client, Config, Source};
use kubelet::ClientCertificate;
use serde::{Deserialize, Serialize};

use super::discovery::discover;
use crate::cluster_info;
use crate::layout::{Layout, write_private};
use crate::node::ClusterNetwork;
use crate::token::{AuthorityHash, BootstrapToken};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Membership {
    pub node: String,
    pub server: String,
    pub authority_pem: String,
    pub network: ClusterNetwork,
}

/// How a machine becomes a member.
pub struct Invitation<'a> {
    pub server: &'a str,
    pub token: &'a BootstrapToken,
    pub hash: &'a AuthorityHash,
}

impl Membership {
    fn path(layout: &Layout) -> PathBuf {
        layout.root.join("join.json")
    }

    pub fn read(layout: &Layout) -> Result<Option<Membership>> {
        let path = Membership::path(layout);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let parsed = serde_json::from_slice(&bytes);
                parsed
                    .map(Some)
                    .with_context(|| format!("failed to parse {}", path.display()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("failed to read {}", path.display())),
        }
    }

    pub fn certificate(&self, layout: &Layout) -> ClientCertificate {
        certificate(layout, &self.node)
    }

    /// How this node reaches its server. The certificate is read from its file whenever a connection is opened.
    pub fn config(&self, layout: &Layout) -> Config {
        let path = self.certificate(layout).path();
        Config {
            server: self.server.clone(),
            certificate_authority: Some(Source::Data(self.authority_pem.clone().into_bytes())),
            client_certificate: Some((Source::File(path.clone()), Source::File(path))),
            ..Config::default()
        }
    }
}

impl Invitation<'_> {
    /// Finds out who the server is, asks it for this node's certificate, and keeps what it says.
    pub async fn accept(&self, layout: &Layout, node: &str) -> Result<Membership> {
        let authority_pem = discover(self.server, self.token, self.hash).await?;
        let client = Client::connect(Config {
            server: self.server.to_owned(),
            certificate_authority: Some(Source::Data(authority_pem.clone().into_bytes())),
            token: Some(client::Token::Text(self.token.text())),
            ..Config::default()
        })?;
        ensure_free(&client, node).await.with_context(|| self.refused())?;
        let network = cluster_info::read_network(&client)
            .await
            .with_context(|| self.refused())?;
        certificate(layout, node)
            .obtain(&client)
            .await
            .with_context(|| self.refused())?;
        let membership = Membership {
            node: node.to_owned(),
            server: self.server.to_owned(),
            authority_pem,
            network,
        };
        write_private(&Membership::path(layout), &serde_json::to_vec_pretty(&membership)?)?;
        Ok(membership)
    }

    fn refused(&self) -> String {
        format!(
            "the API server at {} rejected token {} of this machine",
            self.server, self.token.id
        )
    }
}

fn certificate(layout: &Layout, node: &str) -> ClientCertificate {
    ClientCertificate {
        node_name: node.to_owned(),
        directory: layout.pki(),
    }
}

/// Two machines of one name would fight over the same pods.
async fn ensure_free(client: &Client, node: &str) -> Result<()> {
    match client.resource(&NODE).get::<Value>(node).await {
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => bail!(
            "a Node with name {node:?} already exists in the cluster; choose another name with --hostname-override, or \
             delete the Node, which ends the access of the machine that has the name now: kubectl delete node {node}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_has_no_secret_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout {
            name: "test".to_owned(),
            root: directory.path().to_owned(),
        };
        assert!(Membership::read(&layout).unwrap().is_none());
        let membership = Membership {
            node: "node-2".to_owned(),
            server: "https://10.99.0.1:6443".to_owned(),
            authority_pem: "PEM".to_owned(),
            network: ClusterNetwork {
                cluster_cidr: "10.244.0.0/16".parse().unwrap(),
                service_cidr: "10.96.0.0/16".parse().unwrap(),
                name_servers: Vec::new(),
                builtin_dns: false,
                cluster_domain: "cluster.local".to_owned(),
            },
        };
        write_private(&Membership::path(&layout), &serde_json::to_vec(&membership).unwrap()).unwrap();
        let back = Membership::read(&layout).unwrap().unwrap();
        assert_eq!(back.node, "node-2");
        let path = layout.pki().join("kubelet-client-current.pem");
        let config = back.config(&layout);
        assert_eq!(
            config.client_certificate,
            Some((Source::File(path.clone()), Source::File(path)))
        );
        assert!(config.token.is_none());
        std::fs::write(Membership::path(&layout), "{").unwrap();
        assert!(Membership::read(&layout).is_err());
    }
}
