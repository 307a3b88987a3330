//! Controllers with a slow watch and a server that fails now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::kinds::deployment::DEPLOYMENT;
use api::kinds::pod::POD;
use api::{Error, Reason};
use async_trait::async_trait;
use bytes::Bytes;
use client::{Body, Transport, TransportError, body_from_bytes};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, StreamBody};

use crate::cluster::Cluster;

/// Delays every event of a watch, and refuses every third write.
pub struct Faulty {
    inner: Arc<dyn Transport>,
    writes: AtomicU64,
}

const DELAY: Duration = Duration::from_millis(60);

impl Faulty {
    pub fn new(inner: Arc<dyn Transport>) -> Faulty {
        Faulty {
            inner,
            writes: AtomicU64::new(0),
        }
    }

    fn refusal(&self) -> Option<Response<Body>> {
        let error = match self.writes.fetch_add(1, Ordering::Relaxed) % 6 {
            2 => Error::new(Reason::Conflict, "the object has been modified"),
            5 => Error::new(Reason::InternalError, "the store is slow today"),
            _ => return None,
        };
        let mut answer = Response::new(body_from_bytes(Bytes::from(error.to_status().to_string())));
        *answer.status_mut() = http::StatusCode::from_u16(error.code()).unwrap();
        Some(answer)
    }
}

#[async_trait]
impl Transport for Faulty {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if request.method() != Method::GET
            && let Some(refusal) = self.refusal()
        {
            return Ok(refusal);
        }
        let answer = self.inner.send(request).await?;
        if !watches {
            return Ok(answer);
        }
        Ok(answer.map(|body| {
            let frames = futures_util::stream::unfold(body, |mut body| async move {
                let frame = body.frame().await?;
                tokio::time::sleep(DELAY).await;
                Some((frame, body))
            });
            StreamBody::new(frames).boxed_unsync()
        }))
    }
}

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: 'web:1'}]}}
";

#[tokio::test]
async fn a_slow_cache_and_refused_writes_never_double_the_pods() {
    let cluster = Cluster::start_through(|transport| Arc::new(Faulty::new(transport))).await;
    cluster.create(&DEPLOYMENT, "default", WEB).await;
    let mut most = 0;
    cluster
        .until("five available replicas", async || {
            cluster.run_pods("default").await;
            most = most.max(cluster.list(&POD, "default").await.len());
            let deployment = cluster.get(&DEPLOYMENT, "default", "web").await.unwrap();
            deployment["status"]["availableReplicas"] == 5
        })
        .await;
    assert_eq!(most, 5);
    cluster.stop().await;
}
