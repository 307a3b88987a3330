//! Streams that a container runtime serves at a URL: the kubelet is its SPDY client, and has them as if they were its
//! own.

use bytes::Bytes;
use cri::{Duplex, ExecStatus, Streams, TerminalSize};
use http::{Request, Uri, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::exec::Options;
use crate::spdy::session::{Reader, Writer};
use crate::spdy::{self, Session};

/// What is buffered between a stream and its user.
const PIPE_BYTES: usize = 64 * 1024;
const RESIZES: usize = 8;
/// A command's end is told in fewer bytes.
const MAX_STATUS_BYTES: usize = 64 * 1024;

/// Why there are no streams from the runtime.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("failed to connect to the runtime's streaming server at {url}: {source}")]
    Connect { url: String, source: ConnectError },
    #[error("failed to open a stream of the runtime's streaming server: {0}")]
    Open(#[from] std::io::Error),
}

/// Why the runtime's streaming server gives no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("invalid URL: {0}")]
    Url(#[from] http::uri::InvalidUri),
    #[error("the URL has no host")]
    NoHost,
    #[error("the URL is not an http URL, and no other scheme is supported")]
    Scheme,
    #[error(transparent)]
    Connection(#[from] std::io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
    #[error("it answered {0} instead of switching to SPDY")]
    Status(http::StatusCode),
}

/// Opens the streams of a command.
pub async fn command(url: &str, options: &Options) -> Result<Streams, StreamError> {
    let session = session(url, "v4.channel.k8s.io").await?;
    let open = async |kind: &str| {
        let headers = vec![("streamtype".to_owned(), kind.to_owned())];
        session.open(headers).await
    };
    let status = open("error").await?;
    let stdin = match options.stdin {
        true => Some(writer(open("stdin").await?.writer)),
        false => None,
    };
    let stdout = match options.stdout {
        true => Some(reader(open("stdout").await?)),
        false => None,
    };
    let stderr = match options.stderr {
        true => Some(reader(open("stderr").await?)),
        false => None,
    };
    let (resize, sizes) = mpsc::channel(RESIZES);
    if options.tty {
        tokio::spawn(pass_sizes(sizes, open("resize").await?.writer));
    }
    Ok(Streams {
        stdin,
        stdout,
        stderr,
        resize,
        exit: Box::pin(exit(status, session)),
    })
}

/// Opens a connection to a port of a pod.
pub async fn port(url: &str, port: u16) -> Result<Box<dyn Duplex>, StreamError> {
    let session = session(url, "portforward.k8s.io").await?;
    let open = async |kind: &str| {
        let headers = [("streamtype", kind), ("port", &port.to_string()), ("requestid", "0")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        session.open(headers).await
    };
    let mut errors = open("error").await?;
    errors.writer.finish().await;
    let data = open("data").await?;
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let (from_user, to_user) = tokio::io::split(near);
    tokio::spawn(fill(data.writer, from_user));
    tokio::spawn(async move {
        // What went wrong at the other end shows as the end of the connection.
        drain(data.reader, to_user).await;
        if let Some(error) = errors.reader.next().await {
            tracing::debug!(error = %String::from_utf8_lossy(&error), port, "Port forwarding failed in the container runtime");
        }
        drop((errors, session));
    });
    Ok(Box::new(far))
}

/// Asks for SPDY at the URL.
async fn session(url: &str, protocol: &str) -> Result<Session, StreamError> {
    connect(url, protocol).await.map_err(|source| StreamError::Connect {
        url: url.to_owned(),
        source,
    })
}

async fn connect(url: &str, protocol: &str) -> Result<Session, ConnectError> {
    let uri: Uri = url.parse()?;
    let authority = uri.authority().ok_or(ConnectError::NoHost)?;
    let (host, port) = (
        authority.host().trim_matches(['[', ']']),
        authority.port_u16().unwrap_or(80),
    );
    if uri.scheme_str() != Some("http") {
        return Err(ConnectError::Scheme);
    }
    let stream = TcpStream::connect((host, port)).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::post(path)
        .header(header::HOST, authority.as_str())
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .header("X-Stream-Protocol-Version", protocol)
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    if answer.status() != http::StatusCode::SWITCHING_PROTOCOLS {
        return Err(ConnectError::Status(answer.status()));
    }
    let upgraded = hyper::upgrade::on(answer).await?;
    let (session, _) = spdy::session::start(TokioIo::new(upgraded), spdy::Role::Client)?;
    Ok(session)
}

fn writer(stream: Writer) -> cri::Writer {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let (from_user, _) = tokio::io::split(near);
    tokio::spawn(fill(stream, from_user));
    Box::new(far)
}

fn reader(mut stream: spdy::Stream) -> cri::Reader {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let (_, to_user) = tokio::io::split(near);
    tokio::spawn(async move {
        stream.writer.finish().await;
        drain(stream.reader, to_user).await;
    });
    Box::new(far)
}

async fn fill(mut stream: Writer, mut from_user: ReadHalf<tokio::io::DuplexStream>) {
    let mut buffer = vec![0; PIPE_BYTES];
    while let Ok(read @ 1..) = from_user.read(&mut buffer).await {
        if stream.send(&buffer[..read]).await.is_err() {
            return;
        }
    }
    stream.finish().await;
}

async fn drain(mut stream: Reader, mut to_user: WriteHalf<tokio::io::DuplexStream>) {
    while let Some(data) = stream.next().await {
        if to_user.write_all(&data).await.is_err() {
            return;
        }
    }
    let _ = to_user.shutdown().await;
}

async fn pass_sizes(mut sizes: mpsc::Receiver<TerminalSize>, mut stream: Writer) {
    while let Some(size) = sizes.recv().await {
        let json = format!("{{\"Width\":{},\"Height\":{}}}", size.columns, size.rows);
        if stream.send(json.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The end of the command, as the error stream tells it.
async fn exit(mut status: spdy::Stream, session: Session) -> cri::Result<ExecStatus> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Told {
        status: String,
        message: String,
        reason: String,
        details: Details,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Details {
        causes: Vec<Cause>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Cause {
        reason: String,
        message: String,
    }
    status.writer.finish().await;
    let mut text = Vec::new();
    while let Some(data) = status.reader.next().await {
        if text.len() + data.len() > MAX_STATUS_BYTES {
            break;
        }
        text.extend_from_slice(&data);
    }
    drop(session);
    let told: Told = serde_json::from_slice(&text).map_err(|_| {
        let text = String::from_utf8_lossy(&text);
        cri::Error::internal(format!(
            "the container runtime did not report the exit status of the command: {text}"
        ))
    })?;
    if told.status == "Success" {
        return Ok(ExecStatus { exit_code: 0 });
    }
    let code = told.details.causes.iter().find(|cause| cause.reason == "ExitCode");
    match code.and_then(|cause| cause.message.parse().ok()) {
        Some(exit_code) if told.reason == "NonZeroExitCode" => Ok(ExecStatus { exit_code }),
        _ => Err(cri::Error::internal(told.message)),
    }
}
