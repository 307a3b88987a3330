//! Selectors as they stand in a query.

use super::{Requirement, Selector};
use crate::names::{label_key, label_value};

/// Parses `app=web,tier in (front,back),!legacy,size>3`.
pub fn parse_labels(text: &str) -> Result<Selector, String> {
    Parser {
        tokens: tokens(text),
        at: 0,
    }
    .selector()
}

/// Parses `spec.nodeName=one,status.phase!=Failed`. In a value `\` escapes `,`, `=` and itself.
pub fn parse_fields(text: &str) -> Result<Selector, String> {
    let mut requirements = Vec::new();
    let mut terms = split_terms(text);
    terms.sort_unstable();
    for term in terms.into_iter().filter(|term| !term.is_empty()) {
        let not_understood = || format!("invalid selector: '{text}'; can't understand '{term}'");
        let at = term.find('=').ok_or_else(not_understood)?;
        let (field, negated) = match term[..at].strip_suffix('!') {
            Some(field) => (field, true),
            None => (&term[..at], false),
        };
        let rest = &term[at + 1..];
        let value = unescape(if negated {
            rest
        } else {
            rest.strip_prefix('=').unwrap_or(rest)
        })?;
        let field = field.to_owned();
        requirements.push(if negated {
            Requirement::NotEquals(field, value)
        } else {
            Requirement::Equals(field, value)
        });
    }
    Ok(Selector { requirements })
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence: String = other.into_iter().collect();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{sequence}"));
                }
            },
            // Upstream prints the character's number here.
            ',' | '=' => {
                let number = u32::from(character);
                return Err(format!(
                    "invalid field selector: unescaped character in value: {number}"
                ));
            }
            _ => plain.push(character),
        }
    }
    Ok(plain)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    In,
    NotIn,
    Symbol,
    End,
}

struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

fn tokens(mut text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', '\r', '\n']);
        if text.is_empty() {
            break;
        }
        let (kind, length) = match SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
            Some(symbol) => (Kind::Symbol, symbol.len()),
            None => {
                let end = text.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '>', '<']);
                let length = end.unwrap_or(text.len());
                let kind = match &text[..length] {
                    "in" => Kind::In,
                    "notin" => Kind::NotIn,
                    _ => Kind::Word,
                };
                (kind, length)
            }
        };
        tokens.push(Token {
            kind,
            text: &text[..length],
        });
        text = &text[length..];
    }
    tokens.push(Token {
        kind: Kind::End,
        text: "",
    });
    tokens
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn selector(mut self) -> Result<Selector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                token if token.kind == Kind::End => return Ok(Selector { requirements }),
                token if token.kind == Kind::Word || token.text == "!" => {}
                token => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        token.text
                    ));
                }
            }
            let requirement = self
                .requirement()
                .map_err(|problem| format!("unable to parse requirement: {problem}"))?;
            requirements.push(requirement);
            match self.next() {
                token if token.kind == Kind::End => return Ok(Selector { requirements }),
                token if token.text == "," => match self.peek() {
                    token if token.kind == Kind::Word || token.text == "!" => {}
                    token => return Err(format!("found '{}', expected: identifier after ','", token.text)),
                },
                token => return Err(format!("found '{}', expected: ',' or 'end of string'", token.text)),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.skip("!");
        let key = self.next();
        if key.kind != Kind::Word {
            return Err(format!("found '{}', expected: identifier", key.text));
        }
        let key = key.text.to_owned();
        check_key(&key)?;
        let next = self.peek();
        if negated || next.kind == Kind::End || next.text == "," {
            return Ok(if negated {
                Requirement::Absent(key)
            } else {
                Requirement::Exists(key)
            });
        }
        let operator = self.next();
        match (operator.kind, operator.text) {
            (Kind::In, _) => Ok(Requirement::In(key.clone(), self.values(&key)?)),
            (Kind::NotIn, _) => Ok(Requirement::NotIn(key.clone(), self.values(&key)?)),
            (_, "=" | "==") => Ok(Requirement::Equals(key.clone(), self.value(&key)?)),
            (_, "!=") => Ok(Requirement::NotEquals(key.clone(), self.value(&key)?)),
            (_, ">") => Ok(Requirement::GreaterThan(key.clone(), self.bound(&key)?)),
            (_, "<") => Ok(Requirement::LessThan(key.clone(), self.bound(&key)?)),
            (_, text) => Err(format!("found '{text}', expected: {BINARY_OPERATORS}")),
        }
    }

    /// A value may be missing: `app=` asks for an empty one.
    fn value(&mut self, key: &str) -> Result<String, String> {
        let token = self.peek();
        if token.kind == Kind::End || token.text == "," {
            return Ok(String::new());
        }
        let token = self.next();
        if token.kind == Kind::Symbol {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        check_value(key, 0, token.text)?;
        Ok(token.text.to_owned())
    }

    fn bound(&mut self, key: &str) -> Result<i64, String> {
        let value = self.value(key)?;
        let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
        value
            .parse()
            .map_err(|_| format!("values[0]: Invalid value: {value:?}: {detail}"))
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        let open = self.next();
        if open.text != "(" {
            return Err(format!("found '{}' expected: '('", open.text));
        }
        let mut values: Vec<String> = Vec::new();
        loop {
            let token = self.peek();
            if token.kind == Kind::Symbol && !matches!(token.text, "," | ")") || token.kind == Kind::End {
                return Err(format!("found '{}', expected: ',', ')' or identifier", token.text));
            }
            let value = if token.kind == Kind::Symbol {
                ""
            } else {
                self.next().text
            };
            values.push(value.to_owned());
            match self.next() {
                token if token.text == ")" => break,
                token if token.text == "," => {}
                token => return Err(format!("found '{}', expected: ',' or ')'", token.text)),
            }
        }
        values.sort_unstable();
        values.dedup();
        for (index, value) in values.iter().enumerate() {
            check_value(key, index, value)?;
        }
        Ok(values)
    }

    fn peek(&self) -> &Token<'a> {
        &self.tokens[self.at]
    }

    /// The end is never passed.
    fn next(&mut self) -> &Token<'a> {
        let token = &self.tokens[self.at];
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn skip(&mut self, text: &str) -> bool {
        let found = self.peek().text == text;
        if found {
            self.next();
        }
        found
    }
}

fn check_key(key: &str) -> Result<(), String> {
    match label_key(key) {
        problems if problems.is_empty() => Ok(()),
        problems => Err(format!("key: Invalid value: {key:?}: {}", problems.join("; "))),
    }
}

fn check_value(key: &str, index: usize, value: &str) -> Result<(), String> {
    match label_value(value) {
        problems if problems.is_empty() => Ok(()),
        problems => Err(format!(
            "values[{index}][{key}]: Invalid value: {value:?}: {}",
            problems.join("; ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expect: Expect) {
        let shown = match parse_labels(text) {
            Ok(selector) => format!("{:?}", selector.requirements),
            Err(problem) => problem,
        };
        expect.assert_eq(&shown);
    }

    #[test]
    fn labels_are_selected_by_equality_sets_presence_and_size() {
        check(
            "app=web, tier in (front,back),!legacy,zone,size>3,env!=prod,v==",
            expect![[
                r#"[Equals("app", "web"), In("tier", ["back", "front"]), Absent("legacy"), Exists("zone"), GreaterThan("size", 3), NotEquals("env", "prod"), Equals("v", "")]"#
            ]],
        );
        check("", expect!["[]"]);
        check("a in (,b)", expect![[r#"[In("a", ["", "b"])]"#]]);
        check("x notin ()", expect![[r#"[NotIn("x", [""])]"#]]);
    }

    #[test]
    fn what_is_not_a_selector_is_explained() {
        check("app=web,", expect!["found '', expected: identifier after ','"]);
        check(
            "app web",
            expect!["unable to parse requirement: found 'web', expected: in, notin, =, ==, !=, gt, lt"],
        );
        check(
            "a in b",
            expect!["unable to parse requirement: found 'b' expected: '('"],
        );
        check("(a)", expect!["found '(', expected: !, identifier, or 'end of string'"]);
        check(
            "a in (b",
            expect!["unable to parse requirement: found '', expected: ',' or ')'"],
        );
        check(
            "a>b",
            expect![[
                r#"unable to parse requirement: values[0]: Invalid value: "b": for 'Gt', 'Lt' operators, the value must be an integer"#
            ]],
        );
        check(
            "a=-",
            expect![[
                r#"unable to parse requirement: values[0][a]: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#
            ]],
        );
    }

    #[test]
    fn fields_are_selected_by_equality_only() {
        let parse = |text| parse_fields(text).map(|selector| format!("{:?}", selector.requirements));
        assert_eq!(
            parse(r"spec.nodeName=one,status.phase!=Failed,a==x\,y"),
            Ok(
                r#"[Equals("a", "x,y"), Equals("spec.nodeName", "one"), NotEquals("status.phase", "Failed")]"#
                    .to_owned()
            )
        );
        assert_eq!(
            parse("x"),
            Err("invalid selector: 'x'; can't understand 'x'".to_owned())
        );
        assert_eq!(
            parse("a=b=c"),
            Err("invalid field selector: unescaped character in value: 61".to_owned())
        );
    }
}
