//! The failure a client sees: a `Status` object with upstream's codes, reasons and messages.

use std::fmt;

use serde_json::json;

use crate::{FieldError, Resource, Value};

/// Why a request failed; the `reason` of a Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestEntityTooLarge,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// A failed request. Boxed details keep results small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub reason: Reason,
    pub message: String,
    pub details: Option<Box<Details>>,
    /// The code and reason of a failure that was decided outside of this program, by a webhook; they stand instead of
    /// those of `reason`.
    pub elsewhere: Option<(u16, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
    /// A fresh token for a list whose page has expired; sent in the Status' list metadata.
    pub continuation: String,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Reason {
    pub fn code(self) -> u16 {
        match self {
            Reason::BadRequest => 400,
            Reason::Unauthorized => 401,
            Reason::Forbidden => 403,
            Reason::NotFound => 404,
            Reason::MethodNotAllowed => 405,
            Reason::NotAcceptable => 406,
            Reason::AlreadyExists | Reason::Conflict => 409,
            Reason::Expired | Reason::Gone => 410,
            Reason::RequestEntityTooLarge => 413,
            Reason::UnsupportedMediaType => 415,
            Reason::Invalid => 422,
            Reason::TooManyRequests => 429,
            Reason::InternalError | Reason::Unknown => 500,
            Reason::ServiceUnavailable => 503,
            Reason::Timeout => 504,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Reason::AlreadyExists => "AlreadyExists",
            Reason::BadRequest => "BadRequest",
            Reason::Conflict => "Conflict",
            Reason::Expired => "Expired",
            Reason::Forbidden => "Forbidden",
            Reason::Gone => "Gone",
            Reason::InternalError => "InternalError",
            Reason::Invalid => "Invalid",
            Reason::MethodNotAllowed => "MethodNotAllowed",
            Reason::NotAcceptable => "NotAcceptable",
            Reason::NotFound => "NotFound",
            Reason::RequestEntityTooLarge => "RequestEntityTooLarge",
            Reason::ServiceUnavailable => "ServiceUnavailable",
            Reason::Timeout => "Timeout",
            Reason::TooManyRequests => "TooManyRequests",
            Reason::Unauthorized => "Unauthorized",
            Reason::UnsupportedMediaType => "UnsupportedMediaType",
            Reason::Unknown => "",
        }
    }
}

impl Error {
    pub fn new(reason: Reason, message: impl Into<String>) -> Error {
        Error {
            reason,
            message: message.into(),
            details: None,
            elsewhere: None,
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Error {
        Error::new(Reason::BadRequest, message)
    }

    pub fn internal(message: impl fmt::Display) -> Error {
        let mut error = Error::new(Reason::InternalError, format!("Internal error occurred: {message}"));
        error.details().causes.push(Cause {
            reason: String::new(),
            message: message.to_string(),
            field: String::new(),
        });
        error
    }

    pub fn not_found(resource: &Resource, name: &str) -> Error {
        Error::new(Reason::NotFound, format!("{} {name:?} not found", resource.qualified())).about(resource, name)
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Error {
        Error::new(
            Reason::AlreadyExists,
            format!("{} {name:?} already exists", resource.qualified()),
        )
        .about(resource, name)
    }

    pub fn conflict(resource: &Resource, name: &str, why: impl fmt::Display) -> Error {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            resource.qualified()
        );
        Error::new(Reason::Conflict, message).about(resource, name)
    }

    pub fn forbidden(resource: &Resource, name: &str, why: impl fmt::Display) -> Error {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", resource.qualified())
        } else {
            format!("{} {name:?} is forbidden: {why}", resource.qualified())
        };
        Error::new(Reason::Forbidden, message).about(resource, name)
    }

    pub fn invalid(resource: &Resource, name: &str, problems: Vec<FieldError>) -> Error {
        let texts: Vec<String> = problems.iter().map(FieldError::to_string).collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let group = resource.error_group;
        let kind = if group.is_empty() {
            resource.kind.to_owned()
        } else {
            format!("{}.{}", resource.kind, group)
        };
        let mut error =
            Error::new(Reason::Invalid, format!("{kind} {name:?} is invalid: {text}")).about(resource, name);
        let details = error.details();
        details.group = group.to_owned();
        details.kind = resource.kind.to_owned();
        details.causes = problems
            .iter()
            .map(|problem| Cause {
                reason: problem.problem.reason().to_owned(),
                message: problem.body(),
                field: problem.field.clone(),
            })
            .collect();
        error
    }

    /// Names the object the failure is about.
    pub fn about(mut self, resource: &Resource, name: &str) -> Error {
        let details = self.details();
        details.group = resource.group.to_owned();
        details.kind = resource.plural.to_owned();
        details.name = name.to_owned();
        self
    }

    pub fn retry_after(mut self, seconds: u32) -> Error {
        self.details().retry_after_seconds = seconds;
        self
    }

    pub fn details(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    pub fn code(&self) -> u16 {
        match &self.elsewhere {
            Some((code, _)) => *code,
            None => self.reason.code(),
        }
    }

    fn reason_text(&self) -> &str {
        match &self.elsewhere {
            Some((_, reason)) => reason,
            None => self.reason.as_str(),
        }
    }

    /// The `Status` object that is sent to the client.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.message, "code": self.code(),
        });
        if !self.reason_text().is_empty() {
            status["reason"] = self.reason_text().into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
            if !details.continuation.is_empty() {
                status["metadata"]["continue"] = details.continuation.as_str().into();
            }
        }
        status
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut value = serde_json::Map::new();
        for (key, text) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !text.is_empty() {
                value.insert(key.to_owned(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            value.insert("causes".to_owned(), self.causes.iter().map(Cause::to_value).collect());
        }
        if self.retry_after_seconds > 0 {
            value.insert("retryAfterSeconds".to_owned(), self.retry_after_seconds.into());
        }
        Value::Object(value)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut value = serde_json::Map::new();
        for (key, text) in [
            ("reason", &self.reason),
            ("message", &self.message),
            ("field", &self.field),
        ] {
            if !text.is_empty() {
                value.insert(key.to_owned(), text.as_str().into());
            }
        }
        Value::Object(value)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
