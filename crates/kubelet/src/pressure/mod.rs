//! What the machine has of memory, disk and processes, and below which thresholds it is under pressure. Pure but for the
//! measuring; `eviction` acts on it.

mod measure;
mod signal;
mod threshold;

pub use measure::{Level, Measurements, Places, max_processes};
pub use signal::{Pressure, Signal};
pub use threshold::{BadThreshold, Shortage, Thresholds};
