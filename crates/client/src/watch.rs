//! A watch: events cut out of a body that does not end.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Body, Error, Result, decode_status};

/// The longest event that is accepted; the API server stores objects of up to 3 MB.
const MAX_EVENT_BYTES: usize = 32 << 20;

/// A change of one object. Objects are the bytes as the server encoded them.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    Added(Bytes),
    Modified(Bytes),
    Deleted(Bytes),
    /// No change, but the watch has seen everything up to the object's resourceVersion.
    Bookmark(Bytes),
}

/// The events of a watch in order. Ends when the server ends the stream; resume from the last revision seen.
pub struct WatchStream {
    body: Body,
    pending: BytesMut,
    /// How much of `pending` is known to hold no end of line.
    searched: usize,
    ended: bool,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl WatchStream {
    pub(crate) fn new(body: Body) -> WatchStream {
        WatchStream {
            body,
            pending: BytesMut::new(),
            searched: 0,
            ended: false,
        }
    }

    /// The next event; `None` at the end of the stream. An `ERROR` event is returned as the failure it carries.
    pub async fn next(&mut self) -> Option<Result<WatchEvent>> {
        loop {
            if let Some(line) = self.line() {
                if !line.iter().all(u8::is_ascii_whitespace) {
                    return Some(decode(&line));
                }
                continue;
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.fill().await {
                self.ended = true;
                return Some(Err(error));
            }
        }
    }

    /// Takes a complete event off the buffer.
    fn line(&mut self) -> Option<Bytes> {
        let found = self.pending[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(offset) = found else {
            self.searched = self.pending.len();
            // The last event need not end in a line break.
            let rest = self.ended && !self.pending.is_empty();
            self.searched = if rest { 0 } else { self.searched };
            return rest.then(|| self.pending.split().freeze());
        };
        let line = self.pending.split_to(self.searched + offset + 1).freeze();
        self.searched = 0;
        Some(line)
    }

    async fn fill(&mut self) -> Result<()> {
        match self.body.frame().await {
            Some(frame) => {
                if let Ok(data) = frame?.into_data() {
                    self.pending.extend_from_slice(&data);
                }
            }
            None => self.ended = true,
        }
        if self.pending.len() > MAX_EVENT_BYTES {
            return Err(Error::TooLong {
                request: "a watch".to_owned(),
                limit: MAX_EVENT_BYTES,
            });
        }
        Ok(())
    }
}

fn decode(line: &Bytes) -> Result<WatchEvent> {
    let frame: Frame<'_> = serde_json::from_slice(line).map_err(|source| Error::Decode {
        request: "a watch".to_owned(),
        source,
    })?;
    let object = line.slice_ref(frame.object.get().as_bytes());
    match frame.kind {
        "ADDED" => Ok(WatchEvent::Added(object)),
        "MODIFIED" => Ok(WatchEvent::Modified(object)),
        "DELETED" => Ok(WatchEvent::Deleted(object)),
        "BOOKMARK" => Ok(WatchEvent::Bookmark(object)),
        _ => Err(Error::Api(decode_status(500, &object))),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use hyper::body::Frame as BodyFrame;

    use super::*;
    use crate::TransportError;

    fn stream(chunks: &'static [&'static str]) -> WatchStream {
        let chunks = chunks.iter().map(|chunk| {
            let data = Bytes::from_static(chunk.as_bytes());
            Ok::<_, TransportError>(BodyFrame::data(data))
        });
        WatchStream::new(StreamBody::new(futures_util::stream::iter(chunks)).boxed_unsync())
    }

    async fn texts(mut stream: WatchStream) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(event) = stream.next().await {
            texts.push(match event {
                Ok(event) => format!("{event:?}"),
                Err(error) => format!("error: {error}"),
            });
        }
        texts
    }

    #[tokio::test]
    async fn events_are_found_wherever_the_network_cut_them() {
        let cut = stream(&[
            r#"{"type":"ADDED","obj"#,
            "ect\":{\"a\":1}}\n{\"type\":\"BOOKMARK\",\"object\":{}}",
            "\n\n{\"type\":\"DELETED\",\"object\":{\"a\":2}}",
        ]);
        assert_eq!(
            texts(cut).await,
            [
                r#"Added(b"{\"a\":1}")"#,
                r#"Bookmark(b"{}")"#,
                r#"Deleted(b"{\"a\":2}")"#
            ]
        );
    }

    #[tokio::test]
    async fn an_error_event_is_the_failure_it_carries() {
        let mut gone = stream(&[concat!(
            r#"{"type":"ERROR","object":{"kind":"Status","code":410,"#,
            r#""reason":"Expired","message":"too old resource version: 1 (9)"}}"#,
            "\n"
        )]);
        let error = gone.next().await.unwrap().unwrap_err();
        assert!(error.is_expired(), "{error}");
    }
}
