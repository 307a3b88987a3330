//! Text to tokens.

use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Ident(String),
    /// An identifier in backticks, for fields whose names are no identifiers.
    Quoted(String),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    /// An operator, a bracket or a separator.
    Mark(&'static str),
    End,
}

/// A token and where it starts, in characters.
pub type Placed = (Token, usize);

type Problem = (usize, String);

/// Longer ones first.
const MARKS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "+", "-", "*", "/", "%", "!", "<", ">", "=", "(", ")", "[", "]", "{", "}", ".",
    ",", ":", "?",
];

pub fn tokens(source: &str) -> Result<Vec<Placed>, Problem> {
    let characters: Vec<char> = source.chars().collect();
    let mut lexer = Lexer {
        characters: &characters,
        at: 0,
    };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let token = lexer.next()?;
        let end = token == Token::End;
        tokens.push((token, at));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    characters: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(character) = self.peek(0) {
            if character.is_whitespace() {
                self.at += 1;
            } else if character == '/' && self.peek(1) == Some('/') {
                while self.peek(0).is_some_and(|c| c != '\n') {
                    self.at += 1;
                }
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Token, Problem> {
        let Some(first) = self.peek(0) else {
            return Ok(Token::End);
        };
        if let Some(token) = self.text()? {
            return Ok(token);
        }
        if first.is_ascii_digit() || (first == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        if first.is_ascii_alphabetic() || first == '_' {
            return Ok(Token::Ident(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')));
        }
        if first == '`' {
            self.at += 1;
            let name = self.take_while(|c| c != '`' && c != '\n');
            self.at += 1;
            return Ok(Token::Quoted(name));
        }
        let mark = MARKS.iter().find(|mark| {
            let mut ahead = mark.chars().enumerate();
            ahead.all(|(index, wanted)| self.peek(index) == Some(wanted))
        });
        match mark {
            Some(mark) => {
                self.at += mark.len();
                Ok(Token::Mark(mark))
            }
            None => Err((self.at, format!("Syntax error: token recognition error at: '{first}'"))),
        }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek(0).is_some_and(&wanted) {
            self.at += 1;
        }
        self.characters[start..self.at].iter().collect()
    }

    fn number(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        let bad = |what: &str| (start, format!("invalid {what} literal"));
        if self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X')) {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            let value = u64::from_str_radix(&digits, 16).map_err(|_| bad("int"))?;
            return self.suffixed(value, bad("int"));
        }
        let mut text = self.take_while(|c| c.is_ascii_digit());
        let mut double = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            double = true;
            self.at += 1;
            text = format!("{text}.{}", self.take_while(|c| c.is_ascii_digit()));
        }
        let signed = matches!(self.peek(1), Some('+' | '-')) && self.peek(2).is_some_and(|c| c.is_ascii_digit());
        if matches!(self.peek(0), Some('e' | 'E')) && (signed || self.peek(1).is_some_and(|c| c.is_ascii_digit())) {
            double = true;
            self.at += 1;
            text.push('e');
            if signed {
                text.extend(self.peek(0));
                self.at += 1;
            }
            text.push_str(&self.take_while(|c| c.is_ascii_digit()));
        }
        if double {
            return text.parse().map(Token::Double).map_err(|_| bad("double"));
        }
        let value = text.parse().map_err(|_| bad("int"))?;
        self.suffixed(value, bad("int"))
    }

    fn suffixed(&mut self, value: u64, bad: Problem) -> Result<Token, Problem> {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return Ok(Token::Uint(value));
        }
        // The lowest integer is written as the negation of a number that is one too big.
        match i64::try_from(value) {
            Ok(value) => Ok(Token::Int(value)),
            Err(_) if value == i64::MIN.unsigned_abs() => Ok(Token::Int(i64::MIN)),
            Err(_) => Err(bad),
        }
    }

    /// A string or bytes literal with its prefixes, if one starts here.
    fn text(&mut self) -> Result<Option<Token>, Problem> {
        let (mut raw, mut bytes, mut ahead) = (false, false, 0);
        while let Some(prefix) = self.peek(ahead) {
            match prefix {
                'r' | 'R' if !raw => raw = true,
                'b' | 'B' if !bytes => bytes = true,
                '"' | '\'' => break,
                _ => return Ok(None),
            }
            ahead += 1;
        }
        let Some(quote) = self.peek(ahead) else {
            return Ok(None);
        };
        let start = self.at;
        self.at += ahead;
        let long = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let width = if long { 3 } else { 1 };
        self.at += width;
        let mut out = Vec::new();
        loop {
            let Some(character) = self.peek(0) else {
                return Err((
                    start,
                    "Syntax error: token recognition error: unterminated string".to_owned(),
                ));
            };
            if (0..width).all(|index| self.peek(index) == Some(quote)) {
                self.at += width;
                break;
            }
            if character == '\n' && !long {
                return Err((
                    start,
                    "Syntax error: token recognition error: unterminated string".to_owned(),
                ));
            }
            self.at += 1;
            match character {
                '\\' if !raw => self.escape(bytes, &mut out)?,
                other => push(&mut out, other),
            }
        }
        Ok(Some(match bytes {
            true => Token::Bytes(out.into()),
            false => Token::Text(String::from_utf8_lossy(&out).into()),
        }))
    }

    fn escape(&mut self, bytes: bool, out: &mut Vec<u8>) -> Result<(), Problem> {
        let at = self.at;
        let bad = || (at, "Syntax error: token recognition error: invalid escape".to_owned());
        let Some(kind) = self.peek(0) else { return Err(bad()) };
        self.at += 1;
        let simple = match kind {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '\\' | '\'' | '"' | '`' | '?' => kind as u8,
            _ => 0,
        };
        if simple != 0 {
            out.push(simple);
            return Ok(());
        }
        let (digits, radix) = match kind {
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='3' => {
                self.at -= 1;
                (3, 8)
            }
            _ => return Err(bad()),
        };
        let text: String = (0..digits).filter_map(|index| self.peek(index)).collect();
        self.at += digits;
        let code = u32::from_str_radix(&text, radix).map_err(|_| bad())?;
        match bytes && (radix == 8 || digits == 2) {
            true => out.push(code as u8),
            false => push(out, char::from_u32(code).ok_or_else(bad)?),
        }
        Ok(())
    }
}

fn push(out: &mut Vec<u8>, character: char) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}
