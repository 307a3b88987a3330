//! Encoded JSON for people to read: two spaces for every level, as Go's encoder indents.

/// Indents what [`super::encode_json`] wrote. Anything that is no JSON comes out as it is understood, but never fails.
pub fn indent_json(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = compact.get(at).copied() {
        match byte {
            b'"' => {
                let end = end_of_string(compact, at);
                out.extend_from_slice(&compact[at..end]);
                at = end;
                continue;
            }
            // Whatever is empty stays in one piece.
            b'{' | b'[' if matches!(compact.get(at + 1), Some(b'}' | b']')) => {
                out.extend_from_slice(&compact[at..at + 2]);
                at += 2;
                continue;
            }
            b'{' | b'[' => {
                out.push(byte);
                depth += 1;
                new_line(&mut out, depth);
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            _ => out.push(byte),
        }
        at += 1;
    }
    out
}

/// The place behind the string that begins at `start`.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn new_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_indented_and_texts_are_left_alone() {
        let compact = br#"{"a":[],"b":{},"c":[1,{"d":"x,{\"[:\\"}],"e":null}"#;
        let expected = r#"{
  "a": [],
  "b": {},
  "c": [
    1,
    {
      "d": "x,{\"[:\\"
    }
  ],
  "e": null
}"#;
        assert_eq!(String::from_utf8(indent_json(compact)).unwrap(), expected);
        let value: serde_json::Value = serde_json::from_slice(compact).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(expected).unwrap(), value);
    }

    #[test]
    fn what_is_no_json_does_no_harm() {
        for text in ["", "\"", "\"\\", "}}", "[", "{\"a"] {
            indent_json(text.as_bytes());
        }
    }
}
