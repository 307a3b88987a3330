//! The engines that the contract runs over.

use std::any::Any;
use std::sync::Arc;

use store::Store;

/// A store, and what has to stay alive beside it.
pub struct World {
    pub store: Arc<dyn Store>,
    _keep: Option<Box<dyn Any + Send>>,
}

pub async fn memory() -> World {
    World {
        store: store::memory::open(),
        _keep: None,
    }
}
