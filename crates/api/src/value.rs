//! Reading and filling fields of objects without a struct for each of them.

use std::collections::HashSet;
use std::hash::Hash;

use serde_json::Map;

use crate::Value;

/// For each item whether it was there before. One pass, because clients may send very long lists.
pub fn repeats<T: Hash + Eq>(items: impl IntoIterator<Item = T>) -> Vec<bool> {
    let mut seen = HashSet::new();
    items.into_iter().map(|item| !seen.insert(item)).collect()
}

/// The different texts that a field has in a list, for whoever looks up many names in it.
pub fn texts<'a>(items: &'a [Value], field: &str) -> HashSet<&'a str> {
    items.iter().map(|item| item.text(field)).collect()
}

/// Fields of a JSON object by name. Reading what is absent, or has another type, gives the zero value, as it does in
/// the API's own types; only the `_mut` methods that say so create anything.
pub trait Fields {
    fn text(&self, field: &str) -> &str;
    fn number(&self, field: &str) -> i64;
    fn flag(&self, field: &str) -> bool;
    fn list(&self, field: &str) -> &[Value];
    /// Whether the field holds anything, a zero included.
    fn has(&self, field: &str) -> bool;
    /// The entries of a map or struct.
    fn entries<'a>(&'a self, field: &str) -> Box<dyn Iterator<Item = (&'a String, &'a Value)> + 'a>;

    fn list_mut(&mut self, field: &str) -> &mut [Value];
    /// A struct that is there.
    fn child_mut(&mut self, field: &str) -> Option<&mut Value>;
    /// A struct, created when it is not there.
    fn ensure(&mut self, field: &str) -> &mut Value;
    fn set(&mut self, field: &str, value: impl Into<Value>);
    fn remove(&mut self, field: &str) -> Option<Value>;
    /// Sets a field that is absent or an empty text.
    fn fill(&mut self, field: &str, value: impl Into<Value>);
    /// Sets a field that is absent; an empty text is a mistake that is left to validation.
    fn fill_absent(&mut self, field: &str, value: impl Into<Value>);
    /// Sets a field that is absent or zero, where zero cannot be meant.
    fn fill_zero(&mut self, field: &str, value: i64);
}

impl Fields for Value {
    fn text(&self, field: &str) -> &str {
        self[field].as_str().unwrap_or_default()
    }

    fn number(&self, field: &str) -> i64 {
        self[field].as_i64().unwrap_or_default()
    }

    fn flag(&self, field: &str) -> bool {
        self[field].as_bool().unwrap_or_default()
    }

    fn list(&self, field: &str) -> &[Value] {
        self[field].as_array().map_or(&[], Vec::as_slice)
    }

    fn has(&self, field: &str) -> bool {
        !self[field].is_null()
    }

    fn entries<'a>(&'a self, field: &str) -> Box<dyn Iterator<Item = (&'a String, &'a Value)> + 'a> {
        Box::new(self[field].as_object().into_iter().flatten())
    }

    fn list_mut(&mut self, field: &str) -> &mut [Value] {
        self.get_mut(field)
            .and_then(Value::as_array_mut)
            .map_or(&mut [], Vec::as_mut_slice)
    }

    fn child_mut(&mut self, field: &str) -> Option<&mut Value> {
        self.get_mut(field).filter(|value| value.is_object())
    }

    fn ensure(&mut self, field: &str) -> &mut Value {
        let child = object(self).entry(field).or_insert(Value::Null);
        object(child);
        child
    }

    fn set(&mut self, field: &str, value: impl Into<Value>) {
        object(self).insert(field.to_owned(), value.into());
    }

    fn remove(&mut self, field: &str) -> Option<Value> {
        self.as_object_mut()?.remove(field)
    }

    fn fill(&mut self, field: &str, value: impl Into<Value>) {
        if self[field].is_null() || self[field] == "" {
            self.set(field, value);
        }
    }

    fn fill_absent(&mut self, field: &str, value: impl Into<Value>) {
        if self[field].is_null() {
            self.set(field, value);
        }
    }

    fn fill_zero(&mut self, field: &str, value: i64) {
        if self.number(field) == 0 {
            self.set(field, value);
        }
    }
}

/// The value as an object; anything else becomes an empty one, which only happens to values that decoding would have
/// refused.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("the value has just been made an object"),
    }
}
