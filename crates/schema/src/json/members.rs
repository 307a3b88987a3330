//! The members of a struct while it is being read. They are put in order once, at the end: fields are numbered in the
//! order of their names, so that the finished map is built without a search.

use serde_json::Map;

use super::zero;
use crate::Value;
use crate::model::{Field, Schema, Type, TypeId};

#[derive(Default)]
pub(crate) struct Members {
    /// Positions of fields and their values, each position once.
    found: Vec<(usize, Value)>,
}

impl Members {
    /// Adds a field that is not there yet, unless Go would leave its value out.
    pub fn put(&mut self, field: &Field, position: usize, value: Value) {
        if !field.omits(&value) {
            self.found.push((position, value));
        }
    }

    /// The members of a struct that was finished before.
    pub fn from_map(ty: &Type, map: Map<String, Value>) -> Self {
        let found = map
            .into_iter()
            .filter_map(|(name, value)| Some((ty.position(&name)?, value)));
        Members { found: found.collect() }
    }

    /// Takes a field out again.
    pub fn take(&mut self, position: usize) -> Option<Value> {
        let at = self.index(position)?;
        Some(self.found.remove(at).1)
    }

    /// The place of a field, null where there was nothing.
    pub fn slot(&mut self, position: usize) -> &mut Value {
        let at = self.index(position).unwrap_or_else(|| {
            self.found.push((position, Value::Null));
            self.found.len() - 1
        });
        &mut self.found[at].1
    }

    fn index(&self, position: usize) -> Option<usize> {
        self.found.iter().rposition(|(found, _)| *found == position)
    }

    /// The struct's map, with the fields that Go writes even when they hold nothing.
    pub fn finish(mut self, schema: &Schema, id: TypeId) -> Map<String, Value> {
        if !self.found.is_sorted_by_key(|(position, _)| *position) {
            self.found.sort_unstable_by_key(|(position, _)| *position);
        }
        let ty = schema.get(id);
        let mut members = Vec::with_capacity(self.found.len() + ty.always.len());
        let mut always = ty.always.iter().map(|&position| usize::from(position)).peekable();
        let mut add = |position: usize, value: Value| {
            members.push((ty.fields[position].name.to_string(), value));
        };
        for (position, value) in self.found {
            while let Some(missing) = always.next_if(|&missing| missing < position) {
                add(missing, empty(schema, &ty.fields[missing]));
            }
            always.next_if_eq(&position);
            add(position, value);
        }
        always.for_each(|missing| add(missing, empty(schema, &ty.fields[missing])));
        members.into_iter().collect()
    }
}

/// What Go writes for a field that holds nothing.
pub(super) fn empty(schema: &Schema, field: &Field) -> Value {
    if field.pointer {
        Value::Null
    } else {
        zero(schema, field.shape)
    }
}
