//! The values that text fields of built-in types may have.

use std::collections::HashMap;
use std::sync::LazyLock;

use api::Value;

/// Lines of `VALUE|VALUE|…: FIELD FIELD …`, each field behind the name of its type.
static TABLE: &str = include_str!("../../openapi/enums.txt");

static BY_FIELD: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let sets = lines.filter_map(|line| line.split_once(": "));
    sets.flat_map(|(values, fields)| fields.split(' ').map(move |field| (field, values)))
        .collect()
});

/// Adds the values to the schema of a field, of its items or of its values.
pub fn add(schema: &mut Value, type_name: &str, field: &str) {
    let places = [("", None), ("[]", Some("items")), ("{}", Some("additionalProperties"))];
    for (end, inner) in places {
        let key = format!("{type_name}.{field}{end}");
        if let Some(values) = BY_FIELD.get(key.as_str()) {
            let values: Value = values.split('|').collect();
            let place = match inner {
                Some(inner) => &mut schema[inner],
                None => &mut *schema,
            };
            place["enum"] = values;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that is spelled wrong in the table would silently describe nothing.
    #[test]
    fn every_field_of_the_table_exists() {
        for key in BY_FIELD.keys() {
            let (type_name, field) = key.rsplit_once('.').expect("a type and a field");
            let ty = schema::builtin().named(type_name).expect(type_name);
            let field = field.trim_end_matches("[]").trim_end_matches("{}");
            assert!(ty.fields().any(|known| *known.name == *field), "{key}");
        }
    }
}
