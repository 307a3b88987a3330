//! Pod templates as raw values: pods made from them, compared, and hashed. Fields we do not know pass through.

use api::{Fields, ObjectMeta, Resource, Value};
use serde_json::json;

use crate::owner::controller_reference;

pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Letters and digits without vowels and look-alikes, so that generated names spell no words.
const SAFE_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A new pod of this template under its controller, with a generated name.
pub fn pod(template: &Value, resource: &Resource, owner: &ObjectMeta) -> Value {
    let mut metadata = json!({
        "generateName": format!("{}-", owner.name),
        "ownerReferences": [controller_reference(resource, owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if template["metadata"].has(field) {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// Whether two templates make the same pods, apart from the label that tells their ReplicaSets apart.
pub fn is_same(one: &Value, other: &Value) -> bool {
    normal(one) == normal(other)
}

/// The hash of a template for names and labels. Stable as long as the template's fields are: JSON objects are sorted.
pub fn hash(template: &Value, collisions: i64) -> String {
    let mut hash = Fnv::default();
    hash.add(normal(template).to_string().as_bytes());
    if collisions > 0 {
        hash.add(&collisions.to_le_bytes());
    }
    safe_text(&hash.0.to_string())
}

/// A text in the safe alphabet, byte by byte.
pub fn safe_text(text: &str) -> String {
    let safe = |byte: u8| SAFE_ALPHABET[byte as usize % SAFE_ALPHABET.len()] as char;
    text.bytes().map(safe).collect()
}

/// The template without what does not count: the hash label, and metadata that is null or empty.
fn normal(template: &Value) -> Value {
    let mut template = template.clone();
    let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) else {
        return template;
    };
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.remove(POD_TEMPLATE_HASH);
    }
    metadata.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty()));
    if metadata.is_empty() {
        template.remove("metadata");
    }
    template
}

/// FNV-1a with 32 bits.
struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0x811c_9dc5)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_content_alone() {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a"}]}});
        let mut labelled = template.clone();
        labelled["metadata"]["labels"][POD_TEMPLATE_HASH] = "5d59d67564".into();
        labelled["metadata"]["creationTimestamp"] = Value::Null;
        assert!(is_same(&template, &labelled));
        assert_eq!(hash(&template, 0), hash(&labelled, 0));
        assert_ne!(hash(&template, 0), hash(&template, 1));
        // A change of this value would start a rollout of every Deployment whose ReplicaSet is not recognised.
        assert_eq!(hash(&template, 0), "7489d875c5");
    }
}
