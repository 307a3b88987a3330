//! Answers that are noted when they have been sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::{Trail, encoding_of};
use crate::body::{Body, BoxError};
use crate::negotiate::Encoding;

/// The longest answer that is noted as a whole.
const MAX_NOTED_BYTES: usize = 16 * 1024 * 1024;

struct AuditedBody {
    body: Body,
    trail: Arc<Trail>,
    encoding: Option<Encoding>,
    /// What was sent, if it is to be noted and not too long.
    sent: Option<BytesMut>,
}

/// Tells the trail when the answer has been sent or dropped, and what it was if that is wanted.
pub fn watched(response: Response<Body>, trail: Arc<Trail>, keeps_object: bool) -> Response<Body> {
    let encoding = encoding_of(&response);
    if !keeps_object && response.body().size_hint().exact().is_some() {
        trail.completed(None);
        return response;
    }
    response.map(|body| {
        let sent = keeps_object.then(BytesMut::new);
        let watched = AuditedBody {
            body,
            trail,
            encoding,
            sent,
        };
        watched.boxed_unsync()
    })
}

impl http_body::Body for AuditedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let is_too_long = |sent: &BytesMut| sent.len() + data.len() > MAX_NOTED_BYTES;
            if self.sent.as_ref().is_some_and(is_too_long) {
                self.sent = None;
            }
            if let Some(sent) = &mut self.sent {
                sent.extend_from_slice(data);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AuditedBody {
    fn drop(&mut self) {
        let sent = self.sent.as_deref().map(|sent| (self.encoding, sent));
        self.trail.completed(sent);
    }
}
