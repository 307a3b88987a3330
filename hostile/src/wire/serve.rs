//! Servers of the attacker: what a hostile registry, node, webhook or aggregated API server is made of.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::Stream;
use super::http1::Connection;
use super::tls::PATIENCE;

/// What a client asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The certificate that the client showed, DER.
    pub certificate: Option<Vec<u8>>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// What it is answered.
pub enum Answer {
    /// A status, headers and a body.
    Whole(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// The same, with a body that goes on until the client has had enough.
    Endless(u16, Vec<(&'static str, String)>),
}

impl Answer {
    pub fn json(status: u16, value: &serde_json::Value) -> Self {
        Self::Whole(
            status,
            vec![("Content-Type", "application/json".into())],
            value.to_string().into_bytes(),
        )
    }

    pub fn text(status: u16, text: &str) -> Self {
        Self::Whole(
            status,
            vec![("Content-Type", "text/plain".into())],
            text.as_bytes().to_vec(),
        )
    }
}

type Handler = dyn Fn(&Asked) -> Answer + Send + Sync;

/// A server that ends with this value.
pub struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    connected: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    pub fn start(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        let server = Self {
            address: listener.local_addr()?,
            asked: Arc::default(),
            connected: Arc::default(),
            stopped: Arc::default(),
        };
        let (asked, connected, stopped) = (server.asked.clone(), server.connected.clone(), server.stopped.clone());
        let handler: Arc<Handler> = Arc::new(handler);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                connected.store(true, Ordering::Relaxed);
                let (tls, asked, handler) = (tls.clone(), asked.clone(), handler.clone());
                // How a connection ends is the client's business.
                thread::spawn(move || converse(socket, tls, &asked, &*handler).ok());
            }
        });
        Ok(server)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether anybody connected at all.
    pub fn was_reached(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Everything that was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().map(|asked| asked.clone()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn converse(
    socket: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    asked: &Mutex<Vec<Asked>>,
    handler: &Handler,
) -> Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let Some(tls) = tls else {
        return exchange(Connection::over(socket), None, asked, handler);
    };
    let mut stream = StreamOwned::new(ServerConnection::new(tls)?, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    let certificate = stream
        .conn
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|leaf| leaf.to_vec());
    exchange(Connection::over(stream), certificate, asked, handler)
}

fn exchange<S: Stream>(
    mut connection: Connection<S>,
    certificate: Option<Vec<u8>>,
    all: &Mutex<Vec<Asked>>,
    handler: &Handler,
) -> Result<()> {
    loop {
        let first = connection.line()?;
        let mut words = first.split(' ');
        let mut asked = Asked {
            method: words.next().unwrap_or_default().to_owned(),
            path: words.next().unwrap_or_default().to_owned(),
            headers: connection.headers()?,
            body: Vec::new(),
            certificate: certificate.clone(),
        };
        if let Some(length) = asked.header("content-length").and_then(|length| length.parse().ok()) {
            asked.body.resize(length, 0);
            connection.read_exact(&mut asked.body)?;
        }
        if let Ok(mut all) = all.lock() {
            all.push(asked.clone());
        }
        answer(&mut connection, &asked, handler(&asked))?;
    }
}

fn answer<S: Stream>(connection: &mut Connection<S>, asked: &Asked, answer: Answer) -> Result<()> {
    let head = |status: u16, headers: &[(&str, String)]| {
        let mut head = format!("HTTP/1.1 {status} Status\r\n");
        headers
            .iter()
            .for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        head
    };
    match answer {
        Answer::Whole(status, headers, body) => {
            let head = format!("{}Content-Length: {}\r\n\r\n", head(status, &headers), body.len());
            let body = if asked.method == "HEAD" { &[][..] } else { &body };
            Ok(connection.send(head.as_bytes(), body)?)
        }
        Answer::Endless(status, headers) => {
            connection.send(format!("{}\r\n", head(status, &headers)).as_bytes(), &[])?;
            let zeros = vec![0; 1 << 16];
            loop {
                connection.stream().write_all(&zeros)?;
            }
        }
    }
}
