//! Answering by UDP and TCP.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use network::Cidr;
use parking_lot::Mutex;
use serving::{AnyError, ConnectionLimits, Connections};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::cache::Cache;
use crate::forward::Upstreams;
use crate::wire::{Code, Malformed, Query, Reply, bare, kind};
use crate::zone::{Answer, Zone};

/// Questions that wait for others at a time, of all clients and of one; more are told to try again.
const MAX_FORWARDED: usize = 512;
const MAX_FORWARDED_PER_CLIENT: usize = 128;
/// TCP connections at a time. Nobody says who they are, so a pod that holds on to too many loses its own.
const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 256,
    unidentified: 32,
    unidentified_on_loopback: 128,
    per_client: 0,
};
/// A TCP connection may be silent this long.
const IDLE: Duration = Duration::from_secs(10);
const LARGEST: usize = 65_535;

/// Everything an answer is made from.
pub struct Server {
    pub zone: Zone,
    pub upstreams: Upstreams,
    /// Who is answered; everybody if empty.
    pub clients: Vec<Cidr>,
    pub forwarded: Semaphore,
    /// How many of them each client has.
    shares: Mutex<HashMap<IpAddr, usize>>,
    cache: Cache,
    /// Turns lists of addresses, so that clients that take the first spread.
    pub turn: AtomicUsize,
}

impl Server {
    pub fn new(zone: Zone, upstreams: Upstreams, clients: Vec<Cidr>) -> Server {
        Server {
            zone,
            upstreams,
            clients,
            forwarded: Semaphore::new(MAX_FORWARDED),
            shares: Mutex::default(),
            cache: Cache::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Answers datagrams until the future is dropped. What the zone knows is answered in turn, at once; only what
    /// has to be asked for waits, each in a task of its own.
    pub async fn serve_udp(self: Arc<Server>, socket: Arc<UdpSocket>) -> io::Error {
        let mut buffer = vec![0; LARGEST];
        loop {
            let (length, from) = match socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // An earlier answer could not be delivered.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return error,
            };
            if !self.serves(from.ip()) {
                continue;
            }
            let message = &buffer[..length];
            match self.answer(message, false) {
                Outcome::Silence => {}
                Outcome::Answer(answer) => send(&socket, &answer, from).await,
                Outcome::Ask(question) => {
                    let (server, socket, message) = (self.clone(), socket.clone(), message.to_vec());
                    tokio::spawn(async move {
                        let answer = server.forward(from.ip(), &question, &message, false).await;
                        send(&socket, &answer, from).await;
                    });
                }
            }
        }
    }

    /// Answers by TCP until the future is dropped.
    pub async fn serve_tcp(self: Arc<Server>, listener: TcpListener) -> Infallible {
        let connections = Connections::new(LIMITS);
        let serve = |stream, _| self.clone().converse_with_client(stream);
        serving::accept(&listener, &connections, serve).await
    }

    async fn converse_with_client(self: Arc<Server>, stream: TcpStream) -> Result<(), AnyError> {
        let client = stream.peer_addr()?.ip();
        match self.serves(client) {
            true => Ok(self.converse(client, stream).await?),
            false => Ok(()),
        }
    }

    async fn converse(&self, client: IpAddr, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let Ok(length) = tokio::time::timeout(IDLE, stream.read_u16()).await else {
                return Ok(());
            };
            let mut message = match length {
                Ok(length) => vec![0; usize::from(length)],
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            };
            tokio::time::timeout(IDLE, stream.read_exact(&mut message)).await??;
            let answer = match self.answer(&message, true) {
                Outcome::Silence => return Ok(()),
                Outcome::Answer(answer) => answer,
                Outcome::Ask(question) => self.forward(client, &question, &message, true).await,
            };
            let mut out = (answer.len() as u16).to_be_bytes().to_vec();
            out.extend_from_slice(&answer);
            tokio::time::timeout(IDLE, stream.write_all(&out)).await??;
        }
    }

    fn serves(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.clients.is_empty() || client.is_loopback() || self.clients.iter().any(|block| block.contains(client))
    }

    fn answer(&self, message: &[u8], by_tcp: bool) -> Outcome {
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(Malformed::NoQuery) => return Outcome::Silence,
            Err(Malformed::Format(id)) => return Outcome::Answer(bare(id, Code::FormatError)),
            Err(Malformed::NotImplemented(id)) => return Outcome::Answer(bare(id, Code::NotImplemented)),
        };
        let limit = if by_tcp { LARGEST } else { query.udp_bytes };
        if !query.is_internet() {
            return Outcome::Answer(query.answer(&Reply::with_code(Code::Refused), limit));
        }
        let mut reply = Reply::with_code(Code::Success);
        reply.authoritative = true;
        match self.zone.answer(&query.name, query.kind) {
            Answer::Elsewhere => {
                return match self.cache.find(&query, by_tcp, Instant::now()) {
                    Some(answer) => Outcome::Answer(answer),
                    None => Outcome::Ask(Question { query, alias: None }),
                };
            }
            Answer::Alias { record, target } => {
                let alias = Some((record, target));
                return Outcome::Ask(Question { query, alias });
            }
            Answer::NoName => reply.code = Code::NoName,
            Answer::Records { answers, additional } => (reply.answers, reply.additional) = (answers, additional),
        }
        if reply.answers.is_empty() {
            reply.authority.push(self.zone.start_of_authority());
        } else if matches!(query.kind, kind::A | kind::AAAA) {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % reply.answers.len();
            // What an alias stands for comes after it.
            let fixed = reply
                .answers
                .iter()
                .take_while(|record| record.data.kind() == kind::CNAME)
                .count();
            let turning = &mut reply.answers[fixed..];
            turning.rotate_left(turn % turning.len().max(1));
        }
        Outcome::Answer(query.answer(&reply, limit))
    }

    /// Asks the host's servers. An alias of ours is answered with itself and with what its target is.
    async fn forward(&self, client: IpAddr, question: &Question, message: &[u8], by_tcp: bool) -> Vec<u8> {
        let Question { query, alias } = question;
        let limit = if by_tcp { LARGEST } else { query.udp_bytes };
        let failure = || query.answer(&Reply::with_code(Code::ServerFailure), limit);
        let Some((record, target)) = alias else {
            return self.ask(client, query, message, by_tcp).await.unwrap_or_else(failure);
        };
        let about = query.about(target);
        let Ok(asked) = Query::parse(&about) else {
            return failure();
        };
        let mut reply = Reply::with_code(Code::Success);
        reply.authoritative = true;
        reply.answers.push(record.clone());
        let answer = match self.cache.find(&asked, by_tcp, Instant::now()) {
            Some(answer) => Some(answer),
            None => self.ask(client, &asked, &about, by_tcp).await,
        };
        if let Some(answer) = answer {
            reply.answers.extend(crate::wire::addresses(&answer, target));
        }
        query.answer(&reply, limit)
    }

    /// The answer of the host's servers, kept for those who ask the same. None if they do not answer, or if the client or
    /// all together wait for too many answers already.
    async fn ask(&self, client: IpAddr, query: &Query, message: &[u8], by_tcp: bool) -> Option<Vec<u8>> {
        let client = client.to_canonical();
        let _place = self.forwarded.try_acquire().ok()?;
        let _share = Share::take(&self.shares, client)?;
        let answer = self.upstreams.ask(query, message, by_tcp).await?;
        self.cache.keep(client, query, by_tcp, &answer, Instant::now());
        Some(answer)
    }
}

/// One of the questions of a client that wait for others.
struct Share<'a> {
    shares: &'a Mutex<HashMap<IpAddr, usize>>,
    client: IpAddr,
}

impl<'a> Share<'a> {
    fn take(shares: &'a Mutex<HashMap<IpAddr, usize>>, client: IpAddr) -> Option<Share<'a>> {
        let mut held = shares.lock();
        let count = held.entry(client).or_default();
        (*count < MAX_FORWARDED_PER_CLIENT).then(|| *count += 1)?;
        Some(Share { shares, client })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut held = self.shares.lock();
        if let Entry::Occupied(mut count) = held.entry(self.client) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// A question that the zone does not answer alone.
struct Question {
    query: Query,
    /// The zone's own part of the answer, and the name that stands for.
    alias: Option<(crate::wire::Record, String)>,
}

enum Outcome {
    Silence,
    Answer(Vec<u8>),
    Ask(Question),
}

async fn send(socket: &UdpSocket, answer: &[u8], to: SocketAddr) {
    if let Err(error) = socket.send_to(answer, to).await {
        tracing::debug!(%to, %error, "Failed to send a DNS answer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_share_of_waiting_questions_and_gives_it_back() {
        let (shares, pod) = (Mutex::default(), IpAddr::from([10, 244, 0, 2]));
        let held: Vec<_> = (0..MAX_FORWARDED_PER_CLIENT)
            .map(|_| Share::take(&shares, pod))
            .collect();
        assert!(held.iter().all(Option::is_some));
        assert!(Share::take(&shares, pod).is_none());
        assert!(Share::take(&shares, [10, 244, 0, 3].into()).is_some());
        drop(held);
        assert!(shares.lock().is_empty());
    }
}
