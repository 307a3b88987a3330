//! Watch fan-out: one reader of the store, one bounded ring of events per resource, watchers as cursors into it.
//!
//! [`Hub`] feeds the rings, [`Ring`] holds them, [`stream`] turns a cursor into a response. A watcher that falls
//! behind its ring has its stream ended and resumes from its last revision; it never slows a writer.

mod filter;
mod hub;
mod ring;
mod stream;

pub use filter::{Filter, Transition};
pub use hub::Hub;
pub use ring::{Change, Read, Ring};
pub use stream::{WatchRequest, stream};
