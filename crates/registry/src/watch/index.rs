//! Whom an event may concern: watchers by the object, the namespace or the field's value that they asked for.
//!
//! A listener for everything is only woken; it reads the ring on from where it was. Others are given the revisions
//! that concern them, so that they need not look at what lies between.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use api::IndexedField;
use parking_lot::Mutex;
use store::Revision;
use tokio::sync::Notify;

use super::change::Change;
use super::ring::CAPACITY;

/// What a watcher may hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    Everything,
    /// One object by its key, or a namespace by its keys' beginning with a trailing slash.
    KeyPrefix(Box<str>),
    /// Objects whose indexed field has this value.
    Field(Box<str>),
}

pub struct Index {
    field: Option<&'static IndexedField>,
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    everything: Vec<Arc<Listener>>,
    key_prefixes: HashMap<Box<str>, Vec<Arc<Listener>>>,
    fields: HashMap<Box<str>, Vec<Arc<Listener>>>,
}

/// What one watcher has been told and has not yet read.
#[derive(Default)]
pub struct Listener {
    inbox: Mutex<Inbox>,
    pub changed: Notify,
}

#[derive(Default)]
pub struct Inbox {
    /// In order, each once.
    pub revisions: Vec<Revision>,
    /// More than a ring holds has come since the watcher last looked.
    pub missed: bool,
}

impl Listener {
    pub fn take(&self) -> Inbox {
        mem::take(&mut *self.inbox.lock())
    }

    fn notify(&self, revision: Revision) {
        let mut inbox = self.inbox.lock();
        if inbox.missed || inbox.revisions.last() == Some(&revision) {
            return;
        }
        if inbox.revisions.len() == CAPACITY {
            *inbox = Inbox {
                revisions: Vec::new(),
                missed: true,
            };
        } else {
            inbox.revisions.push(revision);
        }
        drop(inbox);
        self.changed.notify_waiters();
    }

    fn lose(&self) {
        self.inbox.lock().missed = true;
        self.changed.notify_waiters();
    }
}

impl Index {
    pub fn new(field: Option<&'static IndexedField>) -> Index {
        Index {
            field,
            listeners: Mutex::default(),
        }
    }

    /// The indexed field, if there is one.
    pub fn field(&self) -> Option<&'static str> {
        self.field.map(|field| field.path)
    }

    pub fn add(&self, topic: &Topic) -> Arc<Listener> {
        let listener = Arc::<Listener>::default();
        let mut listeners = self.listeners.lock();
        match topic {
            Topic::Everything => listeners.everything.push(listener.clone()),
            Topic::KeyPrefix(prefix) => listeners
                .key_prefixes
                .entry(prefix.clone())
                .or_default()
                .push(listener.clone()),
            Topic::Field(value) => listeners
                .fields
                .entry(value.clone())
                .or_default()
                .push(listener.clone()),
        }
        listener
    }

    pub fn remove(&self, topic: &Topic, listener: &Arc<Listener>) {
        let mut listeners = self.listeners.lock();
        match topic {
            Topic::Everything => listeners.everything.retain(|other| !Arc::ptr_eq(other, listener)),
            Topic::KeyPrefix(prefix) => remove(&mut listeners.key_prefixes, prefix, listener),
            Topic::Field(value) => remove(&mut listeners.fields, value, listener),
        }
    }

    /// Tells everyone of the changes that may concern them.
    pub fn notify(&self, changes: &[Arc<Change>]) {
        let listeners = self.listeners.lock();
        for change in changes {
            listeners.notify_key_prefixes(change);
            if let (Some(field), false) = (self.field, listeners.fields.is_empty()) {
                listeners.notify_fields(change, field);
            }
        }
        for listener in &listeners.everything {
            listener.changed.notify_waiters();
        }
    }

    /// Tells everyone that they have missed something.
    pub fn lose_all(&self) {
        let listeners = self.listeners.lock();
        let narrow = listeners
            .key_prefixes
            .values()
            .chain(listeners.fields.values())
            .flatten();
        narrow.chain(&listeners.everything).for_each(|listener| listener.lose());
    }
}

impl Listeners {
    fn notify_key_prefixes(&self, change: &Change) {
        if self.key_prefixes.is_empty() {
            return;
        }
        let key = &*change.event.key;
        let namespace = key.rfind('/').map_or("", |slash| &key[..=slash]);
        for prefix in [key, namespace] {
            let interested = self.key_prefixes.get(prefix).into_iter().flatten();
            interested.for_each(|listener| listener.notify(change.event.revision));
        }
    }

    /// Both who lose the object and who gain it are told.
    fn notify_fields(&self, change: &Change, field: &IndexedField) {
        let event = &change.event;
        let before = event.previous.as_ref().map(|entry| (field.value)(&entry.value));
        let after = event.current.as_ref().map(|entry| (field.value)(&entry.value));
        // Telling twice of one revision does no harm.
        for value in before.into_iter().chain(after) {
            let interested = self.fields.get(&*value).into_iter().flatten();
            interested.for_each(|listener| listener.notify(change.event.revision));
        }
    }
}

fn remove(of: &mut HashMap<Box<str>, Vec<Arc<Listener>>>, value: &str, listener: &Arc<Listener>) {
    if let Some(listeners) = of.get_mut(value) {
        listeners.retain(|other| !Arc::ptr_eq(other, listener));
        if listeners.is_empty() {
            of.remove(value);
        }
    }
}
