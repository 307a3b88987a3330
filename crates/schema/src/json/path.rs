//! Where in an object a problem is. Paths are linked frames on the stack and cost nothing until one is printed.

use std::fmt::Write;

use crate::model::{Field, Schema, TypeId};

#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field { owner: TypeId, field: &'a Field },
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    pub const ROOT: Path<'static> = Path {
        parent: None,
        step: Step::Root,
    };

    pub fn field(&'a self, owner: TypeId, field: &'a Field) -> Path<'a> {
        self.then(Step::Field { owner, field })
    }

    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        self.then(Step::Key(key))
    }

    pub fn index(&'a self, index: usize) -> Path<'a> {
        self.then(Step::Index(index))
    }

    fn then(&'a self, step: Step<'a>) -> Path<'a> {
        Path {
            parent: Some(self),
            step,
        }
    }

    /// The path of a member, as strict decoding names it: `spec.containers[0].foo`.
    pub fn member(&self, name: &str) -> String {
        let mut text = self.to_text();
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(name);
        text
    }

    fn to_text(self) -> String {
        let mut text = self.parent.map(|parent| parent.to_text()).unwrap_or_default();
        let name = match self.step {
            Step::Root => return text,
            Step::Index(index) => {
                let _ = write!(text, "[{index}]");
                return text;
            }
            Step::Field { field, .. } => &field.name,
            Step::Key(key) => key,
        };
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(name);
        text
    }

    /// What Go says of a value of the wrong type: it names the innermost struct and the fields down to it, without
    /// indexes and map keys.
    pub fn type_error(&self, schema: &Schema, found: &str, wanted: &str) -> String {
        let mut names: Vec<&str> = Vec::new();
        let mut innermost = None;
        let mut at = Some(self);
        while let Some(path) = at {
            if let Step::Field { owner, field } = path.step {
                innermost = innermost.or(Some(owner));
                names.push(&field.name);
                names.extend(field.inlined_by.iter().rev().map(|name| &**name));
            }
            at = path.parent;
        }
        names.reverse();
        match innermost {
            Some(owner) => format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {wanted}",
                schema.get(owner).short_name(),
                names.join(".")
            ),
            None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        }
    }
}
