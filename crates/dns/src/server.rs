//! Answering by UDP and TCP.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use network::Cidr;
use serving::{AnyError, ConnectionLimits, Connections};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::forward::Upstreams;
use crate::wire::{Code, Malformed, Query, Reply, bare, kind};
use crate::zone::{Answer, Zone};

/// Questions that wait for others at a time; more are told to try again.
const MAX_FORWARDED: usize = 512;
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
                        let answer = server.forward(&question, &message, false).await;
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
        match self.serves(stream.peer_addr()?.ip()) {
            true => Ok(self.converse(stream).await?),
            false => Ok(()),
        }
    }

    async fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
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
                Outcome::Ask(question) => self.forward(&question, &message, true).await,
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
            return Outcome::Answer(query.answer(&Reply::of(Code::Refused), limit));
        }
        let mut reply = Reply::of(Code::Success);
        reply.authoritative = true;
        match self.zone.answer(&query.name, query.kind) {
            Answer::Elsewhere => return Outcome::Ask(Question { query, alias: None }),
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
    async fn forward(&self, question: &Question, message: &[u8], by_tcp: bool) -> Vec<u8> {
        let Question { query, alias } = question;
        let limit = if by_tcp { LARGEST } else { query.udp_bytes };
        let failure = || query.answer(&Reply::of(Code::ServerFailure), limit);
        let Ok(_place) = self.forwarded.try_acquire() else {
            return failure();
        };
        let Some((record, target)) = alias else {
            return self.upstreams.ask(message, by_tcp).await.unwrap_or_else(failure);
        };
        let mut reply = Reply::of(Code::Success);
        reply.authoritative = true;
        reply.answers.push(record.clone());
        if let Some(answer) = self.upstreams.ask(&query.about(target), by_tcp).await {
            reply.answers.extend(crate::wire::addresses(&answer, target));
        }
        query.answer(&reply, limit)
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
        tracing::debug!(%to, %error, "an answer could not be sent");
    }
}
