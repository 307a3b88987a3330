//! A real etcd on loopback for one test.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use store::Store;
use store::etcd::{EtcdOptions, Identity, Tls, connect};
use tempfile::TempDir;

pub struct EtcdServer {
    process: Option<Child>,
    /// Served over TLS, to clients with a certificate only.
    secure: bool,
    directory: TempDir,
    client_port: u16,
    peer_port: u16,
}

impl EtcdServer {
    /// Starts the `etcd` on the path. Without one the test is skipped, or fails if nothing may be skipped.
    pub fn start() -> Option<Self> {
        Self::start_with(false)
    }

    /// As `start`, but over TLS and for clients with a certificate.
    pub fn start_secure() -> Option<Self> {
        Self::start_with(true)
    }

    fn start_with(secure: bool) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        if secure {
            write_certificates(directory.path());
        }
        let mut server = EtcdServer {
            process: None,
            secure,
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
        if self.secure {
            let file = |name: &str| self.directory.path().join(name);
            command
                .arg("--client-cert-auth")
                .arg("--trusted-ca-file")
                .arg(file("ca.crt"));
            command
                .arg("--cert-file")
                .arg(file("server.crt"))
                .arg("--key-file")
                .arg(file("server.key"));
        }
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
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.client_port)
    }

    /// The files for a client that may connect.
    pub fn tls(&self) -> Tls {
        let file = |name: &str| self.directory.path().join(name);
        Tls {
            ca: file("ca.crt"),
            cert: Some(file("client.crt")),
            key: Some(file("client.key")),
        }
    }

    pub fn options(&self) -> EtcdOptions {
        let tls = self.secure.then(|| self.tls());
        EtcdOptions {
            tls,
            ..EtcdOptions::new(vec![self.endpoint()], Arc::new(Identity))
        }
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

/// An authority, and a certificate of its for the server and one for a client.
fn write_certificates(directory: &Path) {
    let write = |name: &str, text: String| std::fs::write(directory.join(name), text).unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    write("ca.crt", authority.self_signed(&authority_key).unwrap().pem());
    let issuer = Issuer::new(authority, authority_key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]).unwrap();
        write(&format!("{name}.crt"), params.signed_by(&key, &issuer).unwrap().pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
}
