//! How many requests are handled at once. Fair queuing by FlowSchema will stand here.

use std::sync::Arc;

use api::{Error, Reason};
use auth::User;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::request::RequestInfo;

/// Upstream's defaults.
pub const MAX_READS_IN_FLIGHT: usize = 400;
pub const MAX_WRITES_IN_FLIGHT: usize = 200;

pub struct Limits {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl Limits {
    pub fn new(reads: usize, writes: usize) -> Limits {
        Limits {
            reads: Arc::new(Semaphore::new(reads)),
            writes: Arc::new(Semaphore::new(writes)),
        }
    }

    /// Holds a place until the handler has its answer. Long-running requests and the system's masters hold none.
    pub fn enter(&self, user: &User, info: &RequestInfo) -> Result<Option<OwnedSemaphorePermit>, Error> {
        if is_long_running(info) || user.groups.iter().any(|group| group == "system:masters") {
            return Ok(None);
        }
        let places = if matches!(info.verb, "get" | "list" | "head") {
            &self.reads
        } else {
            &self.writes
        };
        places.clone().try_acquire_owned().map(Some).map_err(|_| {
            Error::new(Reason::TooManyRequests, "Too many requests, please try again later.").retry_after(1)
        })
    }
}

fn is_long_running(info: &RequestInfo) -> bool {
    info.verb == "watch"
        || matches!(
            info.subresource.as_str(),
            "attach" | "exec" | "log" | "portforward" | "proxy"
        )
}
