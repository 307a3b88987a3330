//! A named set of plugins.

use crate::framework::Row;
use crate::plugins;

/// A scheduler that pods can choose by name, and its plugins.
#[derive(Clone)]
pub struct Profile {
    pub scheduler_name: String,
    pub rows: &'static [Row],
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            scheduler_name: "default-scheduler".to_owned(),
            rows: plugins::table(),
        }
    }
}
