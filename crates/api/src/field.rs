//! What is wrong with a field, in the words clients know.

use std::fmt;
use std::sync::Arc;

use crate::Value;

/// The place of a field inside an object: `spec.containers[0].name`. It is written out only where it is told: an item of
/// a long list below a long key costs no more than any other.
#[derive(Clone, Debug, Default)]
pub struct Path(Option<Arc<Step>>);

/// The last step to a place, and the place it starts from.
#[derive(Debug)]
struct Step {
    from: Path,
    text: StepText,
}

#[derive(Debug)]
enum StepText {
    Field(String),
    Index(usize),
    Key(String),
}

impl Path {
    pub fn new(field: &str) -> Path {
        Path::default().child(field)
    }

    /// A field of the struct at this place; an empty one is the struct itself.
    pub fn child(&self, field: &str) -> Path {
        match field {
            "" => self.clone(),
            field => self.step(StepText::Field(field.to_owned())),
        }
    }

    pub fn index(&self, index: usize) -> Path {
        self.step(StepText::Index(index))
    }

    pub fn key(&self, key: &str) -> Path {
        self.step(StepText::Key(key.to_owned()))
    }

    fn step(&self, text: StepText) -> Path {
        Path(Some(Arc::new(Step {
            from: self.clone(),
            text,
        })))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(step) = &self.0 else { return Ok(()) };
        step.from.fmt(formatter)?;
        match &step.text {
            StepText::Field(field) if step.from.0.is_none() => formatter.write_str(field),
            StepText::Field(field) => write!(formatter, ".{field}"),
            StepText::Index(index) => write!(formatter, "[{index}]"),
            StepText::Key(key) => write!(formatter, "[{key}]"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldProblem {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    /// Like `Invalid`, of a struct that is not shown.
    InvalidWhole,
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
            FieldProblem::Invalid | FieldProblem::InvalidWhole => "FieldValueInvalid",
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
            FieldProblem::Invalid | FieldProblem::InvalidWhole | FieldProblem::TypeInvalid => "Invalid value",
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

    pub fn too_long(path: &Path, bytes: usize) -> FieldError {
        let detail = format!("may not be more than {bytes} bytes");
        FieldError::new(FieldProblem::TooLong, path, Value::Null, detail)
    }

    pub fn too_many(path: &Path, actual: usize, most: usize) -> FieldError {
        FieldError::new(
            FieldProblem::TooMany,
            path,
            actual,
            format!("must have at most {most} items"),
        )
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
            FieldProblem::Required
            | FieldProblem::InvalidWhole
            | FieldProblem::Forbidden
            | FieldProblem::TooLong
            | FieldProblem::Internal => title.to_owned(),
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
