//! What failures below the registry mean to a client.

use api::{Error, Reason};
use store::StoreError;

/// What a failure of the store means to a client.
pub fn store_error(error: StoreError) -> Error {
    match error {
        StoreError::Compacted { .. } => Error::new(
            Reason::Expired,
            "The provided continue parameter is too old to display a consistent list result.",
        ),
        StoreError::Future { requested, current } => Error::new(
            Reason::Timeout,
            format!("Too large resource version: {requested}, current: {current}"),
        )
        .retry_after(1),
        StoreError::Unavailable(_) | StoreError::Unknown(_) | StoreError::ReadOnly(_) => {
            Error::new(Reason::ServiceUnavailable, error.to_string()).retry_after(1)
        }
        // Upstream passes on what etcd says, without a reason.
        StoreError::QuotaExceeded => Error::new(Reason::Unknown, error.to_string()),
        StoreError::Corrupt(_) | StoreError::Io(_) | StoreError::Invalid(_) => Error::internal(error),
    }
}

/// What is asked for has no place in the API.
pub fn not_served() -> Error {
    let mut error = Error::new(Reason::NotFound, "the server could not find the requested resource");
    error.details();
    error
}
