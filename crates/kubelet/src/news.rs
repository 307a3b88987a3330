//! News from the runtime: its events as they come, and a list now and then for what they did not tell.

use std::sync::Arc;

use cri::v1;
use futures_util::StreamExt;

use crate::inspect;
use crate::inventory::{self, States};
use crate::limits;
use crate::observed::Sandbox;
use crate::owners::Place;
use crate::pods::Pods;
use crate::shared::Shared;
use crate::worker::Message;

/// Tells workers what happens in the runtime, for as long as it is not dropped.
pub async fn follow(shared: Arc<Shared>, pods: Arc<Pods>) {
    let mut known = inventory::states(&*shared.runtime).await.unwrap_or_default();
    loop {
        let relist = match shared.runtime.events().await {
            Ok(mut events) => {
                compare(&shared, &pods, &mut known).await;
                let mut relist = tokio::time::interval(limits::RELIST_WITH_EVENTS);
                relist.tick().await;
                loop {
                    tokio::select! {
                        event = events.next() => match event {
                            Some(Ok(event)) => pass_on(&shared, &pods, event).await,
                            Some(Err(error)) => {
                                tracing::warn!(%error, "the runtime's events broke off");
                                break;
                            }
                            None => break,
                        },
                        _ = relist.tick() => compare(&shared, &pods, &mut known).await,
                    }
                }
                limits::RELIST
            }
            Err(error) if error.is_unsupported() => {
                tracing::info!("the runtime has no events; listing every {:?}", limits::RELIST);
                relist_forever(&shared, &pods, &mut known).await;
                limits::RELIST
            }
            Err(error) => {
                tracing::warn!(%error, "the runtime cannot be reached");
                limits::RELIST
            }
        };
        tokio::time::sleep(relist).await;
    }
}

async fn relist_forever(shared: &Arc<Shared>, pods: &Arc<Pods>, known: &mut States) {
    loop {
        tokio::time::sleep(limits::RELIST).await;
        if pods.count() > 0 {
            compare(shared, pods, known).await;
        }
    }
}

/// Lists everything and asks about what is not as it was.
async fn compare(shared: &Arc<Shared>, pods: &Arc<Pods>, known: &mut States) {
    let now = match inventory::states(&*shared.runtime).await {
        Ok(now) => now,
        Err(error) => {
            tracing::warn!(%error, "the runtime cannot be listed");
            return;
        }
    };
    for (id, (uid, place, state)) in &now {
        if known.get(id).is_none_or(|(_, _, before)| before != state) {
            let message = Message::Look {
                id: id.clone(),
                place: place.clone(),
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
async fn pass_on(shared: &Arc<Shared>, pods: &Arc<Pods>, event: v1::ContainerEventResponse) {
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
    let message = match (&owner.place, told) {
        (Place::ContainerIn(sandbox), Some(status)) => Message::Container(inspect::instance(status, sandbox)),
        (place, _) => Message::Look {
            id,
            place: place.clone(),
        },
    };
    pods.send(&owner.uid, message).await;
}
