//! Why a call failed.

use api::Reason;

use crate::TransportError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server answered with a failure.
    #[error("{0}")]
    Api(api::Error),
    #[error("{0}")]
    Transport(#[from] TransportError),
    #[error("could not decode the answer to {request}: {source}")]
    Decode { request: String, source: serde_json::Error },
    #[error("the answer to {request} is longer than {limit} bytes")]
    TooLong { request: String, limit: usize },
    /// The component has lost its leadership; a client that is bound to it must not write any more.
    #[error("not leading: the write was not sent")]
    NotLeading,
}

impl Error {
    /// The reason in the API server's answer, if it answered.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Error::Api(error) => Some(error.reason),
            _ => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.reason() == Some(Reason::NotFound)
    }

    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some(Reason::AlreadyExists)
    }

    pub fn is_conflict(&self) -> bool {
        self.reason() == Some(Reason::Conflict)
    }

    /// The server does not know who asks.
    pub fn is_unauthorized(&self) -> bool {
        self.reason() == Some(Reason::Unauthorized)
    }

    pub fn is_forbidden(&self) -> bool {
        self.reason() == Some(Reason::Forbidden)
    }

    pub fn is_invalid(&self) -> bool {
        self.reason() == Some(Reason::Invalid)
    }

    /// The revision asked for is gone: list again.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason(), Some(Reason::Expired | Reason::Gone))
    }

    pub fn is_too_many_requests(&self) -> bool {
        self.reason() == Some(Reason::TooManyRequests)
    }

    /// Creating failed because the namespace is being deleted, so trying again is pointless.
    pub fn is_namespace_terminating(&self) -> bool {
        match self {
            Error::Api(error) => error.details.as_ref().is_some_and(|details| {
                details
                    .causes
                    .iter()
                    .any(|cause| cause.reason == "NamespaceTerminating")
            }),
            _ => false,
        }
    }

    /// True when the same call may succeed later without anyone changing anything.
    pub fn is_temporary(&self) -> bool {
        match self {
            Error::Api(error) => matches!(
                error.reason,
                Reason::InternalError | Reason::ServiceUnavailable | Reason::Timeout | Reason::TooManyRequests
            ),
            Error::Transport(error) => error.is_temporary(),
            Error::Decode { .. } | Error::TooLong { .. } | Error::NotLeading => false,
        }
    }
}
