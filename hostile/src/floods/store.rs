//! The port of the store, when it runs alone.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::slowness::closed;
use super::{TOLERATED, slowness};
use crate::cases::Case;
use crate::server::OtherServer;
use crate::verdict::{Verdict, judge};
use crate::wire::tls::{self, Identity};
use crate::world::World;

pub const STORE_PORT: Case = Case {
    name: "floods/store-port",
    class: "",
    must_not: "Clients of `karve etcd` that never shake hands keep others out, or one without its certificate is answered.",
    needs: &[],
    run: store_port,
};

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7379);
/// Connections that never shake hands.
const SILENT: usize = 300;
/// The beginning of HTTP/2, with settings that are all default.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn store_port(world: &World) -> Result<Verdict> {
    let url = format!("https://{ADDRESS}");
    let mut server = OtherServer::start(world, &["etcd", "--listen-client-urls", &url])?;
    let client = server.until("the store", |pki| {
        let read = |name: &str| std::fs::read_to_string(pki.join(name)).ok();
        let identity = Identity {
            certificate_pem: read("etcd-client.crt")?,
            key_pem: read("etcd-client.key")?,
        };
        is_answered(Some(&identity)).then_some(identity)
    })?;
    let user = world.authority.client("administrator", &["system:masters"])?;
    let mut attempts = Vec::new();
    for (what, identity) in [
        ("nobody", None),
        ("the administrator of another authority", Some(&user)),
    ] {
        attempts.push(match is_answered(identity) {
            true => Verdict::Succeeded(format!("{what} is answered by the store")),
            false => Verdict::Blocked(format!("{what} is not answered")),
        });
    }
    let silent: Result<Vec<TcpStream>> = (0..SILENT).map(|_| Ok(TcpStream::connect(ADDRESS)?)).collect();
    let mut silent = silent.context("cannot reach the store")?;
    let begun = Instant::now();
    let answered = is_answered(Some(&client));
    let waited = begun.elapsed();
    attempts.push(match answered && waited < TOLERATED / 2 {
        true => Verdict::Blocked(format!(
            "the API server's client waited {waited:.1?} beside {SILENT} silent ones"
        )),
        false => Verdict::Succeeded(format!(
            "the API server's client waited {waited:.1?}, answered {answered}"
        )),
    });
    let ended = closed(&mut silent, Instant::now() + slowness::PATIENCE)?;
    attempts.push(slowness::judge_one("the store", "no handshake", ended));
    ensure!(is_answered(Some(&client)), "the store is gone");
    judge(&attempts)
}

/// Whether the store says anything to who shows this.
fn is_answered(identity: Option<&Identity>) -> bool {
    let Ok(mut stream) = tls::connect(ADDRESS, identity, &[b"h2"]) else {
        return false;
    };
    let patience = stream.sock.set_read_timeout(Some(Duration::from_secs(20)));
    patience.is_ok() && stream.write_all(PREFACE).is_ok() && matches!(stream.read(&mut [0; 1]), Ok(1))
}
