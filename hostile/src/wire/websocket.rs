//! WebSocket frames, from the client's side.

use std::io;

use anyhow::{Result, bail, ensure};

use super::Stream;
use super::http1::Connection;

pub const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Clients must mask what they send; with which bytes is of no importance here.
const MASK: [u8; 4] = [0x5a, 0xa5, 0x3c, 0xc3];

/// Larger frames than this are no answers to anything we ask.
const MAX_FRAME: u64 = 16 << 20;

/// What one adds to a request to upgrade it.
pub fn upgrade_headers(protocol: &str) -> Vec<(&str, &str)> {
    vec![
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "aG9zdGlsZWhvc3RpbGUhIQ=="),
        ("Sec-WebSocket-Protocol", protocol),
    ]
}

pub fn send<S: Stream>(connection: &mut Connection<S>, opcode: u8, payload: &[u8]) -> io::Result<()> {
    connection.send(&frame(opcode, payload), &[])
}

fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length @ 126..0x1_0000 => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The next message, or nothing after the last one.
pub fn receive<S: Stream>(connection: &mut Connection<S>) -> Result<Option<Vec<u8>>> {
    loop {
        let mut head = [0; 2];
        match connection.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let mut payload = vec![0; payload_length(connection, head[1])?];
        connection.read_exact(&mut payload)?;
        match head[0] & 0x0f {
            CLOSE => return Ok(None),
            PING => send(connection, PONG, &payload)?,
            PONG => {}
            1 | BINARY => return Ok(Some(payload)),
            other => bail!("a frame of kind {other}"),
        }
    }
}

fn payload_length<S: Stream>(connection: &mut Connection<S>, second: u8) -> Result<usize> {
    let length = match second & 0x7f {
        126 => {
            let mut bytes = [0; 2];
            connection.read_exact(&mut bytes)?;
            u64::from(u16::from_be_bytes(bytes))
        }
        127 => {
            let mut bytes = [0; 8];
            connection.read_exact(&mut bytes)?;
            u64::from_be_bytes(bytes)
        }
        short => u64::from(short),
    };
    ensure!(length <= MAX_FRAME, "a frame of {length} bytes");
    Ok(length as usize)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn frames_are_masked_and_answers_are_not() {
        let sent = frame(BINARY, b"\x00hello");
        assert_eq!(&sent[..2], [0x82, 0x86]);
        assert_ne!(&sent[6..], b"\x00hello");
        let answer = b"\x82\x03\x01ok\x88\x00".to_vec();
        let mut connection = Connection::over(Cursor::new(answer));
        assert_eq!(receive(&mut connection).unwrap().unwrap(), b"\x01ok");
        assert_eq!(receive(&mut connection).unwrap(), None);
    }
}
