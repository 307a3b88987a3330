//! Dropping the fields that a schema does not know.

use serde_json::Map;

use super::Structural;
use super::structural::Additional;
use crate::Value;

/// Paths beyond this are not reported, as upstream bounds them.
const MAX_REPORTED: usize = 100;

/// What every object has, whatever its schema says.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops what the schema does not know from an object and returns the paths of what was dropped.
pub fn prune(schema: &Structural, object: &mut Value) -> Vec<String> {
    let mut pruner = Pruner {
        dropped: Vec::new(),
        path: String::new(),
    };
    pruner.value(Some(schema), true, object);
    pruner.dropped.sort_unstable();
    pruner.dropped
}

struct Pruner {
    dropped: Vec<String>,
    path: String,
}

impl Pruner {
    fn value(&mut self, schema: Option<&Structural>, is_object: bool, value: &mut Value) {
        match value {
            Value::Object(map) => self.map(schema, is_object, map),
            Value::Array(items) => {
                let keeps_all = schema.is_some_and(|schema| schema.preserve_unknown && schema.items.is_none());
                let schema = schema.and_then(|schema| schema.items.as_deref());
                if keeps_all {
                    return;
                }
                for (index, item) in items.iter_mut().enumerate() {
                    self.below(&format!("[{index}]"), |pruner| {
                        pruner.value(schema, schema.is_some_and(|schema| schema.embedded_resource), item);
                    });
                }
            }
            _ => {}
        }
    }

    fn map(&mut self, schema: Option<&Structural>, is_object: bool, map: &mut Map<String, Value>) {
        let mut unknown = Vec::new();
        for (key, value) in map.iter_mut() {
            if is_object && OBJECT_FIELDS.contains(&key.as_str()) {
                continue;
            }
            let step = if self.path.is_empty() {
                key.clone()
            } else {
                format!(".{key}")
            };
            let Some(schema) = schema else {
                unknown.push((key.clone(), step));
                continue;
            };
            let (known, below) = match (schema.properties.get(key), &schema.additional) {
                (Some(property), _) => (true, Some(property)),
                (None, Additional::Schema(additional)) => (true, Some(&**additional)),
                (None, Additional::Allowed(_)) => (true, None),
                (None, Additional::Unsaid) => (false, None),
            };
            match (known, schema.preserve_unknown) {
                // Nothing is said of what a kept key holds, so all of it is kept.
                (false, true) => {}
                (true, true) if below.is_none() => {}
                (false, false) => unknown.push((key.clone(), step)),
                (true, _) => self.below(&step, |pruner| {
                    pruner.value(below, below.is_some_and(|schema| schema.embedded_resource), value);
                }),
            }
        }
        for (key, step) in unknown {
            map.remove(&key);
            if self.dropped.len() < MAX_REPORTED {
                self.dropped.push(format!("{}{step}", self.path));
            }
        }
    }

    fn below(&mut self, step: &str, walk: impl FnOnce(&mut Pruner)) {
        let length = self.path.len();
        self.path.push_str(step);
        walk(self);
        self.path.truncate(length);
    }
}
