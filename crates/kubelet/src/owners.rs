//! Which pod each sandbox and container of the runtime belongs to.

use std::collections::HashMap;

use parking_lot::Mutex;

/// What an identifier of the runtime stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeObject {
    Sandbox,
    ContainerIn(String),
}

#[derive(Default)]
pub struct Owners(Mutex<HashMap<String, Owner>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: String,
    pub object: RuntimeObject,
}

impl Owners {
    pub fn put(&self, id: &str, uid: &str, object: RuntimeObject) {
        let owner = Owner {
            uid: uid.to_owned(),
            object,
        };
        self.0.lock().insert(id.to_owned(), owner);
    }

    pub fn get(&self, id: &str) -> Option<Owner> {
        self.0.lock().get(id).cloned()
    }

    pub fn forget_pod(&self, uid: &str) {
        self.0.lock().retain(|_, owner| owner.uid != uid);
    }
}
