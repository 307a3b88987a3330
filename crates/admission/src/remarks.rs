//! What admission has to say about a request besides yes or no.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The most warnings one answer carries, and the longest of them.
const MAX_WARNINGS: usize = 64;
const MAX_WARNING_CHARS: usize = 4096;

/// Warnings for the client and annotations for the audit log, collected while a request passes.
#[derive(Debug, Default)]
pub struct Remarks {
    warnings: Mutex<Vec<String>>,
    annotations: Mutex<BTreeMap<String, String>>,
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

    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.annotations.lock().clone()
    }
}
