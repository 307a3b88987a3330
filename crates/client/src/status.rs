//! Failures as the API server words them: a `Status` object back into an [`api::Error`].

use api::{Cause, Details, Reason};
use serde::Deserialize;

/// All reasons, to find one by its name or its code.
const REASONS: &[Reason] = &[
    Reason::BadRequest,
    Reason::Unauthorized,
    Reason::Forbidden,
    Reason::NotFound,
    Reason::MethodNotAllowed,
    Reason::NotAcceptable,
    Reason::Conflict,
    Reason::AlreadyExists,
    Reason::Expired,
    Reason::Gone,
    Reason::RequestEntityTooLarge,
    Reason::UnsupportedMediaType,
    Reason::Invalid,
    Reason::TooManyRequests,
    Reason::InternalError,
    Reason::ServiceUnavailable,
    Reason::Timeout,
];

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    kind: String,
    message: String,
    reason: String,
    code: u16,
    details: Option<StatusDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StatusDetails {
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<StatusCause>,
    retry_after_seconds: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusCause {
    reason: String,
    message: String,
    field: String,
}

/// The failure in an answer with HTTP status `code`. Answers that are no `Status` (from a proxy on the way, say) become
/// an error of the matching reason with the body as its message.
pub fn decode_status(code: u16, body: &[u8]) -> api::Error {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    if status.kind != "Status" {
        let text = String::from_utf8_lossy(body);
        let message = match text.trim() {
            "" => format!("the server answered with HTTP status {code}"),
            text => format!("the server answered with HTTP status {code}: {text}"),
        };
        return api::Error::new(reason("", code), message);
    }
    let code = if status.code == 0 { code } else { status.code };
    let mut error = api::Error::new(reason(&status.reason, code), status.message);
    if let Some(details) = status.details {
        *error.details() = Details::from(details);
    }
    error
}

fn reason(name: &str, code: u16) -> Reason {
    let by_name = REASONS.iter().find(|reason| reason.as_str() == name);
    // For 409 and 410 the first of the two reasons in the table is the general one.
    let by_code = || REASONS.iter().find(|reason| reason.code() == code);
    by_name.or_else(by_code).copied().unwrap_or(Reason::Unknown)
}

impl From<StatusDetails> for Details {
    fn from(details: StatusDetails) -> Details {
        let causes = details.causes.into_iter().map(|cause| Cause {
            reason: cause.reason,
            message: cause.message,
            field: cause.field,
        });
        Details {
            name: details.name,
            group: details.group,
            kind: details.kind,
            uid: details.uid,
            causes: causes.collect(),
            retry_after_seconds: details.retry_after_seconds,
            ..Details::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_the_wire() {
        let sent = api::Error::new(Reason::AlreadyExists, "pods \"a\" already exists").retry_after(3);
        let received = decode_status(409, sent.to_status().to_string().as_bytes());
        assert_eq!(received, sent);
    }

    #[test]
    fn an_answer_that_is_no_status_gets_the_reason_of_its_code() {
        let error = decode_status(503, b"upstream connect error\n");
        assert_eq!(error.reason, Reason::ServiceUnavailable);
        assert_eq!(
            error.message,
            "the server answered with HTTP status 503: upstream connect error"
        );
        assert_eq!(decode_status(409, b"").reason, Reason::Conflict);
        assert_eq!(decode_status(418, b"").reason, Reason::Unknown);
    }
}
