//! When the machine runs out of something: the signals, the thresholds below which there is pressure, what the
//! machine has of each, and which pod has to go.

mod local;
mod measure;
mod rank;
mod relieve;
mod signal;
mod threshold;

pub use local::watch as watch_local_storage;
pub use measure::{Level, Measurements, Places, max_processes};
pub use relieve::watch;
pub use signal::{Pressure, Signal};
pub use threshold::{BadThreshold, Shortage, Thresholds};
