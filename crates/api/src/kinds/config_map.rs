//! ConfigMap: settings by key.

use crate::names::config_key;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static CONFIG_MAP: Resource = Resource::namespaced("", "v1", "ConfigMap", "configmaps", "configmap")
    .short(&["cm"])
    .with_rules(&ConfigMapRules);

struct ConfigMapRules;

impl Rules for ConfigMapRules {
    fn validate(&self, map: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let mut bytes = 0;
        for field in ["data", "binaryData"] {
            let path = Path::new(field);
            for (key, value) in map.entries(field) {
                problems.form(&path.key(key), "", key.as_str(), config_key(key));
                bytes += data_bytes(value, field == "binaryData");
            }
        }
        for (key, _) in map.entries("data").filter(|(key, _)| map["binaryData"].has(key)) {
            let detail = "duplicate of key present in binaryData";
            problems.invalid(&Path::new("data").key(key), "", key.as_str(), detail);
        }
        if bytes > DATA_BYTES {
            problems.extend([FieldError::too_long(&Path::default(), DATA_BYTES)]);
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate_sealed(new, old, &["data", "binaryData"]).into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, map: &Value, now: i64) -> Vec<Value> {
        let keys = map.entries("data").count() + map.entries("binaryData").count();
        vec![print::name(map), keys.into(), print::age(map, now)]
    }
}

/// The most that a config map or secret can hold: a mebibyte.
pub(super) const DATA_BYTES: usize = 1024 * 1024;

/// The bytes of a value, which is in base64 where it need not be text.
pub(super) fn data_bytes(value: &Value, encoded: bool) -> usize {
    let length = value.as_str().map_or(0, str::len);
    if encoded { length / 4 * 3 } else { length }
}

/// What is sealed stays as it is, and sealed.
pub(super) fn validate_sealed(new: &Value, old: &Value, fields: &[&str]) -> Problems {
    let mut problems = Problems::default();
    if !old.flag("immutable") {
        return problems;
    }
    let changed = fields.iter().filter(|field| new[**field] != old[**field]);
    let unsealed = ["immutable"].iter().filter(|_| !new.flag("immutable"));
    for field in unsealed.chain(changed) {
        problems.forbidden(&Path::new(field), "", "field is immutable when `immutable` is set");
    }
    problems
}

const COLUMNS: &[Column] = &[NAME, print::text("Data", "How many keys it holds."), AGE];

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_become_file_names_and_a_sealed_map_stays() {
        let show = |problems: Vec<FieldError>| {
            problems
                .iter()
                .map(FieldError::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let map = json!({"data": {"a/b": "x"}, "binaryData": {"c": "eA=="}});
        expect![[r#"data[a/b]: Invalid value: "a/b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#]]
            .assert_eq(&show(CONFIG_MAP.rules.validate(&map)));
        let sealed = json!({"data": {"a": "x"}, "immutable": true});
        let opened = json!({"data": {"a": "y"}});
        expect![[r#"
            immutable: Forbidden: field is immutable when `immutable` is set
            data: Forbidden: field is immutable when `immutable` is set"#]]
        .assert_eq(&show(CONFIG_MAP.rules.validate_update(&opened, &sealed)));
    }
}
