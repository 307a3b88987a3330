//! Just enough HTTP/1.1 over a Unix socket to time a server without the cost of starting a client.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A kept connection.
pub struct Connection {
    stream: BufReader<UnixStream>,
}

#[derive(Debug, PartialEq)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
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
        let (status, framing) = read_head(&mut self.stream)?;
        let mut body = Vec::new();
        match framing {
            Framing::Length(length) => {
                body.resize(length, 0);
                self.stream.read_exact(&mut body)?;
            }
            Framing::Chunked => while read_chunk(&mut self.stream, &mut body)? {},
        }
        Ok(Response { status, body })
    }

    /// Begins a response without end; its lines are read from what is returned.
    pub fn stream(mut self, path: &str) -> io::Result<Lines> {
        self.send("GET", path, &[])?;
        let (status, framing) = read_head(&mut self.stream)?;
        match (status, framing) {
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

/// The lines of a streamed response as they come.
pub struct Lines {
    stream: BufReader<UnixStream>,
    read: Vec<u8>,
}

impl Lines {
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

fn read_head(stream: &mut impl BufRead) -> io::Result<(u16, Framing)> {
    let malformed = || io::Error::other("the response is not HTTP");
    let first = read_line(stream)?;
    let status = first
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(malformed)?;
    let mut framing = Framing::Length(0);
    loop {
        let line = read_line(stream)?.to_ascii_lowercase();
        match line.split_once(": ") {
            Some(("content-length", length)) => {
                framing = Framing::Length(length.parse().map_err(|_| malformed())?);
            }
            Some(("transfer-encoding", "chunked")) => framing = Framing::Chunked,
            Some(_) => {}
            None if line.is_empty() => return Ok((status, framing)),
            None => return Err(malformed()),
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
        let mut text = &b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"[..];
        assert_eq!(read_head(&mut text).unwrap(), (201, Framing::Length(2)));
        let mut text = &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"[..];
        assert_eq!(read_head(&mut text).unwrap(), (200, Framing::Chunked));
        let mut body = Vec::new();
        assert!(read_chunk(&mut text, &mut body).unwrap());
        assert!(!read_chunk(&mut text, &mut body).unwrap());
        assert_eq!(body, b"abc");
    }
}
