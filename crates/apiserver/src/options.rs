//! The options of requests, as their queries and headers give them: who says what to the registry, in which words it is
//! refused.

use std::sync::Arc;

use api::{Error, FieldError, Path, Reason, Resource, selector};
use auth::User;
use http::HeaderMap;
use http::header::USER_AGENT;
use registry::{
    Continuation, DeleteOptions, FieldValidation, ListOptions, ListRequest, Registry, Served, Tracking, WriteOptions,
    check_fields,
};

use crate::request::Query;

const VALIDATIONS: &[&str] = &["", "Ignore", "Strict", "Warn"];

/// The bound of a manager's name, in bytes.
const MAX_MANAGER_BYTES: usize = 128;

/// Options as messages name them.
static CREATE_OPTIONS: Resource = Resource::cluster("meta.k8s.io", "v1", "CreateOptions", "", "");
static UPDATE_OPTIONS: Resource = Resource::cluster("meta.k8s.io", "v1", "UpdateOptions", "", "");
static PATCH_OPTIONS: Resource = Resource::cluster("meta.k8s.io", "v1", "PatchOptions", "", "");
static DELETE_OPTIONS: Resource = Resource::cluster("meta.k8s.io", "v1", "DeleteOptions", "", "");
static LIST_OPTIONS: Resource = Resource::cluster("meta.k8s.io", "v1", "ListOptions", "", "");

/// The options of a write that owns no fields.
pub fn write_options(user: Arc<User>, query: &Query) -> Result<WriteOptions, Error> {
    write_options_of_verb(user, "create", query)
}

/// The options of a client's write, whose owner is the manager it names or else the client itself.
pub fn client_write_options(
    user: Arc<User>,
    verb: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Result<WriteOptions, Error> {
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
    let mut options = write_options_of_verb(user, verb, query)?;
    options.tracking = Tracking::By(manager);
    Ok(options)
}

fn write_options_of_verb(user: Arc<User>, verb: &str, query: &Query) -> Result<WriteOptions, Error> {
    Ok(WriteOptions {
        user,
        dry_run: dry_run(verb, query.all("dryRun"))?,
        validation: validation(query)?,
        tracking: Tracking::Off,
        admitted: false,
        received_us: trace::now_us(),
    })
}

/// The options of a request without a body; where there is one, the query says nothing.
pub fn delete_options(query: &Query) -> Result<DeleteOptions, Error> {
    let seconds = query.text("gracePeriodSeconds").map(parse_int).transpose()?;
    let orphan = query.first("orphanDependents");
    Ok(DeleteOptions {
        grace_period_seconds: seconds,
        propagation_policy: query.first("propagationPolicy").map(str::to_owned),
        orphan_dependents: orphan.map(|_| query.flag("orphanDependents")),
        dry_run: query.all("dryRun").to_vec(),
        preconditions: None,
    })
}

/// Whether the options of a deletion, from a query or a body, make sense.
pub fn check_delete_options(options: &DeleteOptions) -> Result<(), Error> {
    let path = Path::new("propagationPolicy");
    let policy = options.propagation_policy.as_deref();
    let mut problems = Vec::new();
    if let (Some(policy), true) = (policy, options.orphan_dependents.is_some()) {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        problems.push(FieldError::invalid(&path, policy, detail));
    }
    if let Some(other) = policy.filter(|policy| !matches!(*policy, "Foreground" | "Background" | "Orphan")) {
        let supported = ["Foreground", "Background", "Orphan", "nil"];
        problems.push(FieldError::not_supported(&path, other, &supported));
    }
    problems.extend(dry_run_problem(&options.dry_run));
    match problems.is_empty() {
        true => Ok(()),
        false => Err(invalid_options("delete", problems)),
    }
}

/// What a list or the start of a watch asks for.
pub fn list_request(
    registry: &Registry,
    served: &Arc<Served>,
    namespace: &str,
    name: &str,
    query: &Query,
) -> Result<ListRequest, Error> {
    // What is no number is refused before anything is understood; a negative limit is none.
    let limit = query.text("limit").map(parse_int).transpose()?.unwrap_or(0);
    let limit = usize::try_from(limit).unwrap_or(0);
    query.text("timeoutSeconds").map(parse_int).transpose()?;
    let labels = selector::parse_labels(query.first("labelSelector").unwrap_or_default())
        .map_err(|error| Error::bad_request(error.to_string()))?;
    let fields = selector::parse_fields(query.first("fieldSelector").unwrap_or_default())
        .map_err(|error| Error::bad_request(error.to_string()))?;
    check_fields(served, &fields)?;
    check_options(query)?;
    let continuation = query.text("continue").map(Continuation::decode).transpose()?;
    let resource_version = query.text("resourceVersion").map(revision).transpose()?;
    let exact = query.text("resourceVersionMatch") == Some("Exact");
    if continuation.is_some() && resource_version.is_some_and(|revision| revision > 0) {
        return Err(Error::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let options = ListOptions {
        labels,
        fields,
        limit,
        resource_version,
        exact,
        continuation,
    };
    ListRequest::new(registry, served, namespace, name, options)
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

/// Combinations of options that mean nothing.
fn check_options(query: &Query) -> Result<(), Error> {
    let matching = query.text("resourceVersionMatch");
    let path = Path::new("resourceVersionMatch");
    let mut problems = Vec::new();
    let mut forbid = |detail: &str| problems.push(FieldError::forbidden(&path, detail));
    let initial = query.text("sendInitialEvents").is_some();
    let continues = "resourceVersionMatch is forbidden when continue is provided";
    if query.flag("watch") {
        if initial && matching != Some("NotOlderThan") {
            forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if let Some(matching) = matching {
            if !initial {
                forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
            }
            if query.text("continue").is_some() {
                forbid(continues);
            }
            if matching != "NotOlderThan" {
                problems.push(FieldError::not_supported(&path, matching, &["NotOlderThan"]));
            }
        }
    } else {
        if let Some(matching) = matching {
            if query.text("resourceVersion").is_none() {
                forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if query.text("continue").is_some() {
                forbid(continues);
            }
            if matching == "Exact" && query.text("resourceVersion") == Some("0") {
                forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
            if !["Exact", "NotOlderThan"].contains(&matching) {
                problems.push(FieldError::not_supported(
                    &path,
                    matching,
                    &["Exact", "NotOlderThan", ""],
                ));
            }
        }
        if initial {
            let path = Path::new("sendInitialEvents");
            problems.push(FieldError::forbidden(&path, "sendInitialEvents is forbidden for list"));
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(invalid_options("list", problems)),
    }
}

/// The revision that the answer to a GET may not be older than. Upstream has no reason for what is none, unlike in lists.
pub fn revision_of_get(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| {
        let why =
            format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
        Error::new(Reason::Unknown, why)
    })
}

fn revision(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| {
        Error::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: \
             invalid syntax"
        ))
    })
}
