//! What failures below the registry mean to a client.

use api::{Cause, Error, Reason};
use store::{Revision, StoreError};

/// What a failure of the store means to a client.
pub fn store_error(error: StoreError) -> Error {
    match error {
        StoreError::Compacted { .. } => Error::new(
            Reason::Expired,
            "The provided continue parameter is too old to display a consistent list result.",
        ),
        StoreError::Future { requested, current } => too_large_revision(requested, current),
        StoreError::Unavailable(_) | StoreError::Unknown(_) | StoreError::ReadOnly(_) => {
            Error::new(Reason::ServiceUnavailable, error.to_string()).retry_after(1)
        }
        // Upstream passes on what etcd says, without a reason.
        StoreError::QuotaExceeded => Error::new(Reason::Unknown, error.to_string()),
        StoreError::Corrupt(_) | StoreError::Io(_) | StoreError::Invalid(_) => Error::internal(error),
    }
}

/// Clients tell a revision that nobody has seen yet from other timeouts by the cause.
fn too_large_revision(requested: Revision, current: Revision) -> Error {
    let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
    let mut error = Error::new(Reason::Timeout, message).retry_after(1);
    error.details().causes.push(Cause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    });
    error
}

/// What is asked for has no place in the API.
pub fn not_served() -> Error {
    let mut error = Error::new(Reason::NotFound, "the server could not find the requested resource");
    error.details();
    error
}
