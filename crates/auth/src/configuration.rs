//! The configuration files of the API server (`apiserver.config.k8s.io`, `audit.k8s.io`), read strictly: a field that
//! nobody knows is an error, because what it should have done would not happen.

use api::FieldError;
use schema::Value;
use serde::de::DeserializeOwned;

/// The longest configuration file that is read.
pub const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    #[error("the file is not valid YAML: {0}")]
    Syntax(String),
    #[error("no kind {kind:?} is registered for version {version:?}; want {wanted} of {versions}")]
    Kind {
        kind: String,
        version: String,
        wanted: &'static str,
        versions: String,
    },
    #[error("strict decoding error: {0}")]
    Fields(String),
    #[error("{}", aggregate(.0))]
    Invalid(Vec<FieldError>),
}

/// Reads one document of the kind in one of the versions.
pub fn parse<T: DeserializeOwned>(text: &str, kind: &'static str, versions: &[&str]) -> Result<T, ConfigurationError> {
    let decoded =
        schema::decode_untyped_yaml(text.as_bytes()).map_err(|error| ConfigurationError::Syntax(error.to_string()))?;
    if let Some(problem) = decoded.problems.first() {
        return Err(ConfigurationError::Fields(problem.clone()));
    }
    let mut value = decoded.value;
    let mut take = |field: &str| match value.as_object_mut().and_then(|object| object.remove(field)) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let (version, found) = (take("apiVersion"), take("kind"));
    if found != kind || !versions.contains(&version.as_str()) {
        return Err(ConfigurationError::Kind {
            kind: found,
            version,
            wanted: kind,
            versions: versions.join(", "),
        });
    }
    serde_json::from_value(value).map_err(|error| ConfigurationError::Fields(error.to_string()))
}

/// Several problems in one line, as upstream prints them.
fn aggregate(problems: &[FieldError]) -> String {
    let mut texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.dedup();
    match texts.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(rename = "size")]
        _size: u32,
    }

    fn problem(text: &str) -> String {
        parse::<Sample>(text, "Sample", &["example.com/v1"])
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn only_the_kind_in_a_known_version_with_known_fields_is_read() {
        let good = "apiVersion: example.com/v1\nkind: Sample\nsize: 1\n";
        assert!(parse::<Sample>(good, "Sample", &["example.com/v1"]).is_ok());
        assert!(problem("apiVersion: example.com/v2\nkind: Sample\nsize: 1\n").starts_with("no kind \"Sample\""));
        assert!(problem(&format!("{good}sise: 2\n")).contains("unknown field `sise`"));
        assert!(
            problem(&format!("{good}size: 2\n")).contains("already set"),
            "a key that comes twice"
        );
        assert!(problem("a: [").starts_with("the file is not valid YAML"));
        assert!(problem("").starts_with("no kind \"\""));
    }
}
