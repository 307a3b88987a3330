//! What is wrong with a field, in the words clients know.

use std::fmt;

use crate::Value;

/// The place of a field inside an object: `spec.containers[0].name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    pub fn new(field: &str) -> Path {
        Path(field.to_owned())
    }

    pub fn child(&self, field: &str) -> Path {
        if self.0.is_empty() {
            Path(field.to_owned())
        } else {
            Path(format!("{}.{field}", self.0))
        }
    }

    pub fn index(&self, index: usize) -> Path {
        Path(format!("{}[{index}]", self.0))
    }

    pub fn key(&self, key: &str) -> Path {
        Path(format!("{}[{key}]", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldProblem {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
}

/// One reason why an object is not accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub problem: FieldProblem,
    pub field: String,
    pub value: Value,
    pub detail: String,
}

impl FieldProblem {
    /// The cause's `reason` on the wire.
    pub fn reason(self) -> &'static str {
        match self {
            FieldProblem::NotFound => "FieldValueNotFound",
            FieldProblem::Required => "FieldValueRequired",
            FieldProblem::Duplicate => "FieldValueDuplicate",
            FieldProblem::Invalid => "FieldValueInvalid",
            FieldProblem::NotSupported => "FieldValueNotSupported",
            FieldProblem::Forbidden => "FieldValueForbidden",
            FieldProblem::TooLong => "FieldValueTooLong",
            FieldProblem::TooMany => "FieldValueTooMany",
            FieldProblem::TypeInvalid => "FieldValueTypeInvalid",
            FieldProblem::Internal => "InternalError",
        }
    }

    fn title(self) -> &'static str {
        match self {
            FieldProblem::NotFound => "Not found",
            FieldProblem::Required => "Required value",
            FieldProblem::Duplicate => "Duplicate value",
            FieldProblem::Invalid | FieldProblem::TypeInvalid => "Invalid value",
            FieldProblem::NotSupported => "Unsupported value",
            FieldProblem::Forbidden => "Forbidden",
            FieldProblem::TooLong => "Too long",
            FieldProblem::TooMany => "Too many",
            FieldProblem::Internal => "Internal error",
        }
    }
}

impl FieldError {
    pub fn new(problem: FieldProblem, path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError {
            problem,
            field: path.to_string(),
            value: value.into(),
            detail: detail.into(),
        }
    }

    pub fn required(path: &Path, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldProblem::Required, path, Value::Null, detail)
    }

    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldProblem::Invalid, path, value, detail)
    }

    pub fn forbidden(path: &Path, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldProblem::Forbidden, path, Value::Null, detail)
    }

    pub fn duplicate(path: &Path, value: impl Into<Value>) -> FieldError {
        FieldError::new(FieldProblem::Duplicate, path, value, "")
    }

    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> FieldError {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        FieldError::new(
            FieldProblem::NotSupported,
            path,
            value,
            format!("supported values: {}", quoted.join(", ")),
        )
    }

    /// The text without the field's path, as a cause carries it.
    pub fn body(&self) -> String {
        let title = self.problem.title();
        let mut body = match self.problem {
            FieldProblem::Required | FieldProblem::Forbidden | FieldProblem::TooLong | FieldProblem::Internal => {
                title.to_owned()
            }
            _ => match &self.value {
                Value::Null => format!("{title}: null"),
                value => format!("{title}: {value}"),
            },
        };
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.body())
    }
}

/// What is wrong with a DNS-1123 subdomain; with `prefix` a trailing dash is fine because a suffix follows.
pub fn dns1123_subdomain(name: &str, prefix: bool) -> Vec<String> {
    let mut problems = Vec::new();
    let checked = mask_trailing_dash(name, prefix);
    if name.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    if checked.is_empty() || !checked.split('.').all(is_dns1123_label_text) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems
}

/// What is wrong with a DNS-1123 label, the form of namespaces, containers and volumes.
pub fn dns1123_label(name: &str, prefix: bool) -> Vec<String> {
    let mut problems = Vec::new();
    let checked = mask_trailing_dash(name, prefix);
    if name.len() > 63 {
        problems.push("must be no more than 63 characters".to_owned());
    }
    if !is_dns1123_label_text(&checked) {
        problems.push(DNS1123_LABEL.to_owned());
    }
    problems
}

/// What is wrong with a name that only has to fit into a URL path.
pub fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let forbidden = ["/", "%"].into_iter().filter(|text| name.contains(text));
    forbidden.map(|text| format!("may not contain '{text}'")).collect()
}

/// A generated name ends in a suffix, so that a prefix may end in a dash.
fn mask_trailing_dash(name: &str, prefix: bool) -> String {
    match name.strip_suffix('-') {
        Some(rest) if prefix && !rest.is_empty() => format!("{rest}a"),
        _ => name.to_owned(),
    }
}

const DNS1123_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

fn is_dns1123_label_text(label: &str) -> bool {
    let bytes = label.as_bytes();
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}
