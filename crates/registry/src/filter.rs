//! Which objects a request is about, and what a change means to one watcher.

use std::sync::Arc;

use api::selector::{Requirement, Selector};
use bytes::Bytes;
use memchr::memmem;
use store::Event;

use crate::labels::labels_of;
use crate::served::Served;
use crate::watch::{Topic, Transition};

/// Selects objects of a resource by key, labels and fields.
#[derive(Clone)]
pub struct Filter {
    pub served: Arc<Served>,
    /// Keys start with this; a whole key when `exact`.
    pub key: String,
    pub exact: bool,
    pub labels: Selector,
    pub fields: Selector,
}

impl Filter {
    /// Selectors that hold for every object need no look inside.
    pub fn is_trivial(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn covers_key(&self, key: &str) -> bool {
        if self.exact {
            key == self.key
        } else {
            key.starts_with(&self.key)
        }
    }

    pub fn matches(&self, object: &Bytes) -> bool {
        self.labels_match(object) && self.fields_match(object)
    }

    /// The narrowest topic that has all events which may concern this watcher.
    pub fn topic(&self) -> Topic {
        if self.exact {
            return Topic::KeyPrefix(self.key.as_str().into());
        }
        let field = self.served.ring.indexed_field();
        if let Some(value) = field.and_then(|path| equal_to(&self.fields, path)) {
            return Topic::Field(value.into());
        }
        match self.key == self.served.prefix {
            true => Topic::Everything,
            false => Topic::KeyPrefix(self.key.as_str().into()),
        }
    }

    /// `None` when the event does not concern this watcher.
    pub fn transition(&self, event: &Event) -> Option<Transition> {
        if !self.covers_key(&event.key) {
            return None;
        }
        let matches = |entry: &std::sync::Arc<store::Entry>| self.is_trivial() || self.matches(&entry.value);
        let before = event.previous.as_ref().is_some_and(matches);
        let after = event.current.as_ref().is_some_and(matches);
        match (before, after) {
            (false, true) => Some(Transition::Added),
            (true, true) => Some(Transition::Modified),
            (true, false) => Some(Transition::Deleted),
            (false, false) => None,
        }
    }

    fn labels_match(&self, object: &Bytes) -> bool {
        if self.labels.is_empty() {
            return true;
        }
        labels_of(object).is_some_and(|labels| {
            self.labels
                .matches_with(|key| labels.get(key).map(|value| value.as_ref()))
        })
    }

    /// Whether the bytes have the value that is wanted of an indexed field anywhere: of all pods only few are on a node,
    /// and looking costs a fraction of reading each.
    fn may_have_indexed_field(&self, object: &[u8]) -> bool {
        let field = self.served.ring.indexed_field();
        let wanted = field.and_then(|path| equal_to(&self.fields, path));
        // Other characters may be written in several ways.
        let is_plain = |text: &&str| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        wanted
            .filter(is_plain)
            .is_none_or(|wanted| memmem::find(object, wanted.as_bytes()).is_some())
    }

    fn fields_match(&self, object: &Bytes) -> bool {
        if self.fields.is_empty() {
            return true;
        }
        if !self.may_have_indexed_field(object) {
            return false;
        }
        // The revision plays no part in selecting.
        let Ok(object) = self.served.decode_stored(object, 0) else {
            return false;
        };
        self.fields.requirements.iter().all(|requirement| match requirement {
            Requirement::Equals(path, value) => self.served.field(&object, path).as_ref() == Some(value),
            Requirement::NotEquals(path, value) => self.served.field(&object, path).as_ref() != Some(value),
            _ => false,
        })
    }
}

/// The value that a field must have, if the selector names exactly one.
pub fn equal_to<'a>(fields: &'a Selector, path: &str) -> Option<&'a str> {
    fields.requirements.iter().find_map(|requirement| match requirement {
        Requirement::Equals(key, value) if key == path => Some(value.as_str()),
        _ => None,
    })
}
