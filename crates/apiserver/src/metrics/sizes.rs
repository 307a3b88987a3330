//! How large answers are.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::metrics::Series;
use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::RequestFigures;
use crate::body::{Body, BoxError};

/// A body that is made while it is sent. What it came to is known when it is dropped.
struct Measured {
    body: Body,
    bytes: u64,
    figures: Arc<Series<RequestFigures>>,
}

/// Notes the size of an answer, now if it is known, else when it has been sent.
pub fn measured(response: Response<Body>, figures: Arc<Series<RequestFigures>>) -> Response<Body> {
    if let Some(bytes) = response.body().size_hint().exact() {
        figures.value.sizes.observe(bytes as f64);
        return response;
    }
    response.map(|body| {
        let measured = Measured {
            body,
            bytes: 0,
            figures,
        };
        measured.boxed_unsync()
    })
}

impl http_body::Body for Measured {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.bytes += data.len() as u64;
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

impl Drop for Measured {
    fn drop(&mut self) {
        self.figures.value.sizes.observe(self.bytes as f64);
    }
}
