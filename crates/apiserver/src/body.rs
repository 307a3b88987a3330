//! Bodies in and out.

use std::convert::Infallible;
use std::time::Duration;

use api::{Error, Reason};
use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

use crate::body_budget::{Budget, SMALL_BYTES, Share};

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

/// Reads a body to its end, or fails as upstream does when it is too large, too slow or breaks off. Large ones also fail
/// while too many others are under way.
pub async fn read(body: RequestBody) -> Result<Bytes, Error> {
    let read = tokio::time::timeout(PATIENCE, collect(body, &Budget::shared())).await;
    read.unwrap_or_else(|_| Err(Error::new(Reason::Timeout, "the request's body did not arrive in time")))
}

async fn collect(mut body: RequestBody, budget: &Budget) -> Result<Bytes, Error> {
    let mut collected = BytesMut::new();
    let mut share = Share::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::bad_request(format!("the request's body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if collected.len() + data.len() > MAX_BODY_BYTES {
            return Err(Error::new(
                Reason::RequestEntityTooLarge,
                format!("Request entity too large: limit is {MAX_BODY_BYTES}"),
            ));
        }
        budget.grow(&mut share, collected.len() + data.len(), data.len())?;
        collected.extend_from_slice(&data);
    }
    if collected.len() <= SMALL_BYTES {
        return Ok(collected.freeze());
    }
    Ok(Bytes::from_owner(Large {
        bytes: collected.freeze(),
        _share: share,
    }))
}

/// A body that counts until nobody has it any more.
struct Large {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
