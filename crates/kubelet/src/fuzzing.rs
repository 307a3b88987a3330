//! Clients that do not keep to a protocol, for `fuzz/`.

use std::io::Cursor;

use bytes::BytesMut;
use futures_util::FutureExt;
use tokio::io::{join, sink};

use crate::server::channels::{Channels, Protocol};
use crate::spdy::frame::Frame;
use crate::spdy::headers::{Decoder, Encoder};

/// Reads the bytes as SPDY frames; what was read must be readable again after it was written.
pub fn spdy(data: &[u8]) {
    let (mut rest, mut decoder) = (data, Decoder::new());
    let Ok(mut encoder) = Encoder::new() else {
        return;
    };
    let (mut written, mut frames) = (BytesMut::new(), Vec::new());
    while let Some(Ok(Some(frame))) = Frame::read(&mut rest, &mut decoder).now_or_never() {
        if frame == Frame::Other {
            continue;
        }
        let encoded = frame.encode(&mut encoder, &mut written);
        assert!(encoded.is_ok(), "{encoded:?}");
        frames.push(frame);
    }
    // Bytes that are no text grow when they are written again, and a long block is refused.
    if frames.iter().any(|frame| header_bytes(frame) > 8 << 10) {
        return;
    }
    let (mut rest, mut decoder) = (&written[..], Decoder::new());
    for frame in frames {
        let again = Frame::read(&mut rest, &mut decoder).now_or_never();
        assert_eq!(again.and_then(Result::ok).flatten(), Some(frame));
    }
}

fn header_bytes(frame: &Frame) -> usize {
    match frame {
        Frame::Open { headers, .. } | Frame::Reply { headers, .. } => {
            headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum()
        }
        _ => 0,
    }
}

/// Reads the bytes as WebSocket messages; the first byte chooses between the protocols of exec and attach.
pub fn websocket(data: &[u8]) {
    const PROTOCOLS: [Protocol; 5] = [
        Protocol::V5,
        Protocol::V4,
        Protocol::V4Base64,
        Protocol::Plain,
        Protocol::PlainBase64,
    ];
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    let protocol = PROTOCOLS[usize::from(*choice) % PROTOCOLS.len()];
    let io = join(Cursor::new(bytes.to_vec()), sink());
    let Some(mut channels) = Channels::over_websocket(io, protocol).now_or_never() else {
        return;
    };
    while let Some(Some(_)) = channels.receiver.next().now_or_never() {}
}

/// Frames of SPDY, to begin with.
pub fn spdy_seeds() -> Vec<Vec<u8>> {
    let headers = vec![
        ("streamtype".to_owned(), "stdin".to_owned()),
        ("port".to_owned(), "80".to_owned()),
    ];
    let frames = [
        Frame::Open {
            stream: 1,
            headers: headers.clone(),
            fin: false,
        },
        Frame::Reply { stream: 1, headers },
        Frame::Data {
            stream: 1,
            data: "hello".into(),
            fin: true,
        },
        Frame::Ping(1),
        Frame::Reset { stream: 1, status: 5 },
        Frame::GoAway,
    ];
    let mut written = BytesMut::new();
    if let Ok(mut encoder) = Encoder::new() {
        frames
            .iter()
            .for_each(|frame| drop(frame.encode(&mut encoder, &mut written)));
    }
    vec![written.to_vec()]
}

/// Messages of WebSockets, to begin with: masked as clients must, with a key of zeros.
pub fn websocket_seeds() -> Vec<Vec<u8>> {
    let message = |kind: u8, data: &[u8]| [&[0x80 | kind, 0x80 | data.len() as u8, 0, 0, 0, 0], data].concat();
    let (text, binary, close, ping) = (1, 2, 8, 9);
    let v5 = [
        message(binary, b"\0ls"),
        message(ping, b"?"),
        message(binary, &[255, 0]),
        message(close, &[3, 232]),
    ];
    let base64 = message(text, b"0bHM=");
    vec![[vec![0], v5.concat()].concat(), [vec![2], base64].concat()]
}
