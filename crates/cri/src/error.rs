//! What can go wrong in a runtime: a code a kubelet can decide on, and a message a user can read.

use tonic::Status;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call. The message is shown to users in events and container statuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub code: Code,
    pub message: String,
}

/// The gRPC codes a kubelet distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The sandbox, container or image does not exist.
    NotFound,
    AlreadyExists,
    InvalidArgument,
    /// The object is not in a state that allows the call.
    FailedPrecondition,
    /// The runtime does not have this method or option.
    Unsupported,
    DeadlineExceeded,
    /// The runtime cannot be reached.
    Unavailable,
    ResourceExhausted,
    PermissionDenied,
    /// Everything else; the message says what.
    Internal,
}

/// Codes as gRPC numbers them. `Internal` stands last: codes without a row become it.
const CODES: &[(Code, tonic::Code)] = &[
    (Code::NotFound, tonic::Code::NotFound),
    (Code::AlreadyExists, tonic::Code::AlreadyExists),
    (Code::InvalidArgument, tonic::Code::InvalidArgument),
    (Code::FailedPrecondition, tonic::Code::FailedPrecondition),
    (Code::Unsupported, tonic::Code::Unimplemented),
    (Code::DeadlineExceeded, tonic::Code::DeadlineExceeded),
    (Code::Unavailable, tonic::Code::Unavailable),
    (Code::ResourceExhausted, tonic::Code::ResourceExhausted),
    (Code::PermissionDenied, tonic::Code::PermissionDenied),
    (Code::Internal, tonic::Code::Unknown),
];

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub fn precondition(message: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, message)
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Code::Unsupported, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    pub fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }

    pub fn is_unsupported(&self) -> bool {
        self.code == Code::Unsupported
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let known = CODES.iter().find(|(_, grpc)| *grpc == status.code());
        Self::new(known.map_or(Code::Internal, |(code, _)| *code), status.message())
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let row = CODES.iter().find(|(code, _)| *code == error.code);
        Status::new(row.map_or(tonic::Code::Unknown, |(_, grpc)| *grpc), error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_wire() {
        for (code, _) in CODES {
            let error = Error::new(*code, "why");
            assert_eq!(Error::from(Status::from(error.clone())), error);
        }
    }

    #[test]
    fn codes_without_a_row_are_internal() {
        assert_eq!(Error::from(Status::data_loss("gone")), Error::internal("gone"));
    }
}
