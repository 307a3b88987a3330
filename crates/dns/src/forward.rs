//! Asking others: the name servers of the host's `resolv.conf`.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::wire::{HEADER, Query};

/// Each server gets this long to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// `resolv.conf` lists at most this many servers that count.
const MAX_SERVERS: usize = 3;
/// A changed file is noticed within this time.
const REREAD: Duration = Duration::from_secs(5);
/// The largest message there is.
const LARGEST: usize = 65_535;

/// The servers to ask, as a file lists them at the time.
#[derive(Debug)]
pub struct Upstreams {
    path: PathBuf,
    /// Ourselves; to ask whom would never end.
    listening: Vec<SocketAddr>,
    servers: Mutex<Option<(Instant, Vec<SocketAddr>)>>,
}

impl Upstreams {
    pub fn new(path: PathBuf, listening: Vec<SocketAddr>) -> Upstreams {
        Upstreams {
            path,
            listening,
            servers: Mutex::new(None),
        }
    }

    /// The answer of the first server that gives one. It is passed on as it is. `message` is what `query` was read from.
    pub async fn ask(&self, query: &Query, message: &[u8], by_tcp: bool) -> Option<Vec<u8>> {
        for server in self.servers() {
            let asked = async {
                let question = Asked::new(query, message)?;
                match by_tcp {
                    true => ask_tcp(server, &question).await,
                    false => ask_udp(server, &question).await,
                }
            };
            match tokio::time::timeout(PATIENCE, asked).await {
                Ok(Ok(mut answer)) => {
                    answer[..2].copy_from_slice(&query.id.to_be_bytes());
                    return Some(answer);
                }
                Ok(Err(error)) => tracing::debug!(%server, %error, "Failed to query an upstream name server"),
                Err(_) => tracing::debug!(%server, "Upstream name server did not answer in time"),
            }
        }
        None
    }

    fn servers(&self) -> Vec<SocketAddr> {
        let mut known = self.servers.lock();
        if let Some((read, servers)) = &*known
            && read.elapsed() < REREAD
        {
            return servers.clone();
        }
        let text = fs::read_to_string(&self.path).unwrap_or_else(|error| {
            tracing::warn!(path = %self.path.display(), %error, "cannot read which name servers to ask");
            String::new()
        });
        let servers: Vec<SocketAddr> = parse(&text)
            .filter(|server| !self.is_self(server))
            .take(MAX_SERVERS)
            .collect();
        *known = Some((Instant::now(), servers.clone()));
        servers
    }

    fn is_self(&self, server: &SocketAddr) -> bool {
        let same =
            |own: &SocketAddr| own.port() == server.port() && (own.ip() == server.ip() || own.ip().is_unspecified());
        self.listening.iter().any(same)
    }
}

/// `nameserver ADDRESS` or `nameserver [ADDRESS]:PORT`.
fn parse(text: &str) -> impl Iterator<Item = SocketAddr> + '_ {
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|server| {
        let server = server.trim();
        let plain = server.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 53));
        plain.or_else(|| server.parse().ok())
    })
}

/// A question under an id of our own. A client may tell somebody else which one it chose, who then could answer in a
/// server's name, and that answer would be kept for all.
struct Asked<'a> {
    query: &'a Query,
    message: Vec<u8>,
}

impl<'a> Asked<'a> {
    fn new(query: &'a Query, message: &[u8]) -> io::Result<Asked<'a>> {
        let mut id = [0; 2];
        let drawn = SystemRandom::new().fill(&mut id);
        drawn.map_err(|_| io::Error::other("the system has no random numbers"))?;
        let mut message = message.to_vec();
        message[..2].copy_from_slice(&id);
        Ok(Asked { query, message })
    }

    /// Servers that cannot read a question may answer without it.
    fn is_answered_by(&self, answer: &[u8]) -> bool {
        let refuses = answer.len() == HEADER && answer[2] & 0x80 != 0 && answer[3] & 15 != 0;
        answer.len() >= HEADER && answer[..2] == self.message[..2] && (refuses || self.query.is_answered_by(answer))
    }
}

/// A fresh port for every question, so that an answer is hard to forge.
async fn ask_udp(server: SocketAddr, question: &Asked<'_>) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() {
        [0; 4].into()
    } else {
        [0; 16].into()
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&question.message).await?;
    let mut answer = vec![0; LARGEST];
    loop {
        let length = socket.recv(&mut answer).await?;
        if question.is_answered_by(&answer[..length]) {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

async fn ask_tcp(server: SocketAddr, question: &Asked<'_>) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.message.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(&question.message).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    match question.is_answered_by(&answer) {
        true => Ok(answer),
        false => Err(io::Error::other("the answer is to another question")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_and_ourselves_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        fs::write(&path, "# comment\nsearch a b\nnameserver 192.0.2.1\nnameserver fd00::1\nnameserver [192.0.2.3]\nnameserver 192.0.2.4:5353\n").unwrap();
        let upstreams = Upstreams::new(path.clone(), vec!["192.0.2.1:53".parse().unwrap()]);
        let expected: Vec<SocketAddr> = vec!["[fd00::1]:53".parse().unwrap(), "192.0.2.4:5353".parse().unwrap()];
        assert_eq!(upstreams.servers(), expected);
    }
}
