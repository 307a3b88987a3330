//! A pull parser over JSON bytes, with Go's error texts and Go's leniency: what is not UTF-8 inside a string becomes
//! U+FFFD, and so does half a surrogate pair.

use std::borrow::Cow;

use serde_json::Number;

use super::DecodeError;
use crate::Value;

/// How deep arrays and objects may nest. Decoding recurses, so this bounds the stack.
pub const MAX_DEPTH: usize = 256;

pub(crate) type Result<T> = std::result::Result<T, DecodeError>;

/// Reads one whole JSON document as it stands, with the leniency and the error texts of Go; of duplicates the last wins.
pub fn parse_json(data: &[u8]) -> Result<Value> {
    let mut reader = Reader::new(data);
    let value = reader.any()?;
    reader.end()?;
    Ok(value)
}

pub(crate) struct Reader<'a> {
    data: &'a [u8],
    position: usize,
    depth: usize,
}

/// What the next value is, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Null,
    Bool(bool),
    Number,
    String,
    Array,
    Object,
}

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Reader {
            data,
            position: 0,
            depth: 0,
        }
    }

    /// Looks at the next value. Null and booleans are consumed, as their first byte says all.
    pub fn next(&mut self) -> Result<Next> {
        match self.peek()? {
            b'"' => Ok(Next::String),
            b'{' => Ok(Next::Object),
            b'[' => Ok(Next::Array),
            b'-' | b'0'..=b'9' => Ok(Next::Number),
            b'n' => self.literal("null").map(|()| Next::Null),
            b't' => self.literal("true").map(|()| Next::Bool(true)),
            b'f' => self.literal("false").map(|()| Next::Bool(false)),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    pub fn begin(&mut self) -> Result<()> {
        self.position += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(DecodeError::Syntax("exceeded max depth".to_owned()));
        }
        Ok(())
    }

    /// The next key of the object that [`Reader::begin`] entered, or `None` past its end.
    pub fn key(&mut self, first: &mut bool) -> Result<Option<Cow<'a, str>>> {
        let mut byte = self.peek()?;
        if byte == b'}' {
            self.position += 1;
            self.depth -= 1;
            return Ok(None);
        }
        if !std::mem::take(first) {
            if byte != b',' {
                return Err(self.unexpected("after object key:value pair"));
            }
            self.position += 1;
            byte = self.peek()?;
        }
        if byte != b'"' {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        let key = self.string()?;
        if self.peek()? != b':' {
            return Err(self.unexpected("after object key"));
        }
        self.position += 1;
        Ok(Some(key))
    }

    /// Whether the array that [`Reader::begin`] entered has another element.
    pub fn element(&mut self, first: &mut bool) -> Result<bool> {
        let byte = self.peek()?;
        if byte == b']' {
            if !*first && self.data[self.position - 1] == b',' {
                return Err(self.unexpected("looking for beginning of value"));
            }
            self.position += 1;
            self.depth -= 1;
            return Ok(false);
        }
        if std::mem::take(first) {
            return Ok(true);
        }
        if byte != b',' {
            return Err(self.unexpected("after array element"));
        }
        self.position += 1;
        if self.peek()? == b']' {
            return Err(self.unexpected("looking for beginning of value"));
        }
        Ok(true)
    }

    pub fn string(&mut self) -> Result<Cow<'a, str>> {
        self.position += 1;
        let start = self.position;
        let rest = &self.data[start..];
        let length = plain_length(rest);
        self.position += length;
        if rest.get(length) == Some(&b'"') {
            self.position += 1;
            return Ok(text(&rest[..length]));
        }
        let mut bytes = rest[..length].to_vec();
        loop {
            match self.data.get(self.position) {
                None => return Err(end_of_input()),
                Some(b'"') => break,
                Some(b'\\') => self.escape(&mut bytes)?,
                Some(0..0x20) => return Err(self.unexpected("in string literal")),
                Some(&byte) => {
                    bytes.push(byte);
                    self.position += 1;
                }
            }
        }
        self.position += 1;
        Ok(Cow::Owned(text(&bytes).into_owned()))
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        self.position += 1;
        let plain = match self.data.get(self.position) {
            None => return Err(end_of_input()),
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(&byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'u') => return self.unicode_escape(bytes),
            Some(_) => return Err(self.unexpected("in string escape code")),
        };
        self.position += 1;
        bytes.push(plain);
        Ok(())
    }

    fn unicode_escape(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        let mut code = self.hex4()?;
        let is_high = (0xd800..0xdc00).contains(&code);
        if is_high && self.data.get(self.position..self.position + 2) == Some(b"\\u") {
            let before = self.position;
            self.position += 1;
            let low = self.hex4()?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            } else {
                self.position = before;
            }
        }
        let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// Four hexadecimal digits, after the `u` at the current position.
    fn hex4(&mut self) -> Result<u32> {
        let mut code = 0;
        self.position += 1;
        for _ in 0..4 {
            let byte = *self.data.get(self.position).ok_or_else(end_of_input)?;
            let Some(digit) = (byte as char).to_digit(16) else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
            self.position += 1;
        }
        Ok(code)
    }

    /// The text of a number.
    pub fn number(&mut self) -> Result<&'a str> {
        let start = self.position;
        if self.at(b'-') {
            self.position += 1;
        }
        if self.at(b'0') {
            self.position += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.at(b'.') {
            self.position += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if self.at(b'e') || self.at(b'E') {
            self.position += 1;
            if self.at(b'+') || self.at(b'-') {
                self.position += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        std::str::from_utf8(&self.data[start..self.position]).map_err(|_| end_of_input())
    }

    fn digits(&mut self, context: &str) -> Result<()> {
        let rest = &self.data[self.position..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if length == 0 {
            return Err(if rest.is_empty() {
                end_of_input()
            } else {
                self.unexpected(context)
            });
        }
        self.position += length;
        Ok(())
    }

    fn at(&self, byte: u8) -> bool {
        self.data.get(self.position) == Some(&byte)
    }

    /// Any value, as it stands.
    pub fn any(&mut self) -> Result<Value> {
        Ok(match self.next()? {
            Next::Null => Value::Null,
            Next::Bool(value) => Value::Bool(value),
            Next::Number => parse_number(self.number()?)?,
            Next::String => Value::String(self.string()?.into_owned()),
            Next::Array => {
                self.begin()?;
                let mut items = Vec::new();
                let mut first = true;
                while self.element(&mut first)? {
                    items.push(self.any()?);
                }
                Value::Array(items)
            }
            Next::Object => {
                self.begin()?;
                let mut map = serde_json::Map::new();
                let mut first = true;
                while let Some(key) = self.key(&mut first)? {
                    let value = self.any()?;
                    map.insert(key.into_owned(), value);
                }
                Value::Object(map)
            }
        })
    }

    /// Passes over the value whose first byte `next` has seen.
    pub fn skip(&mut self, next: Next) -> Result<()> {
        match next {
            Next::Null | Next::Bool(_) => {}
            Next::Number => {
                self.number()?;
            }
            Next::String => {
                self.string()?;
            }
            Next::Array => {
                self.begin()?;
                let mut first = true;
                while self.element(&mut first)? {
                    let next = self.next()?;
                    self.skip(next)?;
                }
            }
            Next::Object => {
                self.begin()?;
                let mut first = true;
                while self.key(&mut first)?.is_some() {
                    let next = self.next()?;
                    self.skip(next)?;
                }
            }
        }
        Ok(())
    }

    pub fn end(&mut self) -> Result<()> {
        match self.peek() {
            Ok(_) => Err(self.unexpected("after top-level value")),
            Err(_) => Ok(()),
        }
    }

    fn peek(&mut self) -> Result<u8> {
        while let Some(&byte) = self.data.get(self.position) {
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Ok(byte);
            }
            self.position += 1;
        }
        Err(end_of_input())
    }

    fn literal(&mut self, expected: &str) -> Result<()> {
        for (index, wanted) in expected.bytes().enumerate() {
            match self.data.get(self.position) {
                None => return Err(end_of_input()),
                Some(&byte) if byte == wanted => self.position += 1,
                Some(_) => {
                    let wanted = expected.as_bytes()[index] as char;
                    return Err(self.unexpected(&format!("in literal {expected} (expecting '{wanted}')")));
                }
            }
        }
        Ok(())
    }

    fn unexpected(&self, context: &str) -> DecodeError {
        let byte = self.data.get(self.position).copied().unwrap_or_default();
        let shown = match byte {
            b'\'' => "'\\''".to_owned(),
            b'"' => "'\"'".to_owned(),
            _ => {
                let quoted = crate::go::quote(&char::from(byte).to_string());
                format!("'{}'", &quoted[1..quoted.len() - 1])
            }
        };
        DecodeError::Syntax(format!("invalid character {shown} {context}"))
    }
}

/// How many bytes stand before the first that ends a string, escapes in it or may not be in it. Eight bytes are looked
/// at together: subtracting borrows from a byte's high bit exactly where it was below the threshold or equal to the
/// byte sought, as long as the high bit was clear before.
fn plain_length(bytes: &[u8]) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let equal = |word: u64, byte: u8| {
        let difference = word ^ (EACH * u64::from(byte));
        difference.wrapping_sub(EACH) & !difference
    };
    let mut length = 0;
    for chunk in bytes.chunks_exact(8) {
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        let word = u64::from_le_bytes(eight);
        let control = word.wrapping_sub(EACH * 0x20) & !word;
        if (equal(word, b'"') | equal(word, b'\\') | control) & HIGH != 0 {
            break;
        }
        length += 8;
    }
    let ends = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
    length + bytes[length..].iter().position(ends).unwrap_or(bytes.len() - length)
}

/// A number as Kubernetes reads it where no type is given: an integer if it fits one, else floating point.
pub(crate) fn parse_number(text: &str) -> Result<Value> {
    if !text.contains('.')
        && let Ok(integer) = text.parse::<i64>()
    {
        return Ok(Value::from(integer));
    }
    text.parse()
        .ok()
        .and_then(Number::from_f64)
        .map(Value::Number)
        .ok_or_else(|| {
            DecodeError::Type(format!(
                "json: cannot unmarshal number {text} into Go value of type float64"
            ))
        })
}

fn end_of_input() -> DecodeError {
    DecodeError::Syntax("unexpected end of JSON input".to_owned())
}

/// Bytes as text, with what is not UTF-8 replaced.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(replace_invalid(bytes)),
    }
}

/// Go replaces every byte that is not part of a character, each on its own.
fn replace_invalid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}
