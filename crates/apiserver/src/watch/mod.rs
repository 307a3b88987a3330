//! Watch fan-out: one reader of the store, one bounded ring of events per resource, watchers as cursors into it.
//!
//! [`Hub`] feeds the rings, [`Ring`] holds their events, `index` knows whom an event may concern, a [`Follower`] is one
//! watcher's place in a ring, and [`stream`] turns that into a response. A watcher that falls behind its ring has its
//! stream ended and resumes from its last revision; it never slows a writer.

mod change;
mod filter;
mod follower;
mod hub;
mod index;
mod ring;
mod stream;
#[cfg(test)]
mod tests;

pub use change::{Change, Format};
pub use filter::{Filter, Transition};
pub use follower::{Follower, Read};
pub use hub::Hub;
pub use index::{IndexedField, Topic};
pub use ring::Ring;
pub use stream::{WatchRequest, stream};
