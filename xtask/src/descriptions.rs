//! Packs the descriptions of built-in types from the source of the k8s-openapi crate, which states them as JSON schemas.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Where the packed texts go.
const TARGET: &str = "crates/apiserver/openapi/descriptions.txt.gz";

#[derive(clap::Args)]
pub struct DescriptionsArgs {
    /// The unpacked source of the k8s-openapi crate
    #[arg(long)]
    source: PathBuf,
    /// The API version to take
    #[arg(long, default_value = "v1_36")]
    version: String,
}

/// A type's text and its fields'.
#[derive(Default)]
struct Described {
    text: String,
    fields: BTreeMap<String, String>,
}

pub fn run(args: &DescriptionsArgs) -> Result<()> {
    let mut types = BTreeMap::new();
    read_folder(&args.source.join("src").join(&args.version), &mut types)?;
    ensure!(!types.is_empty(), "no schemas below {}", args.source.display());
    let mut text = String::new();
    for (name, described) in &types {
        text.push_str(&format!("{name}\t{}\n", described.text));
        for (field, of_field) in &described.fields {
            text.push_str(&format!("\t{field}\t{of_field}\n"));
        }
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes())?;
    let packed = encoder.finish()?;
    if let Some(folder) = Path::new(TARGET).parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(TARGET, &packed).with_context(|| format!("cannot write {TARGET}"))?;
    println!("{TARGET}: {} types, {} bytes", types.len(), packed.len());
    Ok(())
}

fn read_folder(folder: &Path, types: &mut BTreeMap<String, Described>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            read_folder(&path, types)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            read_source(&fs::read_to_string(&path)?, types);
        }
    }
    Ok(())
}

/// Reads what is after `schema_name`: the type's own description at the outermost level, the fields' one level below.
fn read_source(source: &str, types: &mut BTreeMap<String, Described>) {
    let Some((_, schema)) = source.split_once("fn schema_name()") else {
        return;
    };
    let mut lines = schema.lines().skip(1);
    let Some(name) = lines.next().and_then(|line| literal(line.trim())) else {
        return;
    };
    let mut described = Described::default();
    let mut field = None;
    for line in lines {
        let depth = line.len() - line.trim_start().len();
        let line = line.trim_start();
        let text = line
            .strip_prefix("\"description\": ")
            .or_else(|| line.strip_prefix("schema_obj.ensure_object().insert(\"description\".into(), "))
            .and_then(literal);
        match (depth, text) {
            (12, Some(text)) => described.text = text,
            (20, Some(text)) => {
                if let Some(field) = &field {
                    described.fields.insert(String::clone(field), text);
                }
            }
            (16, _) if line.ends_with('{') => field = literal(line),
            _ => {}
        }
    }
    types.insert(name, described);
}

/// The string literal that a line begins with, with line breaks and tabs as escapes.
fn literal(line: &str) -> Option<String> {
    let mut text = String::new();
    let mut characters = line.strip_prefix('"')?.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => return Some(text),
            '\\' => match characters.next()? {
                'n' => text.push_str("\\n"),
                't' => text.push(' '),
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_types_and_fields_are_found() {
        let source = r#"
impl JsonSchema for A {
    fn schema_name() -> Cow<'static, str> {
        "io.k8s.A".into()
    }
    fn json_schema() {
        json_schema!({
            "description": "An \"A\".\nIndeed.",
            "properties": {
                "b": {
                    "description": "The b.",
                },
                "c": ({
                    schema_obj.ensure_object().insert("description".into(), "The c.".into());
                }),
            },
        })
"#;
        let mut types = BTreeMap::new();
        read_source(source, &mut types);
        let found = &types["io.k8s.A"];
        assert_eq!(found.text, "An \"A\".\\nIndeed.");
        assert_eq!(found.fields["b"], "The b.");
        assert_eq!(found.fields["c"], "The c.");
    }
}
