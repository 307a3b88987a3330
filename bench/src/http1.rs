//! HTTP/1.1 with as little work for the client as possible, since it shares the machine with the server.

use anyhow::{Context, Result, ensure};
use bytes::{Buf, BytesMut};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::target::Target;

/// A kept connection with one request at a time.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    read: BytesMut,
}

#[derive(Debug, PartialEq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// How much is read at once.
const READ: usize = 128 * 1024;

/// A request as bytes, so that one that is repeated is made once.
pub fn encode(method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: load\r\nAccept: application/json\r\n\
         Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

impl Connection {
    pub async fn open(target: &Target) -> Result<Self> {
        Ok(Self {
            stream: target.connect_http1().await?,
            read: BytesMut::with_capacity(READ),
        })
    }

    /// Sends the request and hands the pieces of the answer's body on; fails unless it is a success.
    pub async fn exchange(&mut self, request: &[u8], mut body: impl FnMut(&[u8])) -> Result<()> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let (status, framing) = self.head().await?;
        let mut complaint = Vec::new();
        let mut sink = |piece: &[u8]| match status < 300 {
            true => body(piece),
            false => complaint.extend_from_slice(piece),
        };
        match framing {
            Framing::Length(length) => self.take(length, &mut sink).await?,
            Framing::Chunked => self.chunks(&mut sink).await?,
        }
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        ensure!(
            status < 300,
            "{}: {status} {}",
            String::from_utf8_lossy(line),
            String::from_utf8_lossy(&complaint)
        );
        Ok(())
    }

    /// The same with the whole body.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        self.exchange(request, |piece| whole.extend_from_slice(piece)).await?;
        Ok(whole)
    }

    async fn head(&mut self) -> Result<(u16, Framing)> {
        loop {
            if let Some(end) = memmem::find(&self.read, b"\r\n\r\n") {
                let head = self.read.split_to(end + 4);
                return parse_head(&head);
            }
            self.fill().await?;
        }
    }

    async fn take(&mut self, mut left: usize, sink: &mut impl FnMut(&[u8])) -> Result<()> {
        while left > 0 {
            if self.read.is_empty() {
                self.fill().await?;
            }
            let now = left.min(self.read.len());
            sink(&self.read[..now]);
            self.read.advance(now);
            left -= now;
        }
        Ok(())
    }

    async fn chunks(&mut self, sink: &mut impl FnMut(&[u8])) -> Result<()> {
        loop {
            let end = loop {
                match memmem::find(&self.read, b"\r\n") {
                    Some(end) => break end,
                    None => self.fill().await?,
                }
            };
            let line = self.read.split_to(end + 2);
            let size = usize::from_str_radix(std::str::from_utf8(&line)?.trim(), 16)?;
            self.take(size, sink).await?;
            self.take(2, &mut |_| {}).await?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    async fn fill(&mut self) -> Result<()> {
        self.read.reserve(READ);
        let count = self.stream.read_buf(&mut self.read).await?;
        ensure!(count > 0, "the server closed the connection");
        Ok(())
    }
}

fn parse_head(head: &[u8]) -> Result<(u16, Framing)> {
    let mut lines = std::str::from_utf8(head)?.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .context("the response is not HTTP")?;
    let mut framing = Framing::Length(0);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            framing = Framing::Length(value.trim().parse()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunked;
        }
    }
    Ok((status.parse()?, framing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_framed_by_length_or_in_chunks() {
        let head = b"HTTP/1.1 201 Created\r\ncontent-length: 12\r\n\r\n";
        assert_eq!(parse_head(head).unwrap(), (201, Framing::Length(12)));
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(parse_head(head).unwrap(), (200, Framing::Chunked));
    }
}
