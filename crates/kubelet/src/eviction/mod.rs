//! When the machine runs out of something: the signals, the thresholds below which there is pressure, and what the
//! machine has of each.

mod measure;
mod signal;
mod threshold;

pub use measure::{Measurements, Places};
pub use signal::{Pressure, Signal};
pub use threshold::{BadThreshold, Shortage, Thresholds};
