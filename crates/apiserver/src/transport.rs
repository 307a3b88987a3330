//! The way into the server for components in the same process: no socket, no TLS, the same pipeline.

use std::sync::Arc;

use async_trait::async_trait;
use auth::User;
use bytes::Bytes;
use client::{Body, Transport, TransportError};
use http::{Request, Response};
use http_body_util::BodyExt;

use crate::peer::Peer;
use crate::{ApiServer, body};

/// Requests of one component, under that component's own name and rights.
pub struct InProcess {
    server: Arc<ApiServer>,
    peer: Peer,
}

impl InProcess {
    pub fn new(server: Arc<ApiServer>, user: User) -> InProcess {
        InProcess {
            server,
            peer: Peer::InProcess(Arc::new(user)),
        }
    }
}

#[async_trait]
impl Transport for InProcess {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let response = self
            .server
            .clone()
            .handle(request.map(body::full), self.peer.clone())
            .await;
        Ok(response.map(|body| body.map_err(TransportError::Other).boxed_unsync()))
    }
}
