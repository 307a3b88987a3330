//! YAML objects: read as plain values, then brought into form as JSON is.

use serde_saphyr::DuplicateKeyPolicy;

use crate::json::{DecodeError, Decoded, normalize};
use crate::{TypeRef, Value};

/// Reads an object of type `ty` from one YAML document. Of duplicate keys the last wins, and the first of them is
/// reported as upstream's strict reader does.
pub fn decode_yaml(ty: TypeRef<'_>, data: &[u8]) -> Result<Decoded, DecodeError> {
    let mut decoded = decode_untyped_yaml(data)?;
    decoded.problems.extend(normalize(ty, &mut decoded.value)?);
    Ok(decoded)
}

/// Reads one YAML document as it stands and reports the first key that comes twice.
pub fn decode_untyped_yaml(data: &[u8]) -> Result<Decoded, DecodeError> {
    let value = parse_yaml(data)?;
    let mut problems = Vec::new();
    if let Err(error) = read(data, DuplicateKeyPolicy::Error) {
        problems.push(duplicate_problem(&error));
    }
    Ok(Decoded { value, problems })
}

/// Reads one YAML document as it stands.
pub fn parse_yaml(data: &[u8]) -> Result<Value, DecodeError> {
    read(data, DuplicateKeyPolicy::LastWins).map_err(|error| {
        DecodeError::Yaml(format!(
            "error converting YAML to JSON: yaml: {}{}",
            line_of(&error),
            error.without_snippet()
        ))
    })
}

/// What upstream's strict reader says of the first key that comes twice in one mapping.
pub fn duplicate_yaml_key(data: &[u8]) -> Option<String> {
    read(data, DuplicateKeyPolicy::Error)
        .err()
        .map(|error| duplicate_problem(&error))
}

fn read(data: &[u8], duplicate_keys: DuplicateKeyPolicy) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    serde_saphyr::from_slice_with_options(data, options)
}

fn duplicate_problem(error: &serde_saphyr::Error) -> String {
    let detail = match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("key {} already set in map", crate::go::quote(key))
        }
        other => other.to_string(),
    };
    format!("yaml: unmarshal errors:\n  {}{detail}", line_of(error))
}

fn line_of(error: &serde_saphyr::Error) -> String {
    error
        .location()
        .map(|location| format!("line {}: ", location.line()))
        .unwrap_or_default()
}
