//! Whose certificates the clients of a component may show.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use anyhow::{Context, Result};
use api::Fields;
use api::kinds::config_map::CONFIG_MAP;
use client::Client;
use serde_json::Value;
use tokio_rustls::TlsAcceptor;

use crate::pki::Identity;
use crate::tls::{self, Clients};

/// Where an API server tells who signs the certificates of its clients.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const FIELD: &str = "client-ca-file";

/// How often that is looked at, and how soon again when it could not be read.
const LOOK_EVERY: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(5);

/// How connections are accepted now: with a certificate of our own, and clients' certificates by those who are trusted.
pub struct Trust {
    identity: Identity,
    acceptor: RwLock<TlsAcceptor>,
}

impl Trust {
    /// Trusts nobody yet: certificates are not asked for.
    pub fn new(identity: Identity) -> Result<Trust> {
        let acceptor = RwLock::new(acceptor(&identity, &Clients::Unknown)?);
        Ok(Trust { identity, acceptor })
    }

    /// Connections that are accepted from now on may come with certificates by these authorities, or without one.
    pub fn in_clients_of(&self, authorities_pem: &str) -> Result<()> {
        let acceptor = acceptor(&self.identity, &Clients::MayBeOf(authorities_pem))?;
        *self.acceptor.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = acceptor;
        Ok(())
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        let acceptor = self.acceptor.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        acceptor.clone()
    }

    /// Trusts whom the API server trusts, for as long as it is polled.
    pub async fn follow(&self, client: &Client) {
        let mut known = String::new();
        loop {
            let pause = match self.look(client, &mut known).await {
                Ok(()) => LOOK_EVERY,
                Err(error) => {
                    tracing::debug!(%error, "Failed to load the client CA; client certificates are not accepted");
                    RETRY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn look(&self, client: &Client, known: &mut String) -> Result<()> {
        let api = client.resource(&CONFIG_MAP).in_namespace(NAMESPACE);
        let told: Value = api.get(NAME).await?;
        let authorities = told["data"].text(FIELD);
        // An API server that knows no certificates tells nothing.
        if !authorities.is_empty() && authorities != known {
            self.in_clients_of(authorities)
                .with_context(|| format!("{FIELD} of {NAMESPACE}/{NAME}"))?;
            authorities.clone_into(known);
        }
        Ok(())
    }
}

fn acceptor(identity: &Identity, clients: &Clients<'_>) -> Result<TlsAcceptor> {
    Ok(TlsAcceptor::from(Arc::new(tls::server(identity, clients)?)))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use bytes::Bytes;
    use client::{Body, Transport, TransportError, body_from_bytes};
    use http::{Request, Response};
    use serde_json::json;

    use super::*;
    use crate::pki;

    /// An API server that has the config map with this authority.
    struct Told(String);

    #[async_trait]
    impl Transport for Told {
        async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
            let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
            assert_eq!(request.uri().path(), path);
            let body = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {FIELD: self.0}}).to_string();
            Ok(Response::new(body_from_bytes(body.into())))
        }
    }

    #[tokio::test]
    async fn who_is_trusted_is_told_by_the_api_server() {
        let trust = Trust::new(pki::self_signed("one", &["localhost"]).unwrap()).unwrap();
        let first = trust.acceptor();
        let is_first = || Arc::ptr_eq(trust.acceptor().config(), first.config());
        let mut known = String::new();
        let mut look = async |pem: &str| {
            let client = Client::new(Arc::new(Told(pem.to_owned())));
            trust.look(&client, &mut known).await.is_ok()
        };
        assert!(look("").await && is_first());
        assert!(!look("nothing of the kind").await && is_first());
        let authority = pki::self_signed("two", &["localhost"]).unwrap().certificate_pem;
        assert!(look(&authority).await && !is_first());
    }
}
