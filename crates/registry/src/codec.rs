//! How values stand in etcd: protobuf behind upstream's envelope, so that an upstream API server reads them too.

use api::Value;
use bytes::Bytes;
use store::etcd::{Codec, CodecError};

/// The groups whose objects upstream stores as JSON.
pub(crate) const STORED_AS_JSON: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// Converts between the JSON that the server keeps and the bytes that upstream stores.
pub struct EtcdCodec;

impl Codec for EtcdCodec {
    fn to_disk(&self, key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
        // What is no JSON is none of ours, encrypted perhaps: whoever put it there gets it back as it was.
        let Ok(object) = serde_json::from_slice::<Value>(value) else {
            return Ok(value.clone());
        };
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        // Kinds outside of the table are custom resources, which upstream stores as JSON too, as it does with what
        // defines them.
        let api_version = text("apiVersion");
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        if STORED_AS_JSON.contains(&group) || schema::builtin().object(api_version, text("kind")).is_none() {
            return Ok(value.clone());
        }
        schema::encode_object(schema::builtin(), &object)
            .map(Bytes::from)
            .map_err(|error| failed(key, error))
    }

    fn from_disk(&self, key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
        if !schema::envelope::is_envelope(value) {
            return present_version(key, value);
        }
        let object = schema::decode_object(schema::builtin(), value).map_err(|error| failed(key, error))?;
        // Kept in memory: without the room that the buffer grew into.
        Ok(Bytes::copy_from_slice(&schema::encode_json(&object)))
    }
}

/// Upstream keeps definitions in a version that is not served any more.
fn present_version(key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
    if !key.contains("/apiextensions.k8s.io/customresourcedefinitions/") {
        return Ok(value.clone());
    }
    let mut definition: Value = serde_json::from_slice(value).map_err(|error| failed(key, error))?;
    api::convert(&mut definition, "apiextensions.k8s.io/v1");
    Ok(schema::encode_json(&definition).into())
}

fn failed(key: &str, why: impl std::fmt::Display) -> CodecError {
    CodecError(format!("the value of {key} cannot be converted: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_object_comes_back_as_it_was_put() {
        for put in [
            "plain text",
            "12",
            "\"text\"",
            "[1]",
            "",
            "k8s:enc:aescbc:v1:key1:\u{1}\u{2}",
        ] {
            let put = Bytes::from(put);
            let stored = EtcdCodec.from_disk("/registry/x", &put).unwrap();
            assert_eq!(EtcdCodec.to_disk("/registry/x", &stored).unwrap(), put);
        }
    }
}
