//! The envelope in which a protobuf object travels and is stored: four bytes of prefix and a message that names the
//! object's type.

use super::ProtobufError;
use super::wire::{BackWriter, Fields, Wire};

/// What every enveloped object begins with.
pub const PREFIX: &[u8; 4] = b"k8s\0";

/// An enveloped object, its body not yet decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    /// The message's body.
    pub raw: &'a [u8],
    pub content_encoding: &'a str,
    /// Empty for protobuf; `application/json` where the body is JSON.
    pub content_type: &'a str,
}

/// Whether the bytes begin as an envelope does.
pub fn is_envelope(data: &[u8]) -> bool {
    data.starts_with(PREFIX)
}

pub fn decode(data: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    let body = data.strip_prefix(PREFIX).ok_or(ProtobufError::NoEnvelope)?;
    let mut envelope = Envelope::default();
    let mut fields = Fields::new(body);
    while let Some(field) = fields.next()? {
        match field {
            (1, Wire::Bytes(type_meta)) => decode_type_meta(type_meta, &mut envelope)?,
            (2, Wire::Bytes(raw)) => envelope.raw = raw,
            (3, Wire::Bytes(bytes)) => envelope.content_encoding = text(bytes)?,
            (4, Wire::Bytes(bytes)) => envelope.content_type = text(bytes)?,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Wraps a message's body.
pub fn encode(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut writer = BackWriter::with_capacity(raw.len() + api_version.len() + kind.len() + 32);
    writer.bytes_field(4, b"");
    writer.bytes_field(3, b"");
    writer.bytes_field(2, raw);
    let before = writer.len();
    writer.bytes_field(2, kind.as_bytes());
    writer.bytes_field(1, api_version.as_bytes());
    writer.close(1, before);
    writer.bytes(PREFIX);
    writer.into_vec()
}

fn decode_type_meta<'a>(data: &'a [u8], envelope: &mut Envelope<'a>) -> Result<(), ProtobufError> {
    let mut fields = Fields::new(data);
    while let Some(field) = fields.next()? {
        match field {
            (1, Wire::Bytes(bytes)) => envelope.api_version = text(bytes)?,
            (2, Wire::Bytes(bytes)) => envelope.kind = text(bytes)?,
            _ => {}
        }
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::Malformed("a string is not UTF-8"))
}
