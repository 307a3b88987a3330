//! HTTP/2 by the frame, in whatever order an attacker likes.

use std::io::{self, Read, Write};

use anyhow::{Result, ensure};

use super::tls::ClientStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// The error code of RST_STREAM for "no longer needed".
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// The largest frame that a server must take.
const MAX_FRAME: usize = 16 * 1024;

#[derive(Debug, PartialEq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A connection after both prefaces.
pub struct Http2 {
    stream: ClientStream,
}

impl Http2 {
    pub fn begin(mut stream: ClientStream) -> Result<Self> {
        ensure!(
            stream.conn.alpn_protocol() == Some(b"h2"),
            "the server does not speak HTTP/2"
        );
        stream.write_all(PREFACE)?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
        stream.flush()?;
        let mut connection = Self { stream };
        let first = connection.next()?;
        ensure!(
            first.kind == SETTINGS,
            "the server began with a frame of kind {}",
            first.kind
        );
        connection.send(&frame(SETTINGS, ACK, 0, &[]))?;
        Ok(connection)
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    pub fn next(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff,
            payload,
        })
    }

    /// Reads until the answer to this stream has begun; true when it is a success.
    pub fn answered(&mut self, stream: u32) -> Result<bool> {
        loop {
            let frame = self.next()?;
            ensure!(frame.kind != GOAWAY, "the server closed the connection");
            if frame.stream == stream && frame.kind == HEADERS {
                // The table's entry for ":status: 200".
                return Ok(frame.payload.contains(&0x88));
            }
        }
    }

    /// What the server says last, if it ends the connection.
    pub fn farewell(&mut self) -> Option<String> {
        loop {
            match self.next() {
                Ok(frame) if frame.kind == GOAWAY => {
                    let code = frame.payload.get(4..8)?.try_into().ok()?;
                    return Some(format!("GOAWAY with error {:#x}", u32::from_be_bytes(code)));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => return Some(format!("the connection ended: {error}")),
            }
        }
    }

    pub fn socket(&self) -> &std::net::TcpStream {
        &self.stream.sock
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A request without a body, in one frame.
pub fn request(stream: u32, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = vec![
        (":method", "GET"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "localhost"),
    ];
    fields.extend_from_slice(more);
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &fields_block(&fields))
}

pub fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &CANCEL)
}

/// Fields as literals that no table remembers.
pub fn fields_block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    block
}

fn text(block: &mut Vec<u8>, text: &str) {
    let length = text.len();
    match length {
        0..127 => block.push(length as u8),
        _ => {
            block.push(127);
            let mut rest = length - 127;
            while rest >= 128 {
                block.push((rest % 128 + 128) as u8);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
    block.extend_from_slice(text.as_bytes());
}

/// Fields cut into as many frames as one likes: a HEADERS frame without end, then CONTINUATION frames without end.
pub fn endless_headers(stream: u32) -> impl Iterator<Item = Vec<u8>> {
    let opening = [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/version"),
        (":authority", "localhost"),
    ];
    let first = frame(HEADERS, END_STREAM, stream, &fields_block(&opening));
    let filler = "x".repeat(MAX_FRAME - 64);
    let next = frame(CONTINUATION, 0, stream, &fields_block(&[("x-filler", &filler)]));
    std::iter::once(first).chain(std::iter::repeat(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_go_over_seven_bits() {
        let mut block = Vec::new();
        text(&mut block, &"x".repeat(127));
        assert_eq!(&block[..2], [127, 0]);
        let mut block = Vec::new();
        text(&mut block, &"x".repeat(1337));
        assert_eq!(&block[..3], [127, 0xba, 0x09]);
    }

    #[test]
    fn a_frame_begins_with_its_length() {
        assert_eq!(frame(6, 1, 3, &[9, 9]), [0, 0, 2, 6, 1, 0, 0, 0, 3, 9, 9]);
    }
}
