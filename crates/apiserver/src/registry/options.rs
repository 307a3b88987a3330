//! What a write may do and how strictly its body is read.

use std::sync::Arc;

use api::Error;
use auth::User;

use crate::request::Query;

/// What happens to fields that are unknown or given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Options of a create, update or patch.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    pub user: Arc<User>,
    pub dry_run: bool,
    pub validation: FieldValidation,
    /// When the request arrived, in the unit of marks.
    pub received_us: u64,
}

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything but `status`, where the kind has that subresource.
    Main,
    Status,
    /// A subresource that changes what its handler computed, without the rules of an ordinary update.
    Subresource(&'static str),
}

impl Scope {
    /// Whether a write through this scope is a new wish of the user's; a binding, for one, is not.
    pub fn moves_generation(self) -> bool {
        matches!(
            self,
            Scope::Main | Scope::Subresource("ephemeralcontainers" | "resize" | "scale")
        )
    }

    pub fn subresource(self) -> &'static str {
        match self {
            Scope::Main => "",
            Scope::Status => "status",
            Scope::Subresource(name) => name,
        }
    }
}

impl WriteOptions {
    /// The server's own writes: nothing is ignored.
    pub fn internal(user: Arc<User>) -> WriteOptions {
        WriteOptions {
            user,
            dry_run: false,
            validation: FieldValidation::Strict,
            received_us: trace::now_us(),
        }
    }

    pub fn parse(user: Arc<User>, query: &Query) -> Result<WriteOptions, Error> {
        Ok(WriteOptions {
            user,
            dry_run: dry_run(query.all("dryRun"))?,
            validation: validation(query)?,
            received_us: trace::now_us(),
        })
    }
}

/// `dryRun=All` is the only value there is.
pub fn dry_run<S: AsRef<str>>(values: &[S]) -> Result<bool, Error> {
    let values: Vec<&str> = values
        .iter()
        .map(AsRef::as_ref)
        .filter(|value| !value.is_empty())
        .collect();
    match values.as_slice() {
        [] => Ok(false),
        all if all.iter().all(|value| *value == "All") => Ok(true),
        other => Err(Error::bad_request(format!(
            "invalid dryRun: dryRun: Unsupported value: {other:?}: supported values: \"All\""
        ))),
    }
}

fn validation(query: &Query) -> Result<FieldValidation, Error> {
    match query.text("fieldValidation") {
        None | Some("Warn") => Ok(FieldValidation::Warn),
        Some("Ignore") => Ok(FieldValidation::Ignore),
        Some("Strict") => Ok(FieldValidation::Strict),
        Some(other) => Err(Error::bad_request(format!(
            "fieldValidation: Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
        ))),
    }
}
