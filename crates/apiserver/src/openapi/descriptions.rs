//! What the fields of built-in types are for, in words. The data comes from the k8s-openapi crate's schemas
//! (`cargo xtask descriptions`) and is unpacked when a document is made.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, Weak};

/// Lines of `TYPE<tab>text`, each followed by its fields' `<tab>FIELD<tab>text`; texts have no line breaks.
static PACKED: &[u8] = include_bytes!("../../openapi/descriptions.txt.gz");

type Texts = HashMap<String, String>;

/// Unpacked while somebody needs them: documents are made in one go, and texts are large.
static UNPACKED: Mutex<Weak<Texts>> = Mutex::new(Weak::new());

pub fn of_type(name: &str) -> Option<String> {
    texts().get(name).cloned()
}

pub fn of_field(name: &str, field: &str) -> Option<String> {
    texts().get(&format!("{name}\t{field}")).cloned()
}

/// Keeps the texts unpacked while a document is made.
pub fn hold() -> Arc<Texts> {
    texts()
}

fn texts() -> Arc<Texts> {
    let mut unpacked = UNPACKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(texts) = unpacked.upgrade() {
        return texts;
    }
    let texts = Arc::new(unpack());
    *unpacked = Arc::downgrade(&texts);
    texts
}

fn unpack() -> Texts {
    let mut text = String::new();
    // The data is our own; a test makes sure that it can be read.
    let _ = flate2::read::GzDecoder::new(PACKED).read_to_string(&mut text);
    let mut texts = HashMap::new();
    let mut current = "";
    for line in text.lines() {
        let mut parts = line.splitn(3, '\t');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(""), Some(field), Some(text)) => {
                texts.insert(format!("{current}\t{field}"), text.replace("\\n", "\n"));
            }
            (Some(name), Some(text), None) => {
                current = name;
                texts.insert(name.to_owned(), text.replace("\\n", "\n"));
            }
            _ => {}
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packed_texts_can_be_read() {
        let _held = hold();
        let name = "io.k8s.api.core.v1.Pod";
        assert!(of_type(name).is_some_and(|text| text.contains("collection of containers")));
        assert!(of_field(name, "metadata").is_some());
        assert_eq!(of_field(name, "nothing"), None);
    }
}
