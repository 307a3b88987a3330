//! The client against a real containerd, started for the test in a directory of its own. Needs root and containerd.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cri::{Code, v1};

/// A containerd that ends with the test.
struct Containerd(Child);

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(dir: &Path) -> Option<Containerd> {
    let config = format!(
        "version = 2\nroot = {root:?}\nstate = {state:?}\n\
         disabled_plugins = [\"io.containerd.internal.v1.opt\", \"io.containerd.snapshotter.v1.btrfs\"]\n\
         [grpc]\n  address = {socket:?}\n[ttrpc]\n  address = {ttrpc:?}\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\n  stream_server_address = \"127.0.0.1\"\n  stream_server_port = \"0\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\n  conf_dir = {state:?}\n",
        root = dir.join("root"),
        state = dir.join("state"),
        socket = dir.join("containerd.sock"),
        ttrpc = dir.join("ttrpc.sock"),
    );
    let path = dir.join("config.toml");
    std::fs::write(&path, config).unwrap();
    let log = std::fs::File::create(dir.join("log")).unwrap();
    let child = Command::new("containerd")
        .arg("--config")
        .arg(path)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .ok()?;
    Some(Containerd(child))
}

fn skip(why: &str) {
    assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "this test needs {why}");
    eprintln!("SKIPPED: this test needs {why}");
}

#[tokio::test]
async fn containerd_is_understood() {
    if !std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0) {
        return skip("root");
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(_containerd) = start(dir.path()) else {
        return skip("containerd");
    };
    let endpoint = format!("unix://{}", dir.path().join("containerd.sock").display());
    let mut client = cri::connect(&endpoint).await;
    for _ in 0..200 {
        if client.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        client = cri::connect(&endpoint).await;
    }
    let client = client.unwrap_or_else(|error| {
        panic!(
            "{error}\n{}",
            std::fs::read_to_string(dir.path().join("log")).unwrap_or_default()
        )
    });

    let version = client.version(v1::VersionRequest::default()).await.unwrap();
    assert_eq!(
        (version.runtime_name.as_str(), version.runtime_api_version.as_str()),
        ("containerd", "v1")
    );
    let status = client
        .status(v1::StatusRequest::default())
        .await
        .unwrap()
        .status
        .unwrap();
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.r#type == "RuntimeReady")
        .unwrap();
    assert!(ready.status);
    assert!(
        client
            .list_containers(v1::ListContainersRequest::default())
            .await
            .unwrap()
            .containers
            .is_empty()
    );
    let image = Some(v1::ImageSpec {
        image: "none/such".into(),
        ..Default::default()
    });
    assert_eq!(
        client
            .image_status(v1::ImageStatusRequest { image, verbose: false })
            .await
            .unwrap()
            .image,
        None
    );

    let request = v1::ContainerStatusRequest {
        container_id: "nope".into(),
        verbose: false,
    };
    assert_eq!(client.container_status(request).await.unwrap_err().code, Code::NotFound);
    // Version 1.6 has no events, later ones have; either way the answer is a clear one.
    match client.events().await {
        Ok(_) => {}
        Err(error) => assert_eq!(error.code, Code::Unsupported),
    }
}
