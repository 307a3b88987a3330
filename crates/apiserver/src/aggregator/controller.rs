//! Keeps the table and the APIServices' conditions in step with what is stored and with what other servers answer.

use std::sync::Arc;
use std::time::Duration;

use admission::Lookup;
use api::kinds::api_service::API_SERVICE;
use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::service::SERVICE;
use api::{Error, Fields, Reason, Value, conditions};
use futures_util::future::join_all;
use registry::{Scope, Served, WriteOptions};
use serde_json::json;
use tracing::warn;

use super::forward;
use crate::ApiServer;
use crate::aggregation::{Remote, Seen, Table, keep_customs};

/// How often servers are asked that answered, and those that did not.
const AGAIN: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(1);

/// What an APIService's condition says.
struct Verdict {
    available: bool,
    reason: &'static str,
    message: String,
}

struct Controller {
    server: Arc<ApiServer>,
    served: Arc<Served>,
    options: WriteOptions,
}

/// Follows APIServices and what stands behind them, for ever.
pub async fn follow(server: Arc<ApiServer>) -> Result<impl Future<Output = ()> + Send, Error> {
    let served = server.registry.served(&API_SERVICE)?.clone();
    let from = server.registry.snapshot().revision();
    let follower = |resource| Ok::<_, Error>(server.registry.served(resource)?.follow(from));
    let mut own = follower(&API_SERVICE)?;
    let (mut services, mut slices) = (follower(&SERVICE)?, follower(&ENDPOINT_SLICE)?);
    let controller = Controller {
        server,
        served,
        options: WriteOptions::of_controller("kube-apiserver"),
    };
    controller.publish(&controller.stored());
    Ok(async move {
        loop {
            let pause = controller.sync().await;
            // Only remote ones hang on Services.
            let remote = !controller.server.aggregation.table().remotes.is_empty();
            tokio::select! {
                () = tokio::time::sleep(pause), if remote || pause < AGAIN => {}
                () = controller.server.aggregation.changed() => {}
                () = own.changed() => {}
                () = services.changed(), if remote => {}
                () = slices.changed(), if remote => {}
            }
        }
    })
}

impl Controller {
    /// Brings everything up to date; how long that will do.
    async fn sync(&self) -> Duration {
        let stored = self.stored();
        if let Err(error) = keep_customs(&self.server.registry, &stored, &self.options).await {
            warn!(%error, "Failed to register custom resources as APIServices; retrying");
        }
        let table = self.publish(&stored);
        // A server that does not answer must not hold up the others.
        let probes = table.remotes.iter().map(|remote| self.probe(remote));
        let verdicts = join_all(probes).await;
        let mut pause = AGAIN;
        for service in &stored {
            let name = service["metadata"].text("name");
            let at = table.remotes.iter().position(|remote| remote.name() == name);
            let verdict = match at {
                Some(at) => &verdicts[at],
                None => &Verdict::local(),
            };
            if !verdict.available {
                pause = SOON;
            }
            if let Err(error) = self.tell(service, verdict).await {
                warn!(%error, name, "Failed to write the status of an APIService");
                pause = SOON;
            }
        }
        pause
    }

    fn stored(&self) -> Vec<Value> {
        self.server.registry.lookup().list(&API_SERVICE, "")
    }

    fn publish(&self, stored: &[Value]) -> Arc<Table> {
        self.server.aggregation.publish(stored)
    }

    async fn probe(&self, remote: &Remote) -> Verdict {
        let verdict = match self.reachable(remote) {
            Err(verdict) => verdict,
            Ok(()) => match self.ask(remote).await {
                Ok(seen) => {
                    remote.saw(seen);
                    return Verdict::new(true, "Passed", "all checks passed".to_owned());
                }
                Err(message) => Verdict::new(false, "FailedDiscoveryCheck", message),
            },
        };
        // What it served is still told, as stale.
        let before = remote.seen();
        remote.saw(Seen {
            available: false,
            resources: before.resources.clone(),
            openapi: before.openapi.clone(),
        });
        verdict
    }

    /// Whether the Service in front of a server exists and leads anywhere.
    fn reachable(&self, remote: &Remote) -> Result<(), Verdict> {
        let lookup = self.server.registry.lookup();
        let (name, namespace) = (&remote.service, &remote.namespace);
        let refused = |reason, message| Err(Verdict::new(false, reason, message));
        let Some(service) = lookup.get(&SERVICE, namespace, name) else {
            return refused(
                "ServiceNotFound",
                format!("service/{name} in {namespace:?} is not present"),
            );
        };
        if service["spec"].text("type") == "ExternalName" {
            return Ok(());
        }
        let ports = service["spec"].list("ports").iter();
        let mut ports = ports.filter(|port| port.number("port") == i64::from(remote.port));
        let Some(port) = ports.next() else {
            let message = format!(
                "service/{name} in {namespace:?} is not listening on port {}",
                remote.port
            );
            return refused("ServicePortError", message);
        };
        let port = port.text("name");
        if admission::endpoints(&lookup, namespace, name, port).is_empty() {
            let message =
                format!("endpointslices for service/{name} in {namespace:?} have no addresses with port name {port:?}");
            return refused("MissingEndpoints", message);
        }
        Ok(())
    }

    /// What the server serves, asked of itself.
    async fn ask(&self, remote: &Remote) -> Result<Seen, String> {
        let path = format!("/apis/{}", remote.group_version());
        let resources = forward::ask(&self.server, remote, &forward::availability_user(), &path)
            .await
            .map_err(|error| {
                let url = format!("https://{}:{}{path}", remote.host(), remote.port);
                format!("failing or missing response from {url}: {error}")
            })?;
        // Servers without OpenAPI are served all the same.
        let index = forward::ask(&self.server, remote, &forward::document_user(), "/openapi/v3")
            .await
            .unwrap_or_default();
        let document = &index["paths"][format!("apis/{}", remote.group_version())];
        Ok(Seen {
            available: true,
            resources,
            openapi: document["serverRelativeURL"].as_str().map(str::to_owned),
        })
    }

    async fn tell(&self, service: &Value, verdict: &Verdict) -> Result<(), Error> {
        let condition = verdict.condition();
        if conditions::has_condition(service, &condition) {
            return Ok(());
        }
        let mut change = |current: &Value| {
            let mut changed = current.clone();
            let now = schema::time::format(schema::time::now());
            conditions::set_condition(&mut changed, condition.clone(), &now);
            Ok(changed)
        };
        let name = service["metadata"].text("name");
        let written = self
            .server
            .registry
            .update(&self.served, "", name, Scope::Status, &self.options, &mut change)
            .await;
        match written {
            Err(error) if error.reason != Reason::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Verdict {
    fn new(available: bool, reason: &'static str, message: String) -> Verdict {
        Verdict {
            available,
            reason,
            message,
        }
    }

    fn local() -> Verdict {
        Verdict::new(true, "Local", "Local APIServices are always available".to_owned())
    }

    fn condition(&self) -> Value {
        let status = if self.available { "True" } else { "False" };
        json!({ "type": "Available", "status": status, "reason": self.reason, "message": self.message })
    }
}
