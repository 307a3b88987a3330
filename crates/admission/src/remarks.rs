//! What admission has to say about a request besides yes or no.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// The most warnings one answer carries, and the longest of them.
const MAX_WARNINGS: usize = 64;
const MAX_WARNING_CHARS: usize = 4096;

/// Warnings for the client, annotations for the audit log and time spent waiting for others, collected while a request
/// passes.
#[derive(Debug, Default)]
pub struct Remarks {
    warnings: Mutex<Vec<String>>,
    annotations: Mutex<BTreeMap<String, String>>,
    waited_us: AtomicU64,
}

impl Remarks {
    /// Adds a warning that has not been given yet.
    pub fn warn(&self, text: impl Into<String>) {
        let mut text: String = text.into();
        if let Some((cut, _)) = text.char_indices().nth(MAX_WARNING_CHARS) {
            text.truncate(cut);
        }
        let mut warnings = self.warnings.lock();
        if warnings.len() < MAX_WARNINGS && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Adds an annotation for the audit log; the first one under a key stays.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.annotations
            .lock()
            .entry(key.into())
            .or_insert_with(|| value.into());
    }

    /// Adds to the time in which the request waited for its turn or for somebody else's answer.
    pub fn waited(&self, time: Duration) {
        self.waited_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    pub fn waiting_time(&self) -> Duration {
        Duration::from_micros(self.waited_us.load(Ordering::Relaxed))
    }

    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.annotations.lock().clone()
    }
}
