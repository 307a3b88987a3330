//! Events: the kubelet hears of a container's end the moment it happens.

use cri::v1::{self, ContainerEventType};
use cri::{Error, EventStream};
use futures_util::StreamExt;
use tokio::sync::broadcast::error::RecvError;

use super::container::Container;
use super::{Embedded, now_ns};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Created,
    Started,
    Stopped,
    Deleted,
}

impl Embedded {
    pub(super) fn emit(&self, container: &Container, kind: EventKind) {
        if self.events.receiver_count() == 0 {
            return;
        }
        self.send_event(&container.record.id, &container.record.sandbox_id, kind);
    }

    /// Tells of a sandbox as of a container with the sandbox's id, as other runtimes do.
    pub(super) fn emit_sandbox(&self, sandbox_id: &str, kind: EventKind) {
        if self.events.receiver_count() > 0 {
            self.send_event(sandbox_id, sandbox_id, kind);
        }
    }

    fn send_event(&self, id: &str, sandbox_id: &str, kind: EventKind) {
        let sandbox = self.sandbox(sandbox_id).ok();
        let kind = match kind {
            EventKind::Created => ContainerEventType::ContainerCreatedEvent,
            EventKind::Started => ContainerEventType::ContainerStartedEvent,
            EventKind::Stopped => ContainerEventType::ContainerStoppedEvent,
            EventKind::Deleted => ContainerEventType::ContainerDeletedEvent,
        };
        let siblings = self.containers_of(sandbox_id);
        let event = v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            created_at: now_ns(),
            pod_sandbox_status: sandbox.map(|sandbox| self.sandbox_status(&sandbox)),
            containers_statuses: siblings.iter().map(|sibling| sibling.status()).collect(),
        };
        // Nobody listens any more; they will list when they come back.
        let _ = self.events.send(event);
    }

    pub(super) fn subscribe(&self) -> EventStream {
        let receiver = self.events.subscribe();
        futures_util::stream::unfold(Some(receiver), |receiver| async {
            let mut receiver = receiver?;
            match receiver.recv().await {
                Ok(event) => Some((Ok(event), Some(receiver))),
                Err(RecvError::Lagged(missed)) => {
                    let error = Error::internal(format!("{missed} events were missed: list and subscribe again"));
                    Some((Err(error), None))
                }
                Err(RecvError::Closed) => None,
            }
        })
        .boxed()
    }
}
