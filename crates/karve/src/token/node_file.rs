//! A file by which one machine joins as one node.
//!
//! It holds that node's own certificate and key, so that a stolen one gives no more than what the Node authorizer lets
//! this node do, and the cluster's authority, so that the node is sure whom it joins.

use anyhow::{Context, Result};
use api::Resource;
use api::kinds::{cluster_role, cluster_role_binding};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::{Client, Config, Patch, Source};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::component;
use crate::layout::Layout;
use crate::node::ClusterNetwork;
use crate::pki::{Authority, Identity};
use crate::run_file::JoinFacts;
use crate::say;

const PREFIX: &str = "karve1.";

/// Everything a machine needs to join.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Token {
    pub node: String,
    pub server: String,
    pub authority_pem: String,
    certificate_pem: String,
    key_pem: String,
    pub network: ClusterNetwork,
}

pub async fn create(layout: &Layout, node: &str, facts: JoinFacts) -> Result<()> {
    grant(&component::connect(&layout.kubeconfig())?)
        .await
        .context("failed to create the RBAC rules of nodes")?;
    let authority = Authority::open(layout)?;
    let identity = authority.client(&format!("system:node:{node}"), &["system:nodes"])?;
    let token = Token {
        node: node.to_owned(),
        server: facts.server,
        authority_pem: authority.certificate_pem,
        certificate_pem: identity.certificate_pem,
        key_pem: identity.key_pem,
        network: facts.network,
    };
    say::result(token.encode()?)?;
    Ok(())
}

impl Token {
    fn encode(&self) -> Result<String> {
        Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(serde_json::to_vec(self)?)))
    }

    pub fn decode(text: &str) -> Result<Token> {
        let encoded = text.trim().strip_prefix(PREFIX);
        let bytes = encoded.and_then(|encoded| URL_SAFE_NO_PAD.decode(encoded).ok());
        let token = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        token.context("not a token file of `karve token create`")
    }

    /// How the node reaches its server, with its own rights.
    pub fn config(&self) -> Config {
        let data = |pem: &str| Source::Data(pem.as_bytes().to_vec());
        Config {
            server: self.server.clone(),
            certificate_authority: Some(data(&self.authority_pem)),
            client_certificate: Some((data(&self.certificate_pem), data(&self.key_pem))),
            ..Config::default()
        }
    }

    pub fn identity(&self) -> Identity {
        Identity {
            certificate_pem: self.certificate_pem.clone(),
            key_pem: self.key_pem.clone(),
        }
    }
}

/// What a node's own proxy and name server need beyond what the Node authorizer allows: to read, and nothing more.
fn rights() -> [(&'static Resource, &'static str, Value); 2] {
    let to_nodes = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]);
    let reference =
        |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    [
        (
            &cluster_role::CLUSTER_ROLE,
            "karve:node",
            json!({"rules": [
                {"apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ]}),
        ),
        (
            &cluster_role_binding::CLUSTER_ROLE_BINDING,
            "karve:node",
            json!({"roleRef": reference("ClusterRole", "karve:node"), "subjects": to_nodes}),
        ),
    ]
}

/// Gives nodes these rights. `client` must be allowed to.
pub async fn grant(client: &Client) -> Result<()> {
    policy::grant(client).await?;
    for (resource, name, mut object) in rights() {
        let api = client.resource(resource);
        let change = object.clone();
        object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        object["kind"] = json!(resource.kind);
        object["metadata"] = json!({"name": name});
        match api.create::<IgnoredAny>(&object).await {
            Err(error) if error.is_already_exists() => {
                api.patch::<IgnoredAny>(name, Patch::merge(&change)).await?;
            }
            other => drop(other?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token {
            node: "node-2".to_owned(),
            server: "https://10.99.0.1:6443".to_owned(),
            authority_pem: "A".to_owned(),
            certificate_pem: "C".to_owned(),
            key_pem: "K".to_owned(),
            network: ClusterNetwork {
                cluster_cidr: "10.244.0.0/16".parse().unwrap(),
                service_cidr: "10.96.0.0/16".parse().unwrap(),
                name_servers: vec!["10.96.0.10".parse().unwrap()],
                builtin_dns: true,
                cluster_domain: "cluster.local".to_owned(),
            },
        }
    }

    #[test]
    fn a_token_is_one_line_and_comes_back_whole() {
        let text = token().encode().unwrap();
        assert!(!text.contains(['\n', ' ']));
        let back = Token::decode(&format!("{text}\n")).unwrap();
        assert_eq!(
            serde_json::to_value(back).unwrap(),
            serde_json::to_value(token()).unwrap()
        );
        assert!(Token::decode("abcdef.0123456789abcdef").is_err());
    }

    #[test]
    fn nodes_are_given_nothing_to_write() {
        for (_, name, object) in rights() {
            let rules = object["rules"].as_array().cloned().unwrap_or_default();
            let verbs = rules
                .iter()
                .flat_map(|rule| rule["verbs"].as_array().cloned().unwrap_or_default());
            assert!(
                verbs.into_iter().all(|verb| verb == "list" || verb == "watch"),
                "{name}"
            );
        }
    }
}
