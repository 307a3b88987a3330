//! HTTP/1.1: heads are written as they are given, paths are never corrected.

use std::io::{self, BufRead, BufReader, Read};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Stream;

/// A kept connection.
pub struct Connection<S: Stream = Box<dyn Stream>> {
    stream: BufReader<S>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body, or null when it is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Status and message in one line, as evidence.
    pub fn summary(&self) -> String {
        let message = self.json()["message"].as_str().map(str::to_owned);
        let text: String = message.unwrap_or_else(|| self.text()).chars().take(160).collect();
        format!("{} {}", self.status, text.replace('\n', " "))
            .trim_end()
            .to_owned()
    }
}

/// A request's head without the empty line at its end.
pub fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head
}

impl<S: Stream> Connection<S> {
    pub fn over(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Response> {
        let length = body.len().to_string();
        let mut all = headers.to_vec();
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            all.push(("Content-Length", &length));
        }
        self.send(format!("{}\r\n", head(method, path, &all)).as_bytes(), body)?;
        self.receive(method == "HEAD")
    }

    pub fn send(&mut self, head: &[u8], body: &[u8]) -> io::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(&[head, body].concat())?;
        stream.flush()
    }

    /// Reads one answer to its end.
    pub fn receive(&mut self, without_body: bool) -> Result<Response> {
        let mut response = self.receive_head()?;
        let length = response.header("content-length").map(str::parse::<usize>).transpose()?;
        let chunked = response
            .header("transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        if without_body || matches!(response.status, 100..200 | 204 | 304) {
            return Ok(response);
        }
        if chunked {
            while self.read_chunk(&mut response.body)? {}
        } else if let Some(length) = length {
            response.body.resize(length, 0);
            self.stream.read_exact(&mut response.body)?;
        } else {
            self.stream.read_to_end(&mut response.body)?;
        }
        Ok(response)
    }

    pub fn receive_head(&mut self) -> Result<Response> {
        let first = self.line()?;
        let mut words = first.split(' ');
        if !words.next().is_some_and(|word| word.starts_with("HTTP/1.")) {
            bail!("the answer is not HTTP/1.1: {first:?}");
        }
        let status = words.next().context("the answer has no status")?.parse()?;
        Ok(Response {
            status,
            headers: self.headers()?,
            body: Vec::new(),
        })
    }

    /// The lines up to the empty one.
    pub fn headers(&mut self) -> Result<Vec<(String, String)>> {
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(headers);
            }
            let (name, value) = line.split_once(':').with_context(|| format!("{line:?} is no header"))?;
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    pub fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        if self.stream.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Appends one chunk; false at the last one.
    pub fn read_chunk(&mut self, into: &mut Vec<u8>) -> Result<bool> {
        let size = usize::from_str_radix(self.line()?.trim(), 16).context("a chunk has no size")?;
        let before = into.len();
        into.resize(before + size, 0);
        self.stream.read_exact(&mut into[before..])?;
        self.line()?;
        Ok(size > 0)
    }

    pub fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(into)
    }

    pub fn stream(&mut self) -> &mut S {
        self.stream.get_mut()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn answered(text: &str) -> Response {
        Connection::over(Cursor::new(text.as_bytes().to_vec()))
            .receive(false)
            .unwrap()
    }

    #[test]
    fn bodies_end_by_length_by_chunks_or_with_the_connection() {
        let head = "HTTP/1.1 200 OK\r\n";
        assert_eq!(answered(&format!("{head}Content-Length: 2\r\n\r\nab??")).text(), "ab");
        assert_eq!(
            answered(&format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n??"
            ))
            .text(),
            "a"
        );
        assert_eq!(answered(&format!("{head}\r\nabc")).text(), "abc");
    }

    #[test]
    fn evidence_is_one_line() {
        let response = answered("HTTP/1.1 403 Forbidden\r\n\r\n{\"message\":\"no\\nway\"}");
        assert_eq!(response.summary(), "403 no way");
    }
}
