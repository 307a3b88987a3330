//! Just enough HTTP/1.1 to ask a server without the cost of starting a client: over a Unix socket, or any other stream.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A kept connection.
pub struct Connection<S: Read + Write = UnixStream> {
    stream: BufReader<S>,
}

#[derive(Debug, PartialEq)]
pub struct Response {
    pub status: u16,
    /// The `Warning` headers as they came.
    pub warnings: Vec<String>,
    pub body: Vec<u8>,
}

#[derive(Debug, PartialEq)]
struct Head {
    status: u16,
    framing: Framing,
    warnings: Vec<String>,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Framing {
    Length(usize),
    Chunked,
}

impl Connection {
    pub fn open(socket: &Path, patience: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    pub fn request(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Response> {
        self.send(method, path, body)?;
        self.receive()
    }

    /// Begins a response without end; its lines are read from what is returned.
    pub fn stream(mut self, path: &str) -> io::Result<Lines> {
        self.send("GET", path, &[])?;
        let head = read_head(&mut self.stream)?;
        match (head.status, head.framing) {
            (200, Framing::Chunked) => Ok(Lines {
                stream: self.stream,
                read: Vec::new(),
            }),
            other => Err(io::Error::other(format!(
                "a stream was expected from {path}, not {other:?}"
            ))),
        }
    }

    fn send(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<()> {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend(body);
        self.stream.get_mut().write_all(&request)
    }
}

impl<S: Read + Write> Connection<S> {
    pub fn over(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends a request whose head is complete but for the empty line, and reads the answer.
    pub fn exchange(&mut self, head: &str, body: &[u8]) -> io::Result<Response> {
        let mut request = format!("{head}\r\n").into_bytes();
        request.extend(body);
        self.stream.get_mut().write_all(&request)?;
        self.stream.get_mut().flush()?;
        self.receive()
    }

    /// The same of an answer whose body is not waited for; nothing else can be asked on this connection.
    pub fn status_of(mut self, head: &str, body: &[u8]) -> io::Result<u16> {
        let mut request = format!("{head}\r\n").into_bytes();
        request.extend(body);
        self.stream.get_mut().write_all(&request)?;
        self.stream.get_mut().flush()?;
        Ok(read_head(&mut self.stream)?.status)
    }

    fn receive(&mut self) -> io::Result<Response> {
        let head = read_head(&mut self.stream)?;
        let mut body = Vec::new();
        match head.framing {
            Framing::Length(length) => {
                body.resize(length, 0);
                self.stream.read_exact(&mut body)?;
            }
            Framing::Chunked => while read_chunk(&mut self.stream, &mut body)? {},
        }
        Ok(Response {
            status: head.status,
            warnings: head.warnings,
            body,
        })
    }
}

/// The lines of a streamed response as they come.
pub struct Lines {
    stream: BufReader<UnixStream>,
    read: Vec<u8>,
}

impl Lines {
    /// Whether there is something to read by the end of this time.
    pub fn has_come(&mut self, within: Duration) -> io::Result<bool> {
        if !self.read.is_empty() {
            return Ok(true);
        }
        let patience = self.stream.get_ref().read_timeout()?;
        self.stream.get_ref().set_read_timeout(Some(within))?;
        let come = match self.stream.fill_buf() {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(false),
            other => other.map(|_| true),
        };
        self.stream.get_ref().set_read_timeout(patience)?;
        come
    }

    pub fn next_line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                return Ok(self.read.drain(..=end).collect());
            }
            if !read_chunk(&mut self.stream, &mut self.read)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn read_head(stream: &mut impl BufRead) -> io::Result<Head> {
    let malformed = || io::Error::other("the response is not HTTP");
    let first = read_line(stream)?;
    let status = first
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(malformed)?;
    let (mut framing, mut warnings) = (Framing::Length(0), Vec::new());
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            return Ok(Head {
                status,
                framing,
                warnings,
            });
        }
        let (name, value) = line.split_once(": ").ok_or_else(malformed)?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => framing = Framing::Length(value.parse().map_err(|_| malformed())?),
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => framing = Framing::Chunked,
            "warning" => warnings.push(value.to_owned()),
            _ => {}
        }
    }
}

/// Appends one chunk; false at the last one.
fn read_chunk(stream: &mut impl BufRead, into: &mut Vec<u8>) -> io::Result<bool> {
    let size = read_line(stream)?;
    let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
    let before = into.len();
    into.resize(before + size, 0);
    stream.read_exact(&mut into[before..])?;
    read_line(stream)?;
    Ok(size > 0)
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_end_by_length_or_by_an_empty_chunk() {
        let mut text = &b"HTTP/1.1 201 Created\r\nWarning: 299 - \"Old\"\r\nContent-Length: 2\r\n\r\n{}"[..];
        let head = Head {
            status: 201,
            framing: Framing::Length(2),
            warnings: vec!["299 - \"Old\"".to_owned()],
        };
        assert_eq!(read_head(&mut text).unwrap(), head);
        let mut text = &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"[..];
        assert_eq!(read_head(&mut text).unwrap().framing, Framing::Chunked);
        let mut body = Vec::new();
        assert!(read_chunk(&mut text, &mut body).unwrap());
        assert!(!read_chunk(&mut text, &mut body).unwrap());
        assert_eq!(body, b"abc");
    }
}
