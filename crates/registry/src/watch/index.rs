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
    Place(Box<str>),
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
    places: HashMap<Box<str>, Vec<Arc<Listener>>>,
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

    fn tell(&self, revision: Revision) {
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
            Topic::Place(place) => listeners
                .places
                .entry(place.clone())
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
            Topic::Place(place) => remove(&mut listeners.places, place, listener),
            Topic::Field(value) => remove(&mut listeners.fields, value, listener),
        }
    }

    /// Tells everyone of the changes that may concern them.
    pub fn tell(&self, changes: &[Arc<Change>]) {
        let listeners = self.listeners.lock();
        for change in changes {
            listeners.tell_places(change);
            if let (Some(field), false) = (self.field, listeners.fields.is_empty()) {
                listeners.tell_fields(change, field);
            }
        }
        for listener in &listeners.everything {
            listener.changed.notify_waiters();
        }
    }

    /// Tells everyone that they have missed something.
    pub fn lose_all(&self) {
        let listeners = self.listeners.lock();
        let narrow = listeners.places.values().chain(listeners.fields.values()).flatten();
        narrow.chain(&listeners.everything).for_each(|listener| listener.lose());
    }
}

impl Listeners {
    fn tell_places(&self, change: &Change) {
        if self.places.is_empty() {
            return;
        }
        let key = &*change.event.key;
        let namespace = key.rfind('/').map_or("", |slash| &key[..=slash]);
        for place in [key, namespace] {
            let told = self.places.get(place).into_iter().flatten();
            told.for_each(|listener| listener.tell(change.event.revision));
        }
    }

    /// Both who lose the object and who gain it are told.
    fn tell_fields(&self, change: &Change, field: &IndexedField) {
        let event = &change.event;
        let before = event.previous.as_ref().map(|entry| (field.value)(&entry.value));
        let after = event.current.as_ref().map(|entry| (field.value)(&entry.value));
        // Telling twice of one revision does no harm.
        for value in before.into_iter().chain(after) {
            let told = self.fields.get(&*value).into_iter().flatten();
            told.for_each(|listener| listener.tell(change.event.revision));
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
