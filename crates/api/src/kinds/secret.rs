//! Secret: settings that are not for every eye.

use super::config_map::{DATA_BYTES, data_bytes, validate_sealed};
use crate::names::config_key;
use crate::print::{self, AGE, NAME};
use crate::warnings::key_pair;
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

pub static SECRET: Resource = Resource::namespaced("", "v1", "Secret", "secrets", "secret")
    .converting_field_labels()
    .with_rules(&SecretRules);

struct SecretRules;

impl Rules for SecretRules {
    fn default(&self, secret: &mut Value) {
        secret.fill("type", "Opaque");
        encode_string_data(secret);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        new.fill("type", old["type"].clone());
    }

    fn validate(&self, secret: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("data");
        let mut bytes = 0;
        for (key, value) in secret.entries("data") {
            problems.form(&path.key(key), "", key.as_str(), config_key(key));
            bytes += data_bytes(value, true);
        }
        if bytes > DATA_BYTES {
            problems.extend([FieldError::too_long(&path, DATA_BYTES)]);
        }
        validate_type(secret, &path, &mut problems);
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(new, old, &Path::default(), "type");
        problems.extend(validate_sealed(new, old, &["data"]).into_vec());
        problems.into_vec()
    }

    fn warnings(&self, secret: &Value) -> Vec<String> {
        match secret.text("type") {
            "kubernetes.io/tls" => pair_problem(&secret["data"]).into_iter().collect(),
            _ => Vec::new(),
        }
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

/// Why nobody could serve with the certificate and the key.
fn pair_problem(data: &Value) -> Option<String> {
    let [certificate, key] = ["tls.crt", "tls.key"].map(|key| BASE64.decode(data.text(key)).unwrap_or_default());
    key_pair::problem(&certificate, &key)
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

const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// Each well-known type has keys that its readers rely on.
fn validate_type(secret: &Value, path: &Path, problems: &mut Problems) {
    let data = &secret["data"];
    match secret.text("type") {
        "kubernetes.io/service-account-token" if secret["metadata"]["annotations"].text(ACCOUNT_NAME).is_empty() => {
            let path = Path::new("metadata").child("annotations").key(ACCOUNT_NAME);
            problems.required(&path, "", "");
        }
        "kubernetes.io/dockercfg" => validate_json(data, ".dockercfg", path, problems),
        "kubernetes.io/dockerconfigjson" => validate_json(data, ".dockerconfigjson", path, problems),
        "kubernetes.io/basic-auth" if !data.has("username") && !data.has("password") => {
            problems.required(&path.key("username"), "", "");
            problems.required(&path.key("password"), "", "");
        }
        "kubernetes.io/ssh-auth" if data.text("ssh-privatekey").is_empty() => {
            problems.required(&path.key("ssh-privatekey"), "", "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| !data.has(key)) {
                problems.required(&path.key(key), "", "");
            }
        }
        _ => {}
    }
}

fn validate_json(data: &Value, key: &str, path: &Path, problems: &mut Problems) {
    let Some(encoded) = data[key].as_str() else {
        return problems.required(&path.key(key), "", "");
    };
    let decoded = BASE64.decode(encoded).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(&decoded) {
        problems.invalid(&path.key(key), "", "<secret contents redacted>", error.to_string());
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Type", "What the secret is for."),
    print::text("Data", "How many keys it holds."),
    AGE,
];
