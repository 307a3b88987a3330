//! Events that are too long lose their objects, as upstream cuts them.

use bytes::Bytes;

use crate::Event;

const TRUNCATED: &str = "audit.k8s.io/truncated";

#[derive(Clone, Copy, Debug)]
pub struct TruncateOptions {
    pub enabled: bool,
    pub max_event_bytes: usize,
    pub max_batch_bytes: usize,
}

impl Default for TruncateOptions {
    fn default() -> TruncateOptions {
        TruncateOptions {
            enabled: false,
            max_event_bytes: 102_400,
            max_batch_bytes: 10_485_760,
        }
    }
}

impl TruncateOptions {
    /// The event as JSON; `None` when it is too long even without its objects.
    pub(crate) fn encode(&self, event: &Event) -> Option<Bytes> {
        let encoded = serde_json::to_vec(event).ok()?;
        if !self.enabled || encoded.len() <= self.max_event_bytes {
            return Some(encoded.into());
        }
        let mut shorter = event.clone();
        (shorter.request_object, shorter.response_object) = (None, None);
        shorter.annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
        let encoded = serde_json::to_vec(&shorter).ok()?;
        (encoded.len() <= self.max_event_bytes).then(|| encoded.into())
    }
}
