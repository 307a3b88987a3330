//! Documents without a schema: patches, and the objects of kinds that are not built in.

use serde_json::Map;

use super::Decoded;
use super::decode::Problems;
use super::path::Path;
use super::reader::{Next, Reader, Result, parse_number};
use crate::Value;

/// Reads a document as it stands and reports the fields that come twice, of which the last wins.
pub fn decode_untyped(data: &[u8]) -> Result<Decoded> {
    let mut decoder = Untyped {
        reader: Reader::new(data),
        problems: Problems::default(),
    };
    let value = decoder.value(&Path::ROOT)?;
    decoder.reader.end()?;
    Ok(Decoded {
        value,
        problems: decoder.problems.list,
    })
}

struct Untyped<'d> {
    reader: Reader<'d>,
    problems: Problems,
}

impl Untyped<'_> {
    fn value(&mut self, path: &Path<'_>) -> Result<Value> {
        Ok(match self.reader.next()? {
            Next::Null => Value::Null,
            Next::Bool(value) => Value::Bool(value),
            Next::Number => parse_number(self.reader.number()?)?,
            Next::String => Value::String(self.reader.string()?.into_owned()),
            Next::Array => {
                self.reader.begin()?;
                let mut items = Vec::new();
                let mut first = true;
                while self.reader.element(&mut first)? {
                    items.push(self.value(&path.index(items.len()))?);
                }
                Value::Array(items)
            }
            Next::Object => {
                self.reader.begin()?;
                let mut map = Map::new();
                let mut first = true;
                while let Some(key) = self.reader.key(&mut first)? {
                    if map.contains_key(&*key) {
                        self.problems.report("duplicate", || path.member(&key));
                    }
                    let value = self.value(&path.key(&key))?;
                    map.insert(key.into_owned(), value);
                }
                Value::Object(map)
            }
        })
    }
}
