//! Requests for the same namespace take turns where they would otherwise get in each other's way.

use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::Mutex;

/// How many namespaces may be charged at a time; more share a turn.
const TURNS: usize = 64;

/// Requests that would change the same companions take turns. The conditions of their transactions are what makes
/// them safe; without turns most of them would fail there and be tried again.
pub struct Turns(Vec<Mutex<()>>);

impl Default for Turns {
    fn default() -> Turns {
        Turns((0..TURNS).map(|_| Mutex::new(())).collect())
    }
}

impl Turns {
    pub(crate) fn of_namespace(&self, namespace: &str) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        namespace.hash(&mut hasher);
        let place = usize::try_from(hasher.finish()).unwrap_or(0) % TURNS;
        &self.0[place]
    }
}
