//! The two API servers, alone on the loopback of a network namespace of their own, and how they are asked.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, unshare};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use super::cases::Request;
use crate::bench::http::{Connection, Response};
use crate::process::Process;
use crate::signals::wait_for;
use crate::{peers, tools};

const PATIENCE: Duration = Duration::from_secs(60);
/// Of somebody who may do everything.
pub const TOKEN: &str = "differential";
/// Where the etcd of a run is.
pub const ETCD: &str = "http://127.0.0.1:2379";

/// A server and what it stands on; all end with it.
pub struct Server {
    port: u16,
    tls: Arc<ClientConfig>,
    processes: Vec<Process>,
}

/// Moves the calling thread, and all that it starts from now on, to an empty network.
pub fn leave_network() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context("cannot make a network namespace; this needs root")?;
    tools::run(Command::new("ip").args(["link", "set", "lo", "up"]))
}

/// What both need: who may ask, besides somebody who may do everything as lines of a token file, and a key that signs
/// tokens.
pub fn prepare(dir: &Path, tokens: &str) -> Result<()> {
    std::fs::write(
        dir.join("tokens.csv"),
        format!("{TOKEN},{TOKEN},1,\"system:masters\"\n{tokens}"),
    )?;
    let key = dir.join("service-account.key");
    tools::run(
        Command::new("openssl")
            .args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"])
            .arg(key),
    )
}

/// Upstream's server on an etcd. `without` names the admission plugins that it goes without.
pub fn upstream(dir: &Path, without: &str) -> Result<Server> {
    let etcd = start_etcd(dir)?;
    let flags: Vec<String> = match without {
        "" => Vec::new(),
        without => vec![format!("--disable-admission-plugins={without}")],
    };
    let mut server = upstream_on_etcd(dir, &flags)?;
    server.processes.push(etcd);
    Ok(server)
}

/// An etcd at [`ETCD`].
pub fn start_etcd(dir: &Path) -> Result<Process> {
    let programs = peers::build(&["etcd".to_owned()])?;
    let etcd = programs.first().context("build.sh did not name etcd")?;
    let mut command = Command::new(etcd);
    command.arg("--data-dir").arg(dir.join("etcd"));
    Process::start(&mut command, &dir.join("etcd.log"))
}

/// Upstream's server on the etcd that runs here.
pub fn upstream_on_etcd(dir: &Path, flags: &[String]) -> Result<Server> {
    let programs = peers::build(&["kube-apiserver".to_owned()])?;
    let mut command = Command::new(programs.first().context("build.sh did not name kube-apiserver")?);
    common_flags(&mut command, dir);
    command
        .args(["--secure-port=6443", &format!("--etcd-servers={ETCD}")])
        .args(["--endpoint-reconciler-type=none", "--allow-privileged=true"])
        .arg(format!("--cert-dir={}", dir.join("certificates").display()))
        .args(flags);
    Server::start(6443, &mut command, &dir.join("kube-apiserver.log"))
}

pub fn karve(binary: &Path, dir: &Path) -> Result<Server> {
    karve_with(binary, dir, &[])
}

/// The same with further flags.
pub fn karve_with(binary: &Path, dir: &Path, flags: &[String]) -> Result<Server> {
    let mut command = Command::new(binary);
    command.arg("kube-apiserver");
    common_flags(&mut command, dir);
    command
        .arg("--secure-port=7443")
        .arg(format!("--data-dir={}", dir.join("karve").display()))
        .args(flags);
    Server::start(7443, &mut command, &dir.join("karve.log"))
}

fn common_flags(command: &mut Command, dir: &Path) {
    let key = dir.join("service-account.key").display().to_string();
    command
        .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
        .args([
            "--enable-admission-plugins=NodeRestriction",
            "--authorization-mode=Node,RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
        ])
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-account-key-file={key}"))
        .arg(format!("--service-account-signing-key-file={key}"))
        .arg(format!("--token-auth-file={}", dir.join("tokens.csv").display()));
}

fn ready(server: Server) -> Result<Server> {
    let works = |path: &str| {
        let request = Request {
            method: "GET".to_owned(),
            path: path.to_owned(),
            ..Request::default()
        };
        let answer = server.connect().and_then(|mut client| client.ask(&request));
        answer.is_ok_and(|answer| answer.status == 200).then_some(())
    };
    wait_for("a ready server", PATIENCE, || works("/readyz"))?;
    wait_for("the default namespace", PATIENCE, || {
        works("/api/v1/namespaces/default")
    })?;
    Ok(server)
}

impl Server {
    fn start(port: u16, command: &mut Command, log: &Path) -> Result<Server> {
        let process = Process::start(command, log)?;
        ready(Server {
            port,
            tls: tls()?,
            processes: vec![process],
        })
    }

    pub fn connect(&self) -> io::Result<Client> {
        let socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let session = ClientConnection::new(self.tls.clone(), name).map_err(io::Error::other)?;
        Ok(Client {
            connection: Connection::over(StreamOwned::new(session, socket)),
        })
    }
}

/// A kept connection.
pub struct Client {
    connection: Connection<StreamOwned<ClientConnection, TcpStream>>,
}

impl Client {
    pub fn ask(&mut self, request: &Request) -> io::Result<Response> {
        self.connection.exchange(&head_of(request), request.body.as_bytes())
    }

    /// The status of an answer that may have no end.
    pub fn status_of(self, request: &Request) -> io::Result<u16> {
        self.connection.status_of(&head_of(request), request.body.as_bytes())
    }
}

fn head_of(request: &Request) -> String {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: differential\r\n",
        request.method, request.path
    );
    match request.token.as_deref() {
        None => head += &format!("Authorization: Bearer {TOKEN}\r\n"),
        Some("") => {}
        Some(token) => head += &format!("Authorization: Bearer {token}\r\n"),
    }
    for (name, value) in [("Accept", &request.accept), ("Content-Type", &request.content_type)] {
        if !value.is_empty() {
            head += &format!("{name}: {value}\r\n");
        }
    }
    for (name, value) in &request.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head + &format!("Content-Length: {}\r\n", request.body.len())
}

fn tls() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Accepts every certificate: nobody else is on this loopback.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
