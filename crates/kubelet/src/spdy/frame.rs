//! Frames.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::headers::{Decoder, Encoder, Headers, malformed};

const VERSION: u16 = 3;
const FIN: u8 = 1;
/// The longest frame that is accepted; a length has 24 bits.
const MAX_FRAME_BYTES: usize = 1 << 20;
/// Data is cut into frames of this size.
pub const DATA_BYTES: usize = 32 * 1024;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Open {
        stream: u32,
        headers: Headers,
        fin: bool,
    },
    Reply {
        stream: u32,
        headers: Headers,
    },
    Reset {
        stream: u32,
        status: u32,
    },
    Data {
        stream: u32,
        data: Bytes,
        fin: bool,
    },
    Ping(u32),
    GoAway,
    /// Settings, windows and whatever else we need not know.
    Other,
}

impl Frame {
    pub fn encode(&self, encoder: &mut Encoder, out: &mut BytesMut) -> io::Result<()> {
        match self {
            Frame::Data { stream, data, fin } => {
                out.put_u32(*stream);
                out.put_u32((u32::from(*fin) << 24) | data.len() as u32);
                out.put_slice(data);
            }
            Frame::Open { stream, headers, fin } => {
                let block = encoder.encode(headers)?;
                control(out, SYN_STREAM, u8::from(*fin), 10 + block.len());
                out.put_u32(*stream);
                out.put_u32(0);
                out.put_u16(0);
                out.put_slice(&block);
            }
            Frame::Reply { stream, headers } => {
                let block = encoder.encode(headers)?;
                control(out, SYN_REPLY, 0, 4 + block.len());
                out.put_u32(*stream);
                out.put_slice(&block);
            }
            Frame::Reset { stream, status } => {
                control(out, RST_STREAM, 0, 8);
                out.put_u32(*stream);
                out.put_u32(*status);
            }
            Frame::Ping(id) => {
                control(out, PING, 0, 4);
                out.put_u32(*id);
            }
            Frame::GoAway => {
                control(out, GOAWAY, 0, 8);
                out.put_u64(0);
            }
            Frame::Other => {}
        }
        Ok(())
    }

    /// The next frame; none at the end of the connection.
    pub async fn read(io: &mut (impl AsyncRead + Unpin), decoder: &mut Decoder) -> io::Result<Option<Frame>> {
        let mut head = [0; 8];
        match io.read_exact(&mut head).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        };
        let mut head = head.as_slice();
        let (first, second) = (head.get_u32(), head.get_u32());
        let (flags, length) = ((second >> 24) as u8, (second & 0x00ff_ffff) as usize);
        if length > MAX_FRAME_BYTES {
            return Err(malformed("a SPDY frame is too long"));
        }
        let mut body = vec![0; length];
        io.read_exact(&mut body).await?;
        let fin = flags & FIN != 0;
        if first >> 31 == 0 {
            return Ok(Some(Frame::Data {
                stream: first,
                data: Bytes::from(body),
                fin,
            }));
        }
        if (first >> 16) as u16 & 0x7fff != VERSION {
            return Err(malformed("not a SPDY/3.1 frame"));
        }
        control_frame(first as u16, fin, Bytes::from(body), decoder).map(Some)
    }
}

fn control(out: &mut BytesMut, kind: u16, flags: u8, length: usize) {
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    out.put_u32((u32::from(flags) << 24) | length as u32);
}

fn control_frame(kind: u16, fin: bool, mut body: Bytes, decoder: &mut Decoder) -> io::Result<Frame> {
    let needed = match kind {
        SYN_STREAM => 10,
        RST_STREAM => 8,
        SYN_REPLY | PING | HEADERS => 4,
        _ => 0,
    };
    if body.len() < needed {
        return Err(malformed("a SPDY frame is cut short"));
    }
    Ok(match kind {
        SYN_STREAM => {
            let stream = body.get_u32() & 0x7fff_ffff;
            body.advance(6);
            Frame::Open {
                stream,
                headers: decoder.decode(&body)?,
                fin,
            }
        }
        SYN_REPLY => {
            let stream = body.get_u32() & 0x7fff_ffff;
            Frame::Reply {
                stream,
                headers: decoder.decode(&body)?,
            }
        }
        HEADERS => {
            // Its block must be read even if nobody needs it, for the next one builds on it.
            body.advance(4);
            decoder.decode(&body)?;
            Frame::Other
        }
        RST_STREAM => Frame::Reset {
            stream: body.get_u32() & 0x7fff_ffff,
            status: body.get_u32(),
        },
        PING => Frame::Ping(body.get_u32()),
        GOAWAY => Frame::GoAway,
        _ => Frame::Other,
    })
}
