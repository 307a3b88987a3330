//! The members of the cluster: one is used for everything until it stops answering, then the next.
//!
//! A member whose process is stopped or cut off keeps its connections, and a keep-alive notices that only after many
//! seconds: etcd forbids pings more often than every five. So a read that takes long is asked of a second member as well, and
//! while a write takes long its member is asked whether it is there. Whoever finds out tells all others.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::client::RequireLeader;
use super::proto::StatusRequest;
use super::proto::maintenance_client::MaintenanceClient;
use super::wire;

pub(crate) type MemberChannel = InterceptedService<Channel, RequireLeader>;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A read that takes longer is asked of another member too; a member whose write takes longer is asked whether it is there.
const LONG: Duration = Duration::from_millis(500);
/// A member that takes longer to say that it is there is not.
const ANSWER_PATIENCE: Duration = Duration::from_millis(700);

#[derive(Clone)]
pub(crate) struct Members {
    channels: Arc<[MemberChannel]>,
    current: Arc<watch::Sender<usize>>,
}

impl Members {
    /// Begins with any of them, so that several servers spread over the members.
    pub fn new(channels: Vec<Channel>) -> Self {
        let first = clock::below(channels.len() as u32) as usize;
        let channels = channels.into_iter();
        Members {
            channels: channels
                .map(|channel| InterceptedService::new(channel, RequireLeader))
                .collect(),
            current: Arc::new(watch::Sender::new(first)),
        }
    }

    /// The member in use.
    pub fn current(&self) -> usize {
        *self.current.borrow()
    }

    pub fn channel(&self, index: usize) -> MemberChannel {
        self.channels[index].clone()
    }

    /// Returns when `index` is no longer the member in use.
    pub async fn left(&self, index: usize) {
        // The sender is ours, so it cannot be gone.
        let _ = self.current.subscribe().wait_for(|current| *current != index).await;
    }

    /// Goes on to the member after `index`, unless somebody did already.
    pub fn leave(&self, index: usize) {
        self.switch(index, (index + 1) % self.channels.len());
    }

    fn switch(&self, from: usize, to: usize) {
        let moved = self.current.send_if_modified(|current| {
            let moves = *current == from && from != to;
            if moves {
                *current = to;
            }
            moves
        });
        if moved {
            tracing::warn!(from, to, "A member of etcd does not respond; using another one");
        }
    }

    /// Carries out what changes nothing, or nothing more when it happens twice: by one more member if the first takes
    /// long, and by each if they fail.
    pub async fn read<T, F>(&self, call: impl Fn(MemberChannel) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (first, count) = (self.current(), self.channels.len());
        let attempt = |offset: usize| {
            let index = (first + offset) % count;
            let answer = within(call(self.channel(index)));
            async move { (index, answer.await) }
        };
        let mut attempts = FuturesUnordered::new();
        attempts.push(attempt(0));
        let (mut asked, mut is_hedged, mut error) = (1, false, None);
        loop {
            let answered = tokio::select! {
                answered = attempts.next() => answered,
                () = sleep(LONG), if !is_hedged && asked < count => {
                    is_hedged = true;
                    attempts.push(attempt(asked));
                    asked += 1;
                    continue;
                }
            };
            match answered {
                Some((index, Ok(answer))) => {
                    self.switch(first, index);
                    return Ok(answer);
                }
                Some((_, Err(status))) if is_final(&status) => return Err(status),
                Some((index, Err(status))) => {
                    self.leave(index);
                    error = Some(status);
                    if asked < count {
                        attempts.push(attempt(asked));
                        asked += 1;
                    }
                }
                None => return Err(error.unwrap_or_else(|| Status::unavailable("etcd has no members"))),
            }
        }
    }

    /// Carries out a write once. Only one that was never sent is tried with another member; one whose member stops
    /// answering is given up, and nobody knows whether it happened.
    pub async fn write<T, F>(&self, call: impl Fn(MemberChannel) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut tried = 1;
        loop {
            let index = self.current();
            let answer = self.write_to(index, within(call(self.channel(index)))).await;
            match answer {
                Err(status) if wire::never_sent(&status) && tried < self.channels.len() => {
                    tried += 1;
                    self.leave(index);
                }
                Err(status) => {
                    if !is_final(&status) {
                        self.leave(index);
                    }
                    return Err(status);
                }
                answer => return answer,
            }
        }
    }

    async fn write_to<T>(&self, index: usize, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let mut call = std::pin::pin!(call);
        loop {
            match timeout(LONG, &mut call).await {
                Ok(answer) => return answer,
                Err(_) if self.channels.len() == 1 => return call.await,
                Err(_) => (),
            }
            // It may be that the write ends while its member is asked.
            tokio::select! {
                answer = &mut call => return answer,
                is_there = self.is_there(index) => if !is_there {
                    return Err(Status::unavailable("the member has stopped answering"));
                },
            }
        }
    }

    /// Whether a member answers at all. It does so without its disk and without the others.
    async fn is_there(&self, index: usize) -> bool {
        let mut client = MaintenanceClient::new(self.channel(index));
        let answer = timeout(ANSWER_PATIENCE, client.status(StatusRequest {})).await;
        // Whatever it says, it is there; only a connection that is lost says nothing.
        answer.is_ok_and(|answer| answer.is_ok())
    }
}

/// Whether every member would answer the same.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated
    )
}

pub(crate) async fn within<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    match timeout(REQUEST_TIMEOUT, call).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!(
            "no answer within {} s",
            REQUEST_TIMEOUT.as_secs()
        ))),
    }
}
