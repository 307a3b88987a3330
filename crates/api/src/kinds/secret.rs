//! Secret: settings that are not for every eye.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

pub static SECRET: Resource = Resource::namespaced("", "v1", "Secret", "secrets", "secret").with_rules(&SecretRules);

struct SecretRules;

impl Rules for SecretRules {
    fn default(&self, secret: &mut Value) {
        secret.fill("type", "Opaque");
        encode_string_data(secret);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        new.fill("type", old["type"].clone());
    }

    fn field(&self, secret: &Value, path: &str) -> Option<String> {
        (path == "type").then(|| secret.text("type").to_owned())
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, secret: &Value, now: i64) -> Vec<Value> {
        let keys = secret.entries("data").count();
        vec![
            print::name(secret),
            secret.text("type").into(),
            keys.into(),
            print::age(secret, now),
        ]
    }
}

/// `stringData` is how a person writes what is kept as `data`.
fn encode_string_data(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret.remove("stringData") else {
        return;
    };
    let data = secret.ensure("data");
    for (key, text) in texts {
        data.set(&key, BASE64.encode(text.as_str().unwrap_or_default()));
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Type", "What the secret is for."),
    print::text("Data", "How many keys it holds."),
    AGE,
];
