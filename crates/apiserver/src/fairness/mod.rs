//! Which requests are handled now, which wait and which are turned away, as FlowSchemas and
//! PriorityLevelConfigurations say.
//!
//! `plan` finds the schema and level of a request, `work` how many seats it is worth, `seats` gives out the
//! places of a level fairly among its flows, `follow` keeps both in step with the objects, `defaults` are the objects every cluster begins with.

mod defaults;
mod follow;
mod plan;
mod seats;
mod shuffle;
mod work;

use std::sync::Arc;
use std::time::Duration;

use api::{Error, Reason};
use arc_swap::ArcSwap;
use auth::User;
use http::HeaderValue;

use crate::request::RequestInfo;

pub use defaults::seeds;
pub use follow::follow;
pub use plan::Plan;
use seats::{Entry, Seats};
pub use seats::{LevelReport, Ticket};
pub use work::width;

/// Upstream's defaults; their sum is the number of seats that all priority levels share.
pub const MAX_READS_IN_FLIGHT: usize = 400;
pub const MAX_WRITES_IN_FLIGHT: usize = 200;

/// How long a request waits in its queue: upstream's quarter of a request's time.
const MAX_WAIT: Duration = Duration::from_secs(15);

pub struct Fairness {
    plan: ArcSwap<Plan>,
    seats: Arc<Seats>,
}

/// How a request was classified. Both UIDs are told to the client, so they are kept in the form of its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub flow_schema_uid: Option<HeaderValue>,
    pub priority_level_uid: Option<HeaderValue>,
}

impl Fairness {
    pub fn new(total_seats: usize) -> Fairness {
        Fairness {
            plan: ArcSwap::from_pointee(Plan::default()),
            seats: Arc::new(Seats::new(total_seats)),
        }
    }

    /// Puts a new plan in force; requests that run or wait under the old one keep their places.
    pub fn put_in_force(&self, plan: Plan) {
        self.seats.configure(plan.levels());
        self.plan.store(Arc::new(plan));
    }

    /// Finds the class of a request, and holds as many seats as it is wide for as long as the ticket lives. Long-running requests hold none.
    pub async fn enter(&self, user: &User, info: &RequestInfo, width: usize) -> (Class, Result<Option<Ticket>, Error>) {
        let (class, entry) = {
            let plan = self.plan.load();
            let Some(found) = plan.classify(user, info) else {
                return (Class::default(), Ok(None));
            };
            let entry = match is_long_running(info) {
                true => Entry::Free,
                false => self.seats.enter(found.level, found.flow, width),
            };
            (found.class, entry)
        };
        let ticket = match entry {
            Entry::Free => Ok(None),
            Entry::Now(ticket) => Ok(Some(ticket)),
            Entry::Full => Err(too_many()),
            Entry::Later(turn) => match tokio::time::timeout(MAX_WAIT, turn).await {
                Ok(Ok(ticket)) => Ok(Some(ticket)),
                Ok(Err(_)) | Err(_) => Err(too_many()),
            },
        };
        (class, ticket)
    }

    pub fn report(&self) -> Vec<LevelReport> {
        self.seats.report()
    }
}

fn too_many() -> Error {
    Error::new(Reason::TooManyRequests, "Too many requests, please try again later.").retry_after(1)
}

/// Whether a request stays open for as long as its client likes.
pub fn is_long_running(info: &RequestInfo) -> bool {
    info.verb == "watch"
        || matches!(
            info.subresource.as_str(),
            "attach" | "exec" | "log" | "portforward" | "proxy"
        )
}
