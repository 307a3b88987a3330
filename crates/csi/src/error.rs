//! Why a call on a driver failed, in the words in which Kubernetes tells it.

pub use tonic::Code;
use tonic::Status;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Characters of a driver's message that are shown; events hold little more.
const MAX_MESSAGE_CHARACTERS: usize = 768;

/// A failed call. Users read it in events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rpc error: code = {} desc = {message}", code_name(*code))]
pub struct Error {
    pub code: Code,
    pub message: String,
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
        }
    }

    /// Whether the driver says that what was asked for can never be done.
    pub fn is_infeasible(&self) -> bool {
        matches!(self.code, Code::InvalidArgument | Code::OutOfRange | Code::NotFound)
    }

    /// Whether the volume would have to be out of use for this.
    pub fn is_in_use(&self) -> bool {
        self.code == Code::FailedPrecondition
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        let printable = |character: char| match character.is_control() {
            true => ' ',
            false => character,
        };
        let message = status.message().chars().take(MAX_MESSAGE_CHARACTERS);
        Error::new(status.code(), message.map(printable).collect::<String>())
    }
}

/// The name of a code as Go's gRPC writes it, which is what users of Kubernetes search for.
fn code_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_upstreams() {
        let error = Error::from(Status::internal("no\nroom"));
        assert_eq!(error.to_string(), "rpc error: code = Internal desc = no room");
        let error = Error::from(Status::cancelled(""));
        assert_eq!(error.to_string(), "rpc error: code = Canceled desc = ");
    }

    #[test]
    fn a_long_message_is_cut() {
        let error = Error::from(Status::unknown("ä".repeat(100_000)));
        assert_eq!(error.message.chars().count(), MAX_MESSAGE_CHARACTERS);
    }
}
