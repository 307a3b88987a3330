//! What must hold for every object of every kind, and for any bytes at all.

use proptest::prelude::*;
use schema::{TypeRef, Value};

use crate::generate::{self, Choices};

fn any_kind() -> impl Strategy<Value = TypeRef<'static>> {
    let kinds: Vec<TypeRef<'static>> = schema::builtin().kinds().map(|(_, _, ty)| ty).collect();
    proptest::sample::select(kinds)
}

fn any_struct() -> impl Strategy<Value = TypeRef<'static>> {
    let types: Vec<TypeRef<'static>> = schema::builtin().types().collect();
    proptest::sample::select(types)
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..2000)
}

/// A client's object after decoding.
fn decoded(ty: TypeRef<'_>, bytes: &[u8]) -> Value {
    let object = generate::object(ty, &mut Choices::messy(bytes));
    schema::decode_json(ty, &serde_json::to_vec(&object).unwrap())
        .unwrap()
        .value
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_to_protobuf_and_back_is_the_same(ty in any_struct(), bytes in choices()) {
        let mut value = generate::object(ty, &mut Choices::tidy(&bytes));
        schema::normalize(ty, &mut value).unwrap();
        if let Ok(message) = schema::encode_protobuf(ty, &value) {
            prop_assert_eq!(schema::decode_protobuf(ty, &message).unwrap(), value);
        } else {
            prop_assert!(ty.name.starts_with("meta/v1.Table"), "{} has no message", ty.name);
        }
    }

    #[test]
    fn decoding_and_normalizing_are_one_thing(ty in any_kind(), bytes in choices()) {
        let object = generate::object(ty, &mut Choices::messy(&bytes));
        let decoded = schema::decode_json(ty, &serde_json::to_vec(&object).unwrap()).unwrap();
        let mut normalized = object;
        let problems = schema::normalize(ty, &mut normalized).unwrap();
        prop_assert_eq!(&decoded.value, &normalized);
        prop_assert_eq!(&decoded.problems, &problems);
    }

    #[test]
    fn what_was_decoded_decodes_to_itself(ty in any_kind(), bytes in choices()) {
        // A pointer to the zero time is written as null and read as none, in Go as well; after that nothing changes.
        let settled = schema::decode_json(ty, &schema::encode_json(&decoded(ty, &bytes))).unwrap().value;
        let again = schema::decode_json(ty, &schema::encode_json(&settled)).unwrap();
        prop_assert_eq!(settled, again.value);
        prop_assert!(again.problems.is_empty());
    }

    #[test]
    fn empty_patches_change_nothing(ty in any_kind(), bytes in choices()) {
        let value = decoded(ty, &bytes);
        let nothing = Value::Object(Default::default());
        prop_assert_eq!(&schema::strategic_merge_patch(ty, &value, &nothing).unwrap(), &value);
        prop_assert_eq!(&schema::merge_patch(&value, &nothing), &value);
        prop_assert_eq!(&schema::json_patch(&value, &Value::Array(Vec::new())).unwrap(), &value);
    }

    #[test]
    fn applying_a_strategic_patch_twice_is_applying_it_once(ty in any_kind(), bytes in choices()) {
        let mut choices = Choices::tidy(&bytes);
        let mut live = generate::object(ty, &mut choices);
        generate::identify(ty, &mut live, &mut choices);
        let mut patch = generate::object(ty, &mut choices);
        generate::identify(ty, &mut patch, &mut choices);
        generate::make_unique(ty, &mut live);
        generate::make_unique(ty, &mut patch);
        if let Ok(once) = schema::strategic_merge_patch(ty, &live, &patch) {
            let twice = schema::strategic_merge_patch(ty, &once, &patch).unwrap();
            prop_assert_eq!(json_without_order(&once), json_without_order(&twice));
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(ty in any_struct(), bytes in choices()) {
        let _ = schema::decode_json(ty, &bytes);
        let _ = schema::decode_untyped(&bytes);
        let _ = schema::decode_protobuf(ty, &bytes);
        let _ = schema::decode_object(schema::builtin(), &[b"k8s\0".as_slice(), &bytes].concat());
        let _ = schema::envelope::decode(&bytes);
    }

    #[test]
    fn nearly_right_bytes_do_not_make_a_reader_panic(
        ty in any_kind(), bytes in choices(), at in any::<proptest::sample::Index>(), put in any::<u8>(),
    ) {
        let value = decoded(ty, &bytes);
        for mut encoded in [Some(schema::encode_json(&value)), schema::encode_protobuf(ty, &value).ok()].into_iter().flatten() {
            if !encoded.is_empty() {
                let position = at.index(encoded.len());
                encoded[position] = put;
            }
            let _ = schema::decode_json(ty, &encoded);
            let _ = schema::decode_yaml(ty, &encoded);
            let _ = schema::decode_protobuf(ty, &encoded);
        }
    }

    #[test]
    fn no_text_makes_a_leaf_panic(text in ".{0,40}", quantity in "[+-]?[0-9.]{0,45}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,12}") {
        let _ = schema::quantity::canonicalize(&text);
        let _ = schema::time::parse(&text);
        let _ = schema::time::parse_micro(&text);
        if let Ok(parsed) = quantity.parse::<schema::quantity::Quantity>() {
            let canonical = parsed.to_string();
            prop_assert_eq!(&canonical.parse::<schema::quantity::Quantity>().unwrap(), &parsed, "{}", canonical);
            let mut double = parsed.clone();
            double.add(&parsed);
            double.sub(&parsed);
            let _ = (double.value(), double.milli_value(), double.to_f64(), double.cmp(&parsed));
        }
    }
}

/// Merged lists may be ordered anew by a second patch; what they hold must not change.
fn json_without_order(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(json_without_order).collect();
            items.sort_by_key(|item| item.to_string());
            Value::Array(items)
        }
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), json_without_order(value)))
            .collect(),
        other => other.clone(),
    }
}
