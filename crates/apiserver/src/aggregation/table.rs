//! What is known of other API servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Fields, Value};
use base64::Engine;
use client::webhook_tls;
use parking_lot::Mutex;
use rustls::ClientConfig;

use super::FrontProxy;

/// One group and version of another server.
pub struct Remote {
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub service: String,
    pub port: u16,
    priorities: (i64, i64),
    /// What it was made from, so that it is made anew only when that changes.
    spec: Value,
    pub tls: Result<Arc<ClientConfig>, String>,
    /// Whether its certificate shows who it is.
    pub is_verified: bool,
    seen: Mutex<Arc<Seen>>,
}

/// What the other server last said of itself.
#[derive(Default)]
pub struct Seen {
    pub available: bool,
    /// Its APIResourceList.
    pub resources: Value,
    /// Where its OpenAPI document is, as the other server's index says.
    pub openapi: Option<String>,
}

/// All of them, the most important group first and its most important version first.
#[derive(Default)]
pub struct Table {
    pub remotes: Vec<Arc<Remote>>,
}

impl Remote {
    pub fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }

    pub fn group_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The name that the other server's certificate must have.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    pub fn seen(&self) -> Arc<Seen> {
        self.seen.lock().clone()
    }

    pub fn saw(&self, seen: Seen) {
        *self.seen.lock() = Arc::new(seen);
    }

    fn new(spec: &Value, front_proxy: &FrontProxy) -> Remote {
        let service = &spec["service"];
        Remote {
            group: spec.text("group").to_owned(),
            version: spec.text("version").to_owned(),
            namespace: service.text("namespace").to_owned(),
            service: service.text("name").to_owned(),
            port: u16::try_from(service.number("port")).unwrap_or(443),
            priorities: (spec.number("groupPriorityMinimum"), spec.number("versionPriority")),
            tls: tls(spec, front_proxy),
            is_verified: !spec.flag("insecureSkipTLSVerify"),
            spec: spec.clone(),
            seen: Mutex::default(),
        }
    }
}

fn tls(spec: &Value, front_proxy: &FrontProxy) -> Result<Arc<ClientConfig>, String> {
    if spec.flag("insecureSkipTLSVerify") {
        return Ok(front_proxy.unchecked_tls.clone());
    }
    let bundle = match spec.text("caBundle") {
        "" => None,
        text => Some(
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|error| format!("caBundle is not base64: {error}"))?,
        ),
    };
    let identity = front_proxy.identity.as_ref();
    let identity = identity.map(|(chain, key)| (chain.as_bytes(), key.as_bytes()));
    let mut tls = webhook_tls(bundle.as_deref(), identity)?;
    if let Some(renewed) = &front_proxy.renewed {
        Arc::make_mut(&mut tls).client_auth_cert_resolver = renewed.clone();
    }
    Ok(tls)
}

impl Table {
    /// Of all APIServices; what is known of servers that stay the same is kept.
    pub fn new(services: &[Value], before: &Table, front_proxy: &FrontProxy) -> Table {
        let specs = services.iter().map(|service| &service["spec"]);
        let mut remotes: Vec<Arc<Remote>> = specs
            .filter(|spec| spec.has("service"))
            .map(|spec| {
                let known = before.find(spec.text("group"), spec.text("version"));
                match known {
                    Some(known) if known.spec == *spec => known,
                    known => {
                        let remote = Remote::new(spec, front_proxy);
                        // Until it is asked again it is taken for what it was.
                        known.inspect(|known| *remote.seen.lock() = known.seen());
                        Arc::new(remote)
                    }
                }
            })
            .collect();
        // Within a group the highest of its versions' group priorities counts.
        let mut groups: BTreeMap<String, i64> = BTreeMap::new();
        for remote in &remotes {
            let priority = groups.entry(remote.group.clone()).or_default();
            *priority = remote.priorities.0.max(*priority);
        }
        let group_priority = |remote: &Remote| groups.get(&remote.group).copied().unwrap_or_default();
        remotes.sort_by(|a, b| {
            group_priority(b)
                .cmp(&group_priority(a))
                .then_with(|| a.group.cmp(&b.group))
                .then_with(|| b.priorities.1.cmp(&a.priorities.1))
                .then_with(|| a.version.cmp(&b.version))
        });
        Table { remotes }
    }

    pub fn find(&self, group: &str, version: &str) -> Option<Arc<Remote>> {
        let mut remotes = self.remotes.iter();
        remotes
            .find(|remote| remote.group == group && remote.version == version)
            .cloned()
    }
}
