//! Refusals that are the same wherever they are found out.

use api::{Error, Reason};

pub fn method_not_allowed() -> Error {
    Error::new(
        Reason::MethodNotAllowed,
        "the server does not allow this method on the requested resource",
    )
}
