//! Counters, gauges and histograms, and how they are written in the Prometheus text format.
//!
//! A component keeps its figures in [`Family`]s, or in a [`Table`] where several metrics have the same labels, and
//! writes them all as a [`Page`]. Counting takes no lock but for the way to a series, which can be kept.
//!
//! Nothing here knows what is counted; this crate depends on no other of ours.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bounds;
mod number;
pub mod process;
mod series;

pub use bounds::{exponential, linear};
pub use number::number;
pub use series::{Counter, Family, Gauge, Histogram, MAX_SERIES, Sample, Series, Table, head, labels, sample};

/// The figures of a component.
pub trait Page: Send + Sync {
    /// Writes them all behind what is there.
    fn write(&self, text: &mut String);
}
