//! A real etcd on loopback for one test.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use store::Store;
use store::etcd::{EtcdOptions, Identity, connect};
use tempfile::TempDir;

pub struct EtcdServer {
    process: Option<Child>,
    directory: TempDir,
    client_port: u16,
    peer_port: u16,
}

impl EtcdServer {
    /// Starts the `etcd` on the path. Without one the test is skipped, or fails if nothing may be skipped.
    pub fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut server = EtcdServer {
            process: None,
            directory,
            client_port: free_port(),
            peer_port: free_port(),
        };
        if let Err(error) = server.resume() {
            let everything = std::env::var_os("KARVE_REQUIRE_ALL").is_some_and(|value| value == "1");
            assert!(!everything, "etcd cannot be started: {error}");
            eprintln!("SKIPPED: etcd cannot be started ({error}); on Debian it is in the package etcd-server");
            return None;
        }
        Some(server)
    }

    /// Starts the server on the data it has.
    pub fn resume(&mut self) -> std::io::Result<()> {
        let client = self.endpoint();
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let log = std::fs::File::create(self.directory.path().join("log"))?;
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(self.directory.path().join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        self.process = Some(command.stdout(Stdio::null()).stderr(log).spawn()?);
        Ok(())
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.client_port)
    }

    pub fn options(&self) -> EtcdOptions {
        EtcdOptions::new(vec![self.endpoint()], Arc::new(Identity))
    }

    pub async fn connect(&self) -> Arc<dyn Store> {
        connect(self.options()).await.unwrap()
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}
