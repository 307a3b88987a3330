//! Clients that connect and then take their time.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{TOLERATED, honest_wait};
use crate::cases::Case;
use crate::client::Client;
use crate::signals;
use crate::verdict::{Verdict, judge};
use crate::world::World;

pub const SILENT_CLIENTS: Case = Case {
    name: "floods/silent-clients",
    class: "",
    must_not: "Clients that connect and say nothing, or never end their headers, are kept for ever or keep others out.",
    needs: &[],
    run: silent_clients,
};

/// Connections to each server that never shake hands.
const SILENT: usize = 400;
/// How long a client may take to say what it wants.
pub const PATIENCE: Duration = Duration::from_secs(75);

fn silent_clients(world: &World) -> Result<Verdict> {
    let servers = [
        ("the API server", world.cluster.api()),
        ("the kubelet", world.cluster.kubelet()),
    ];
    let mut silent = Vec::new();
    for (what, address) in servers {
        let sockets: Result<Vec<TcpStream>> = (0..SILENT).map(|_| Ok(TcpStream::connect(address)?)).collect();
        silent.push((what, sockets.with_context(|| format!("cannot reach {what}"))?));
    }
    let mut halfway = Vec::new();
    for (what, address) in servers {
        halfway.push((what, unended(address)?));
    }
    let waited = honest_wait(world)?;
    let mut attempts = vec![match waited < TOLERATED {
        true => Verdict::Blocked(format!(
            "others waited {waited:.1?} beside {} silent clients",
            2 * SILENT
        )),
        false => Verdict::Succeeded(format!("others waited {waited:.1?}")),
    }];
    let until = Instant::now() + PATIENCE;
    for (what, mut sockets) in silent {
        let ended = closed(&mut sockets, until)?;
        attempts.push(judge_one(what, "no handshake", ended));
    }
    for (what, socket) in halfway {
        let ended = closed(&mut [socket], until)?;
        attempts.push(judge_one(what, "headers without end", ended));
    }
    judge(&attempts)
}

pub fn judge_one(what: &str, how: &str, ended: bool) -> Verdict {
    match ended {
        true => Verdict::Blocked(format!("{what} ends connections with {how}")),
        false => Verdict::Succeeded(format!(
            "{what} keeps connections with {how} for more than {} s",
            PATIENCE.as_secs()
        )),
    }
}

/// A connection whose request has no end of its headers.
fn unended(address: SocketAddr) -> Result<TcpStream> {
    let mut connection = Client::anonymous(address).connect()?;
    connection.send(b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", &[])?;
    let socket = connection.stream().sock.try_clone()?;
    // The value would say goodbye when it goes.
    std::mem::forget(connection);
    Ok(socket)
}

/// Whether the server has closed all of them by then.
pub fn closed(sockets: &mut [TcpStream], until: Instant) -> Result<bool> {
    for socket in sockets {
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut block = [0; 1024];
        loop {
            signals::check()?;
            match socket.read(&mut block) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= until {
                        return Ok(false);
                    }
                }
                Err(_) => break,
            }
        }
    }
    Ok(true)
}
