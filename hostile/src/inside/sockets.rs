//! Connections from and to containers.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Outcome, number};
use crate::identity::self_signed;
use crate::wire::http1::Connection;
use crate::wire::serve::{Answer, Server};
use crate::wire::tls::{self, Identity, server_config};

const PATIENCE: Duration = Duration::from_secs(5);

/// `serve PORT TEXT`: answers every request with the text.
pub fn serve(arguments: &[String]) -> Outcome {
    let text = arguments[1].clone();
    let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), number(&arguments[0])?);
    stay(Server::start(address, None, move |_| Answer::text(200, &text)))
}

/// `serve-tls PORT`: a self-signed server that asks for certificates and prints all it is asked and shown.
pub fn serve_tls(arguments: &[String]) -> Outcome {
    let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), number(&arguments[0])?);
    let identity = self_signed(IpAddr::V4(Ipv4Addr::LOCALHOST)).map_err(io::Error::other)?;
    let tls = server_config(&identity).map_err(io::Error::other)?;
    stay(Server::start(address, Some(tls), |asked| {
        let certificate = asked.certificate.as_ref().map(|der| STANDARD.encode(der));
        let told =
            json!({"method": asked.method, "path": asked.path, "headers": asked.headers, "certificate": certificate});
        // Whoever reads the log finds it there.
        let _ = writeln!(io::stdout(), "{}", json!({"ok": true, "value": told}));
        Answer::json(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }))
}

/// `ask ADDRESS PORT PATH`: the answer to a GET in clear text.
pub fn ask(arguments: &[String]) -> Outcome {
    let address: IpAddr = number(&arguments[0])?;
    let mut socket = TcpStream::connect_timeout(&SocketAddr::new(address, number(&arguments[1])?), PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    write!(
        socket,
        "GET {} HTTP/1.1\r\nHost: hostile\r\nConnection: close\r\n\r\n",
        arguments[2]
    )?;
    let mut answer = Vec::new();
    let mut block = [0; 4096];
    loop {
        match socket.read(&mut block) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&block[..count]),
            Err(_) if !answer.is_empty() => break,
            Err(error) => return Err(error),
        }
        let text = String::from_utf8_lossy(&answer);
        if complete(&text) {
            break;
        }
    }
    Ok(json!(String::from_utf8_lossy(&answer)))
}

/// Whether all of a body with a length is there.
fn complete(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse::<usize>()
            .ok()
    });
    length.is_some_and(|length| body.len() >= length)
}

/// `ask-tls ADDRESS PORT PATH`: the same over TLS, without credentials.
pub fn ask_tls(arguments: &[String]) -> Outcome {
    let address: IpAddr = number(&arguments[0])?;
    let stream = tls::connect(SocketAddr::new(address, number(&arguments[1])?), None, &[b"http/1.1"])
        .map_err(io::Error::other)?;
    let answer = Connection::over(stream)
        .request("GET", &arguments[2], &[], &[])
        .map_err(io::Error::other)?;
    Ok(json!({"status": answer.status, "body": answer.text()}))
}

/// `connect PATH`: a Unix socket.
pub fn connect(arguments: &[String]) -> Outcome {
    UnixStream::connect(&arguments[0]).map(|_| Value::Null)
}

/// `serve-redirect PORT LOCATION`: sends everybody elsewhere. With a certificate and key in the environment over TLS.
pub fn serve_redirect(arguments: &[String]) -> Outcome {
    let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), number(&arguments[0])?);
    let location = arguments[1].clone();
    let identity = match (std::env::var("CERTIFICATE"), std::env::var("KEY")) {
        (Ok(certificate_pem), Ok(key_pem)) => Some(Identity {
            certificate_pem,
            key_pem,
        }),
        _ => None,
    };
    let tls = identity
        .map(|identity| server_config(&identity))
        .transpose()
        .map_err(io::Error::other)?;
    let server = Server::start(address, tls, move |asked| {
        let _ = writeln!(io::stdout(), "{}", json!({"ok": true, "value": {"path": asked.path}}));
        Answer::Whole(302, vec![("Location", location.clone())], Vec::new())
    });
    stay(server)
}

fn stay(server: anyhow::Result<Server>) -> Outcome {
    let server = server.map_err(io::Error::other)?;
    loop {
        std::thread::park();
        let _ = server.address();
    }
}

/// `receive PORT SECONDS`: all datagrams that come meanwhile, with whom they seem to come from.
pub fn receive_datagrams(arguments: &[String]) -> Outcome {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, number(&arguments[0])?))?;
    let until = std::time::Instant::now() + Duration::from_secs(number(&arguments[1])?);
    let mut received = Vec::new();
    let mut block = [0; 2048];
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Ok(Value::Array(received));
        }
        socket.set_read_timeout(Some(left))?;
        if let Ok((count, from)) = socket.recv_from(&mut block) {
            received.push(json!([from.ip().to_string(), String::from_utf8_lossy(&block[..count])]));
        }
    }
}

/// `listen PORT`: prints the texts of datagrams as they come, each of them once.
pub fn listen(arguments: &[String]) -> Outcome {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, number(&arguments[0])?))?;
    let mut heard = BTreeSet::new();
    let mut block = [0; 2048];
    loop {
        let Ok((count, _)) = socket.recv_from(&mut block) else {
            continue;
        };
        let text = String::from_utf8_lossy(&block[..count]).into_owned();
        if heard.len() < MAX_HEARD && heard.insert(text.clone()) {
            // Whoever reads the log finds it there.
            let _ = writeln!(io::stdout(), "{}", json!({"ok": true, "value": text}));
        }
    }
}

const MAX_HEARD: usize = 1000;

/// `knock PORT TEXT`: sends a text to that port of all addresses around our own, again and again.
pub fn knock(arguments: &[String]) -> Outcome {
    let port: u16 = number(&arguments[0])?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // Which of our addresses is meant is found by asking for the way to somewhere.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
    let IpAddr::V4(own) = socket.local_addr()?.ip() else {
        return Err(io::Error::other("no address"));
    };
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let [a, b, c, d] = own.octets();
    loop {
        for last in (2..255).filter(|last| *last != d) {
            // Nobody may be there, and the kernel may say so at any later call.
            let _ = socket.send_to(arguments[1].as_bytes(), (Ipv4Addr::new(a, b, c, last), port));
        }
        std::thread::sleep(KNOCK_PAUSE);
    }
}

const KNOCK_PAUSE: Duration = Duration::from_millis(10);
