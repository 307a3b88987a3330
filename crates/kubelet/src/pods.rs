//! The workers of all pods: who they are, and how messages reach them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use client::Object;
use parking_lot::Mutex;

use crate::inventory::Inventory;
use crate::owners::RuntimeObject;
use crate::pod::Pod;
use crate::shared::Shared;
use crate::worker::{self, Handle, Input, Message, PodObject};

pub struct Pods {
    shared: Arc<Shared>,
    workers: Mutex<HashMap<String, Handle>>,
    /// What the runtime had when the kubelet started and no worker has claimed yet.
    unclaimed: Mutex<HashMap<String, Inventory>>,
}

impl Object for PodObject {
    fn decode(object: &Bytes) -> Result<PodObject, serde_json::Error> {
        Ok(PodObject {
            pod: Arc::new(Pod::decode(object)?),
            // A copy, so that one pod does not keep the whole list it came in.
            raw: Bytes::copy_from_slice(object),
        })
    }

    fn namespace(&self) -> &str {
        &self.pod.metadata.namespace
    }

    fn name(&self) -> &str {
        &self.pod.metadata.name
    }

    fn resource_version(&self) -> &str {
        &self.pod.metadata.resource_version
    }
}

impl Pods {
    pub fn new(shared: Arc<Shared>, found: HashMap<String, Inventory>) -> Pods {
        for (uid, inventory) in &found {
            for sandbox in &inventory.observed.sandboxes {
                shared.owners.put(&sandbox.id, uid, RuntimeObject::Sandbox);
            }
            for container in &inventory.observed.containers {
                let object = RuntimeObject::ContainerIn(container.sandbox_id.clone());
                shared.owners.put(&container.id, uid, object);
            }
        }
        Pods {
            shared,
            workers: Mutex::new(HashMap::new()),
            unclaimed: Mutex::new(found),
        }
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The API's word about a pod changed.
    pub fn changed(self: &Arc<Self>, old: Option<&Arc<PodObject>>, new: Option<&Arc<PodObject>>) {
        let uid = |object: &Arc<PodObject>| object.pod.metadata.uid.clone();
        // A namesake took its place.
        if let Some(old) = old.filter(|old| new.map(uid) != Some(uid(old))) {
            self.tell(old, true);
        }
        if let Some(new) = new {
            self.tell(new, false);
        }
    }

    /// Ends what belongs to pods that the API does not know. To be called when all pods have been listed.
    pub fn remove_orphans(self: &Arc<Self>) {
        let orphans = std::mem::take(&mut *self.unclaimed.lock());
        for (uid, inventory) in orphans {
            tracing::info!(
                pod = inventory.pod.key(),
                uid,
                "the API no longer has this pod; removing what is left of it"
            );
            let object = Arc::new(PodObject {
                pod: Arc::new(inventory.pod),
                raw: Bytes::new(),
            });
            let input = Input { object, gone: true };
            self.start(uid, input, inventory.observed);
        }
    }

    /// Hands a message to a pod's worker, if it has one.
    pub async fn send(&self, uid: &str, message: Message) {
        let mailbox = self.workers.lock().get(uid).map(|handle| handle.mailbox.clone());
        if let Some(mailbox) = mailbox {
            // A worker that has just ended needs no messages.
            let _ = mailbox.send(message).await;
        }
    }

    /// Like [`send`](Pods::send), from where nobody can wait; only for messages whose loss is made up for.
    pub fn nudge(&self, uid: &str) {
        if let Some(handle) = self.workers.lock().get(uid) {
            let _ = handle.mailbox.try_send(Message::ObjectsChanged);
        }
    }

    /// Whether the pod has a worker, or the runtime has something of it that a worker will claim.
    pub fn knows(&self, uid: &str) -> bool {
        self.workers.lock().contains_key(uid) || self.unclaimed.lock().contains_key(uid)
    }

    pub fn count(&self) -> usize {
        self.workers.lock().len()
    }

    fn tell(self: &Arc<Self>, object: &Arc<PodObject>, gone: bool) {
        let uid = object.pod.metadata.uid.clone();
        if !object.pod.has_plain_names() {
            // No API server lets one through. Names become paths, so that nothing of it is touched.
            return tracing::error!(
                uid,
                pod = object.pod.key(),
                "a pod whose names are no names of files is ignored"
            );
        }
        let input = Input {
            object: object.clone(),
            gone,
        };
        if let Some(handle) = self.workers.lock().get(&uid) {
            handle.input.send_replace(input);
            return;
        }
        if gone || (object.pod.is_terminal() && !self.unclaimed.lock().contains_key(&uid) && !object.pod.is_deleting())
        {
            return;
        }
        let found = self.unclaimed.lock().remove(&uid).unwrap_or_default();
        self.start(uid, input, found.observed);
    }

    fn start(self: &Arc<Self>, uid: String, input: Input, observed: crate::observed::Observed) {
        let (handle, work) = worker::spawn(self.shared.clone(), input, observed);
        self.workers.lock().insert(uid.clone(), handle);
        let pods = self.clone();
        tokio::spawn(async move {
            // A worker that panics must not leave its pod without one for ever; its handle goes, and the next change
            // of the pod starts another.
            if let Err(error) = tokio::spawn(work).await {
                tracing::error!(uid, %error, "Pod worker panicked; the pod's next change starts another");
            }
            pods.workers.lock().remove(&uid);
        });
    }
}
