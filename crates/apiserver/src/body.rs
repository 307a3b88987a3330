//! Bodies in and out.

use std::convert::Infallible;
use std::time::Duration;

use api::{Error, Reason};
use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// Upstream's limit for the body of a write.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a response carries: one buffer, or a stream for lists, watches and proxied connections.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A request's body: from a connection, or given whole by a client in this process.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

pub fn empty() -> Body {
    full(Bytes::new())
}

/// How long a client may take to send the body of a write, as long as upstream gives a whole request.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads a body to its end, or fails as upstream does when it is too large, too slow or breaks off.
pub async fn read(body: RequestBody) -> Result<Bytes, Error> {
    let read = tokio::time::timeout(PATIENCE, collect(body)).await;
    read.unwrap_or_else(|_| Err(Error::new(Reason::Timeout, "the request's body did not arrive in time")))
}

async fn collect(mut body: RequestBody) -> Result<Bytes, Error> {
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::bad_request(format!("the request's body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if collected.len() + data.len() > MAX_BODY_BYTES {
            return Err(Error::new(
                Reason::RequestEntityTooLarge,
                format!("Request entity too large: limit is {MAX_BODY_BYTES}"),
            ));
        }
        collected.extend_from_slice(&data);
    }
    Ok(collected.freeze())
}
