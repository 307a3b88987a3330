//! Asking others: the name servers of the host's `resolv.conf`.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

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

    /// The answer of the first server that gives one. It is passed on as it is.
    pub async fn ask(&self, question: &[u8], by_tcp: bool) -> Option<Vec<u8>> {
        for server in self.servers() {
            let asked = async {
                match by_tcp {
                    true => ask_tcp(server, question).await,
                    false => ask_udp(server, question).await,
                }
            };
            match tokio::time::timeout(PATIENCE, asked).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => tracing::debug!(%server, %error, "a name server did not answer"),
                Err(_) => tracing::debug!(%server, "a name server did not answer in time"),
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

/// A fresh port for every question, so that an answer is hard to forge.
async fn ask_udp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() {
        [0; 4].into()
    } else {
        [0; 16].into()
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut answer = vec![0; LARGEST];
    loop {
        let length = socket.recv(&mut answer).await?;
        if length >= 2 && answer[..2] == question[..2] {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

async fn ask_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&(question.len() as u16).to_be_bytes()).await?;
    stream.write_all(question).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
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
