//! The clients against services over a socket, honest and otherwise.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use csi::registration::registration_server::{Registration, RegistrationServer};
use csi::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use csi::{Code, NodeClient, RegistrationClient, v1};
use rustix::fs::{Mode, OFlags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};

struct Talker {
    name: String,
}

#[async_trait::async_trait]
impl Registration for Talker {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            name: self.name.clone(),
            ..PluginInfo::default()
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        match status.into_inner().plugin_registered {
            true => Ok(Response::new(RegistrationStatusResponse {})),
            false => Err(Status::aborted("I leave")),
        }
    }
}

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn serve(directory: &Path, name: String) -> PathBuf {
    let path = directory.join("reg.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let incoming = futures_util::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let server = tonic::transport::Server::builder().add_service(RegistrationServer::new(Talker { name }));
    tokio::spawn(server.serve_with_incoming(incoming));
    path
}

#[tokio::test]
async fn a_plugin_says_who_it_is_and_is_told_what_became_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = serve(directory.path(), "d.example".to_owned());
    let client = RegistrationClient::connect(open(&path)).await.unwrap();
    assert_eq!(client.info().await.unwrap().name, "d.example");
    client.notify(None).await.unwrap();
    let refused = client.notify(Some("no".to_owned())).await.unwrap_err();
    assert_eq!(refused.to_string(), "rpc error: code = Aborted desc = I leave");
    let node = NodeClient::connect(open(&path)).await.unwrap();
    assert_eq!(node.info().await.unwrap_err().code, Code::Unimplemented);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = serve(directory.path(), "x".repeat(1 << 20));
    let client = RegistrationClient::connect(open(&path)).await.unwrap();
    assert_eq!(client.info().await.unwrap_err().code, Code::OutOfRange);
}

#[tokio::test]
async fn a_socket_that_speaks_nonsense_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("n.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 16]).await;
            let _ = stream.write_all(&[0xff; 4096]).await;
        }
    });
    let answer = match NodeClient::connect(open(&path)).await {
        Ok(client) => client.info().await.map(drop),
        Err(error) => Err(error),
    };
    assert!(answer.is_err());
}

#[tokio::test]
async fn a_driver_that_hangs_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("n.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let client = NodeClient::connect(open(&path)).await.unwrap();
    let client = client.within(Duration::from_millis(50));
    let error = client
        .publish(v1::NodePublishVolumeRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    );
}

#[tokio::test]
async fn a_socket_that_nobody_serves_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("n.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let error = NodeClient::connect(open(&path)).await.map(drop).unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
}

#[test]
fn secrets_are_not_shown() {
    let request = v1::NodeStageVolumeRequest {
        volume_id: "v1".to_owned(),
        secrets: [("password".to_owned(), "hunter2".to_owned())].into(),
        ..v1::NodeStageVolumeRequest::default()
    };
    assert_eq!(
        format!("{request:?}"),
        "NodeStageVolumeRequest { volume_id: \"v1\", .. }"
    );
}
