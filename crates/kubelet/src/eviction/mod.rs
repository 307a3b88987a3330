//! What is done when the machine runs out of something: images are removed, and pods that have to go are evicted.

mod local;
mod rank;
mod relieve;

pub use local::watch as watch_local_storage;
pub use relieve::watch;
