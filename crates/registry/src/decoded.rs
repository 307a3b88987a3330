//! Objects that nearly every request asks for, kept decoded.

use std::collections::HashMap;
use std::sync::Arc;

use api::Value;
use parking_lot::RwLock;
use store::{Entry, Revision};

use crate::served::{Served, Stored, row_address};

/// How many decoded objects are kept, and how long their encoded form may be.
const MAX_DECODED: usize = 256;
const MAX_DECODED_BYTES: usize = 4 << 10;

/// Objects that nearly every request asks for, its namespace above all, as they were decoded last.
#[derive(Default)]
pub struct Decoded(RwLock<HashMap<DecodedKey, (Revision, Arc<Value>)>>);

/// A resource, by where its row is, and the key of an object.
type DecodedKey = (usize, Arc<str>);

impl Decoded {
    pub fn get(&self, served: &Served, entry: Arc<Entry>) -> Option<Arc<Value>> {
        // The versions of a resource share their keys, but not what is decoded.
        let key = (row_address(served.resource), entry.key.clone());
        if let Some((revision, value)) = self.0.read().get(&key)
            && *revision == entry.mod_revision
        {
            return Some(value.clone());
        }
        let (revision, bytes) = (entry.mod_revision, entry.value.len());
        let value = Arc::new(Stored::from(entry).value(served).ok()?);
        if bytes <= MAX_DECODED_BYTES {
            let mut kept = self.0.write();
            if kept.len() >= MAX_DECODED {
                kept.clear();
            }
            kept.insert(key, (revision, value.clone()));
        }
        Some(value)
    }
}
