//! The pod lifecycle event generator (PLEG): tells pod workers of changes in the runtime, by its events as they come and by
//! a relist now and then for what they missed.

use std::sync::Arc;

use cri::v1;
use futures_util::StreamExt;

use crate::inspect;
use crate::inventory::{self, States};
use crate::limits;
use crate::observed::Sandbox;
use crate::owners::RuntimeObject;
use crate::pods::Pods;
use crate::shared::Shared;
use crate::worker::Message;

/// Tells workers what happens in the runtime, for as long as it is not dropped.
pub async fn run(shared: Arc<Shared>, pods: Arc<Pods>) {
    let mut known = inventory::states(&*shared.runtime).await.unwrap_or_default();
    loop {
        let pause = match shared.runtime.events().await {
            Ok(mut events) => {
                relist(&shared, &pods, &mut known).await;
                let mut relist_due = tokio::time::interval(limits::RELIST_WITH_EVENTS);
                relist_due.tick().await;
                loop {
                    tokio::select! {
                        event = events.next() => match event {
                            Some(Ok(event)) => handle_event(&shared, &pods, event).await,
                            Some(Err(error)) => {
                                tracing::warn!(%error, "Container runtime event stream failed; reconnecting");
                                break;
                            }
                            None => break,
                        },
                        _ = relist_due.tick() => relist(&shared, &pods, &mut known).await,
                    }
                }
                limits::RELIST
            }
            Err(error) if error.is_unsupported() => {
                tracing::info!(period = ?limits::RELIST, "Container runtime does not support events; relisting containers periodically");
                relist_forever(&shared, &pods, &mut known).await;
                limits::RELIST
            }
            Err(error) => {
                tracing::warn!(%error, "Failed to subscribe to container runtime events; retrying");
                limits::RELIST
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn relist_forever(shared: &Arc<Shared>, pods: &Arc<Pods>, known: &mut States) {
    loop {
        tokio::time::sleep(limits::RELIST).await;
        if pods.count() > 0 {
            relist(shared, pods, known).await;
        }
    }
}

/// Lists everything and asks about what is not as it was.
async fn relist(shared: &Arc<Shared>, pods: &Arc<Pods>, known: &mut States) {
    let now = match inventory::states(&*shared.runtime).await {
        Ok(now) => now,
        Err(error) => {
            tracing::warn!(%error, "Failed to list the sandboxes and containers of the runtime; retrying");
            return;
        }
    };
    for (id, (uid, object, state)) in &now {
        if known.get(id).is_none_or(|(_, _, before)| before != state) {
            let message = Message::Inspect {
                id: id.clone(),
                object: object.clone(),
            };
            pods.send(uid, message).await;
        }
    }
    for (id, (uid, ..)) in known.iter().filter(|(id, _)| !now.contains_key(*id)) {
        pods.send(uid, Message::Vanished(id.clone())).await;
    }
    *known = now;
}

/// An event either says how the container is, or only that something happened to it.
async fn handle_event(shared: &Arc<Shared>, pods: &Arc<Pods>, event: v1::ContainerEventResponse) {
    let id = event.container_id;
    let Some(owner) = shared.owners.get(&id) else {
        return;
    };
    // Before the container: one whose sandbox has gone is not to be started again in it.
    let sandbox = event.pod_sandbox_status.as_ref().map(Sandbox::from_status);
    if let Some(sandbox) = sandbox.filter(|sandbox| !sandbox.ready) {
        pods.send(&owner.uid, Message::SandboxEnded(sandbox.id)).await;
    }
    let told = event.containers_statuses.iter().find(|status| status.id == id);
    let message = match (&owner.object, told) {
        (RuntimeObject::ContainerIn(sandbox), Some(status)) => Message::Container(inspect::instance(status, sandbox)),
        (object, _) => Message::Inspect {
            id,
            object: object.clone(),
        },
    };
    pods.send(&owner.uid, message).await;
}
