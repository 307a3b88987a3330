//! A list of problems to add to while walking an object.

use crate::{FieldError, FieldProblem, Fields, Path, Value};

/// How many problems may each show one list or text as a whole: clients may send very long ones, and who has read it a
/// few times needs it no more.
pub const MAX_WHOLE: usize = 16;

/// What has been found wrong so far. Each method names the struct's path and the field in it; an empty field is the
/// struct itself.
#[derive(Default)]
pub struct Problems(Vec<FieldError>);

impl Problems {
    pub fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn extend(&mut self, problems: impl IntoIterator<Item = FieldError>) {
        self.0.extend(problems);
    }

    pub fn required(&mut self, path: &Path, field: &str, detail: &str) {
        self.0.push(FieldError::required(&path.child(field), detail));
    }

    pub fn invalid(&mut self, path: &Path, field: &str, value: impl Into<Value>, detail: impl Into<String>) {
        self.0.push(FieldError::invalid(&path.child(field), value, detail));
    }

    /// A struct, or list of structs, that as a whole is not right.
    pub fn invalid_whole(&mut self, path: &Path, field: &str, detail: impl Into<String>) {
        let problem = FieldProblem::InvalidWhole;
        self.0
            .push(FieldError::new(problem, &path.child(field), Value::Null, detail));
    }

    pub fn forbidden(&mut self, path: &Path, field: &str, detail: impl Into<String>) {
        self.0.push(FieldError::forbidden(&path.child(field), detail));
    }

    pub fn duplicate(&mut self, path: &Path, field: &str, value: impl Into<Value>) {
        self.0.push(FieldError::duplicate(&path.child(field), value));
    }

    pub fn not_found(&mut self, path: &Path, field: &str, value: impl Into<Value>) {
        self.0
            .push(FieldError::new(FieldProblem::NotFound, &path.child(field), value, ""));
    }

    /// Adds what a check of [`crate::names`] found.
    pub fn form(&mut self, path: &Path, field: &str, value: impl Into<Value> + Clone, found: Vec<String>) {
        for problem in found {
            self.invalid(path, field, value.clone(), problem);
        }
    }

    /// A text that must be there.
    pub fn needs(&mut self, object: &Value, path: &Path, field: &str) -> bool {
        let missing = object.text(field).is_empty();
        if missing {
            self.required(path, field, "");
        }
        !missing
    }

    /// A text that must be there and be one of a few.
    pub fn one_of(&mut self, object: &Value, path: &Path, field: &str, supported: &[&str]) {
        if self.needs(object, path, field) {
            self.optional_one_of(object, path, field, supported);
        }
    }

    /// A text that is one of a few, if it is there.
    pub fn optional_one_of(&mut self, object: &Value, path: &Path, field: &str, supported: &[&str]) {
        let Some(value) = object[field].as_str() else {
            return;
        };
        if !supported.contains(&value) {
            self.0
                .push(FieldError::not_supported(&path.child(field), value, supported));
        }
    }

    /// A number that must not be negative, absent ones being zero.
    pub fn not_negative(&mut self, object: &Value, path: &Path, field: &str) {
        if object.number(field) < 0 {
            self.invalid(path, field, object.number(field), "must be greater than or equal to 0");
        }
    }

    /// A part of the object that cannot change.
    pub fn immutable(&mut self, new: &Value, old: &Value, path: &Path, field: &str) {
        if new[field] != old[field] {
            self.invalid(path, field, new[field].clone(), "field is immutable");
        }
    }
}
