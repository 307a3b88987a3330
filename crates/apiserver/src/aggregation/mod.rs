//! Groups and versions that other servers serve: APIServices say which, requests for them are passed on.
//!
//! `table` holds what is known of the other servers, and `local` registers what this server serves itself. Requests are
//! passed on, and the table is kept, by `aggregator`.

mod local;
mod table;

use std::sync::Arc;

use api::Value;
use api::kinds::config_map::CONFIG_MAP;
use arc_swap::ArcSwap;
use registry::Seed;
use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use serde_json::json;
use tokio::sync::Notify;

use crate::request::RequestInfo;

pub use local::{keep_customs, seeds};
pub use table::{Remote, Seen, Table};

/// How this server proves to other API servers that requests come from it.
pub struct FrontProxy {
    /// PEM of the certificate chain and of its key.
    pub identity: Option<(String, String)>,
    /// PEM of the authority that signed the certificate; other servers find it in a ConfigMap.
    pub authority_pem: String,
    /// The common names that this authority's certificates may have to be believed; any when there are none.
    pub allowed_names: Vec<String>,
    /// Shows the certificate to any server, for APIServices that ask to skip checks.
    pub unchecked_tls: Arc<ClientConfig>,
    /// Shows another certificate from time to time, in the place of `identity`.
    pub renewed: Option<Arc<dyn ResolvesClientCert>>,
}

impl FrontProxy {
    /// For servers that no other server has reason to believe.
    pub fn without_certificate(unchecked_tls: Arc<ClientConfig>) -> FrontProxy {
        FrontProxy {
            identity: None,
            authority_pem: String::new(),
            allowed_names: Vec::new(),
            unchecked_tls,
            renewed: None,
        }
    }
}

pub struct Aggregation {
    table: ArcSwap<Table>,
    front_proxy: FrontProxy,
    /// Rings when the custom resources have changed, which are registered like all else that is served.
    changed: Notify,
}

impl Aggregation {
    pub fn new(front_proxy: FrontProxy) -> Aggregation {
        Aggregation {
            table: ArcSwap::default(),
            front_proxy,
            changed: Notify::new(),
        }
    }

    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// The server that answers for a request, if it is not this one.
    pub fn remote_of(&self, info: &RequestInfo) -> Option<Arc<Remote>> {
        let mut parts = info.parts();
        match (parts.next()?, parts.next()?, parts.next()?) {
            ("apis", group, version) => self.table.load().find(group, version),
            _ => None,
        }
    }

    /// The same for what is named below `/openapi/v3/`.
    pub fn remote_of_document(&self, parts: &[&str]) -> Option<Arc<Remote>> {
        match parts {
            ["apis", group, version] => self.table.load().find(group, version),
            _ => None,
        }
    }

    /// How other API servers recognise requests that come from this one.
    pub fn authentication_config(&self, client_authority: &str) -> Seed {
        let list = |values: &[&str]| serde_json::to_string(values).unwrap_or_default();
        let allowed: Vec<&str> = self.front_proxy.allowed_names.iter().map(String::as_str).collect();
        let data = json!({
            "client-ca-file": client_authority,
            "requestheader-client-ca-file": self.front_proxy.authority_pem,
            "requestheader-allowed-names": list(&allowed),
            "requestheader-username-headers": list(&["X-Remote-User"]),
            "requestheader-uid-headers": list(&["X-Remote-Uid"]),
            "requestheader-group-headers": list(&["X-Remote-Group"]),
            "requestheader-extra-headers-prefix": list(&["X-Remote-Extra-"]),
        });
        let metadata = json!({ "name": "extension-apiserver-authentication", "namespace": "kube-system" });
        Seed::new(&CONFIG_MAP, json!({ "metadata": metadata, "data": data }))
    }

    pub fn customs_changed(&self) {
        self.changed.notify_one();
    }

    /// Done when the custom resources have changed since the last call.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Replaces the table by what these APIServices say.
    pub fn publish(&self, services: &[Value]) -> Arc<Table> {
        let table = Arc::new(Table::new(services, &self.table(), &self.front_proxy));
        self.table.store(table.clone());
        table
    }
}
