//! Watch fan-out: one reader of the store, one bounded ring of events per resource, watchers as cursors into it.
//!
//! `Hub` feeds the rings, [`Ring`] holds their events, `index` knows whom an event may concern and a [`Follower`] is one
//! watcher's place in a ring. A watcher that falls behind its ring has its stream ended and resumes from its last
//! revision; it never slows a writer.

mod change;
mod follower;
mod hub;
mod index;
mod ring;
#[cfg(test)]
mod tests;

pub use change::{Change, FrameForm, Transition};
pub use follower::{Follower, Read, WakeSignal};
pub(crate) use hub::Hub;
pub use index::Topic;
pub use ring::Ring;
