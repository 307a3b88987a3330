//! The client and the server, against each other over a socket.

use std::sync::Arc;

use async_trait::async_trait;
use cri::{Code, Error, EventStream, Result, Runtime, StreamTarget, v1};
use futures_util::StreamExt;
use tokio::net::UnixListener;

/// A runtime with one event, one exec URL, and nothing else.
struct Fake {
    has_events: bool,
}

#[async_trait]
impl Runtime for Fake {
    async fn version(&self, _: v1::VersionRequest) -> Result<v1::VersionResponse> {
        Ok(v1::VersionResponse {
            runtime_name: "fake".into(),
            ..Default::default()
        })
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<v1::ExecResponse> {
        Ok(v1::ExecResponse {
            url: format!("http://127.0.0.1:1/exec/{}", request.container_id),
        })
    }

    async fn container_status(&self, request: v1::ContainerStatusRequest) -> Result<v1::ContainerStatusResponse> {
        Err(Error::not_found(format!(
            "container {} does not exist",
            request.container_id
        )))
    }

    async fn image_status(&self, request: v1::ImageStatusRequest) -> Result<v1::ImageStatusResponse> {
        let id = request.image.map(|image| image.image).unwrap_or_default();
        Ok(v1::ImageStatusResponse {
            image: Some(v1::Image {
                id,
                ..Default::default()
            }),
            ..Default::default()
        })
    }

    async fn events(&self) -> Result<EventStream> {
        if !self.has_events {
            return Err(Error::unsupported("no events"));
        }
        let event = v1::ContainerEventResponse {
            container_id: "c1".into(),
            ..Default::default()
        };
        Ok(futures_util::stream::iter([Ok(event)]).boxed())
    }
}

/// Serves the fake on a socket of its own and connects to it. The directory must outlive the socket's use.
async fn connected(has_events: bool) -> (tempfile::TempDir, Arc<dyn Runtime>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cri.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(cri::serve(listener, Arc::new(Fake { has_events })));
    let client = cri::connect(&format!("unix://{}", path.display())).await.unwrap();
    (dir, client)
}

#[tokio::test]
async fn both_services_answer_on_one_socket() {
    let (_dir, client) = connected(true).await;
    assert_eq!(
        client
            .version(v1::VersionRequest::default())
            .await
            .unwrap()
            .runtime_name,
        "fake"
    );
    let image = v1::ImageSpec {
        image: "busybox".into(),
        ..Default::default()
    };
    let status = client
        .image_status(v1::ImageStatusRequest {
            image: Some(image),
            verbose: false,
        })
        .await
        .unwrap();
    assert_eq!(status.image.unwrap().id, "busybox");
}

#[tokio::test]
async fn errors_keep_their_code_and_message() {
    let (_dir, client) = connected(true).await;
    let request = v1::ContainerStatusRequest {
        container_id: "c9".into(),
        verbose: false,
    };
    assert_eq!(
        client.container_status(request).await,
        Err(Error::not_found("container c9 does not exist"))
    );
    let missing = client.list_images(v1::ListImagesRequest::default()).await;
    assert_eq!(missing.unwrap_err().code, Code::Unsupported);
}

#[tokio::test]
async fn a_remote_exec_is_a_url() {
    let (_dir, client) = connected(true).await;
    let request = v1::ExecRequest {
        container_id: "c1".into(),
        ..Default::default()
    };
    match client.open_exec(request).await.unwrap() {
        StreamTarget::Url(url) => assert_eq!(url, "http://127.0.0.1:1/exec/c1"),
        StreamTarget::Native(_) => panic!("a remote runtime cannot have native streams"),
    }
}

#[tokio::test]
async fn events_arrive_or_are_refused_at_once() {
    let (_dir, client) = connected(true).await;
    let first = client.events().await.unwrap().next().await;
    assert_eq!(first.unwrap().unwrap().container_id, "c1");

    let (_dir, client) = connected(false).await;
    assert!(client.events().await.err().is_some_and(|error| error.is_unsupported()));
}

#[tokio::test]
async fn a_missing_socket_is_named() {
    let error = cri::connect("unix:///nonexistent/cri.sock").await.err().unwrap();
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.contains("/nonexistent/cri.sock"), "{error}");
}
