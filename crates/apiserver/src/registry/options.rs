//! What a write may do and how strictly its body is read.

use std::sync::Arc;

use api::{Error, FieldError, Path, Resource};
use auth::User;
use http::HeaderMap;
use http::header::USER_AGENT;

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
    pub tracking: Tracking,
    /// Admission has seen the request in a form of its own, and is not asked about what it comes to.
    pub admitted: bool,
    /// When the request arrived, in the unit of marks.
    pub received_us: u64,
}

/// How the owners of the written fields are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tracking {
    /// This manager owns what it changed.
    By(String),
    /// The written object already says who owns what.
    Done,
    /// The server's own writes change no owner.
    Off,
}

const VALIDATIONS: &[&str] = &["", "Ignore", "Strict", "Warn"];

/// The bound of a manager's name, in bytes.
const MAX_MANAGER_BYTES: usize = 128;

/// Options as messages name them.
static CREATE_OPTIONS: Resource = Resource::cluster("meta.k8s.io", "v1", "CreateOptions", "", "");
static UPDATE_OPTIONS: Resource = Resource::cluster("meta.k8s.io", "v1", "UpdateOptions", "", "");
static PATCH_OPTIONS: Resource = Resource::cluster("meta.k8s.io", "v1", "PatchOptions", "", "");
static DELETE_OPTIONS: Resource = Resource::cluster("meta.k8s.io", "v1", "DeleteOptions", "", "");
static LIST_OPTIONS: Resource = Resource::cluster("meta.k8s.io", "v1", "ListOptions", "", "");

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
    pub fn own() -> WriteOptions {
        WriteOptions::internal(Arc::new(User::system("system:apiserver", &["system:masters"])))
    }

    /// Writes of one of the server's controllers, which own what they write as upstream's do.
    pub fn of_controller(manager: &str) -> WriteOptions {
        WriteOptions {
            tracking: Tracking::By(manager.to_owned()),
            ..WriteOptions::own()
        }
    }

    /// A write that the server makes on behalf of somebody.
    pub fn internal(user: Arc<User>) -> WriteOptions {
        WriteOptions {
            user,
            dry_run: false,
            validation: FieldValidation::Strict,
            tracking: Tracking::Off,
            admitted: false,
            received_us: trace::now_us(),
        }
    }

    pub fn parse(user: Arc<User>, query: &Query) -> Result<WriteOptions, Error> {
        WriteOptions::of_verb(user, "create", query)
    }

    fn of_verb(user: Arc<User>, verb: &str, query: &Query) -> Result<WriteOptions, Error> {
        Ok(WriteOptions {
            user,
            dry_run: dry_run(verb, query.all("dryRun"))?,
            validation: validation(query)?,
            tracking: Tracking::Off,
            admitted: false,
            received_us: trace::now_us(),
        })
    }

    /// The options of a client's write, whose owner is the manager it names or else the client itself.
    pub fn of_client(user: Arc<User>, verb: &str, query: &Query, headers: &HeaderMap) -> Result<WriteOptions, Error> {
        let manager = query.first("fieldManager").unwrap_or_default();
        let mut problems = manager_problems(manager);
        problems.extend(dry_run_problem(query.all("dryRun")));
        let validation = query.first("fieldValidation").unwrap_or_default();
        if !VALIDATIONS.contains(&validation) {
            let path = Path::new("fieldValidation");
            problems.push(FieldError::not_supported(&path, validation, VALIDATIONS));
        }
        if !problems.is_empty() {
            return Err(invalid_options(verb, problems));
        }
        let manager = match manager {
            "" => agent(headers),
            manager => manager.to_owned(),
        };
        let mut options = WriteOptions::of_verb(user, verb, query)?;
        options.tracking = Tracking::By(manager);
        Ok(options)
    }

    /// The same for what follows from a request that admission has seen.
    pub fn after_admission(&self) -> WriteOptions {
        WriteOptions {
            admitted: true,
            ..self.clone()
        }
    }

    /// The manager that writes.
    pub fn manager(&self) -> &str {
        match &self.tracking {
            Tracking::By(manager) => manager,
            Tracking::Done | Tracking::Off => "",
        }
    }
}

pub fn invalid_options(verb: &str, problems: Vec<FieldError>) -> Error {
    let options = match verb {
        "create" => &CREATE_OPTIONS,
        "update" => &UPDATE_OPTIONS,
        "delete" => &DELETE_OPTIONS,
        "list" => &LIST_OPTIONS,
        _ => &PATCH_OPTIONS,
    };
    Error::invalid(options, "", problems)
}

fn manager_problems(manager: &str) -> Vec<FieldError> {
    let path = Path::new("fieldManager");
    let mut problems = Vec::new();
    if manager.len() > MAX_MANAGER_BYTES {
        problems.push(FieldError::too_long(&path, MAX_MANAGER_BYTES));
    }
    for (at, character) in manager
        .char_indices()
        .filter(|(_, character)| !is_printable(*character))
    {
        let shown = format!("invalid character U+{:04X} (at position {at})", character as u32);
        problems.push(FieldError::invalid(&path, manager, shown));
    }
    problems
}

/// Letters, marks, numbers, punctuation, symbols and the plain space.
fn is_printable(character: char) -> bool {
    !character.is_control() && (character == ' ' || !character.is_whitespace())
}

/// A client's name: its `User-Agent` up to the first slash.
fn agent(headers: &HeaderMap) -> String {
    let agent = headers
        .get(USER_AGENT)
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .unwrap_or_default();
    let name = agent.split('/').next().unwrap_or_default();
    let mut short = String::new();
    for character in name.chars().filter(|character| is_printable(*character)) {
        if short.len() + character.len_utf8() > MAX_MANAGER_BYTES {
            break;
        }
        short.push(character);
    }
    short
}

fn dry_run(verb: &str, values: &[String]) -> Result<bool, Error> {
    match dry_run_problem(values) {
        Some(problem) => Err(invalid_options(verb, vec![problem])),
        None => Ok(!values.is_empty()),
    }
}

/// `All` is the only value there is. An empty one is none: whoever writes `dryRun=` did not mean to write for real.
pub fn dry_run_problem(values: &[String]) -> Option<FieldError> {
    let is_known = values.iter().all(|value| value == "All");
    (!is_known).then(|| FieldError::not_supported(&Path::new("dryRun"), values.to_vec(), &["All"]))
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

/// A number of a query; what is none is refused in the words of upstream's language.
pub fn parse_int(text: &str) -> Result<i64, Error> {
    text.parse()
        .map_err(|_| Error::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
}
