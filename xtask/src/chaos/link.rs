//! A wire that can be cut and slowed: a TCP relay between clients and the API server.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};

/// How long a pump waits before it looks whether the wire was cut.
const TICK: Duration = Duration::from_millis(50);
const CHUNK: usize = 16 << 10;

#[derive(Default)]
struct State {
    ended: AtomicBool,
    /// New connections are closed at once.
    cut: AtomicBool,
    /// Connections of an older age are closed.
    age: AtomicU64,
    /// Zero for as fast as possible.
    bytes_per_second: AtomicU64,
}

/// Relays until it is dropped.
pub struct Link {
    state: Arc<State>,
}

impl Link {
    /// Listens on all addresses of a network namespace.
    pub fn open(namespace: &Path, port: u16, target: u16) -> Result<Self> {
        let file = File::open(namespace).with_context(|| format!("cannot open {}", namespace.display()))?;
        let state = Arc::new(State::default());
        let shared = state.clone();
        // A thread is in a namespace of its own, and those it starts are there too.
        let listening = thread::spawn(move || -> Result<()> {
            setns(&file, CloneFlags::CLONE_NEWNET)?;
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
            listener.set_nonblocking(true)?;
            thread::spawn(move || accept(&listener, target, &shared));
            Ok(())
        });
        listening
            .join()
            .ok()
            .context("the relay's thread panicked")?
            .with_context(|| format!("cannot relay port {port}"))?;
        Ok(Self { state })
    }

    /// Ends all connections and lets no new one through.
    pub fn cut(&self) {
        self.state.cut.store(true, Ordering::SeqCst);
        self.state.age.fetch_add(1, Ordering::SeqCst);
    }

    pub fn slow(&self, bytes_per_second: u64) {
        self.state.bytes_per_second.store(bytes_per_second, Ordering::SeqCst);
    }

    /// As good as new.
    pub fn mend(&self) {
        self.state.cut.store(false, Ordering::SeqCst);
        self.state.bytes_per_second.store(0, Ordering::SeqCst);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        self.cut();
    }
}

fn accept(listener: &TcpListener, target: u16, state: &Arc<State>) {
    while !state.ended.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((client, _)) if !state.cut.load(Ordering::SeqCst) => {
                // A server that does not answer is the client's to notice.
                let _ = relay(client, target, state);
            }
            Ok(_) => {}
            Err(_) => thread::sleep(TICK),
        }
    }
}

fn relay(client: TcpStream, target: u16, state: &Arc<State>) -> std::io::Result<()> {
    let server = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, target)))?;
    let age = state.age.load(Ordering::SeqCst);
    for stream in [&client, &server] {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_nodelay(true)?;
    }
    let (back, forth) = ((server.try_clone()?, client.try_clone()?), (client, server));
    for (from, to) in [back, forth] {
        let state = state.clone();
        thread::spawn(move || pump(from, to, age, &state));
    }
    Ok(())
}

fn pump(mut from: TcpStream, mut to: TcpStream, age: u64, state: &State) {
    let mut buffer = vec![0; CHUNK];
    while state.age.load(Ordering::SeqCst) == age {
        let length = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        // What was sent after the cut does not get through.
        if state.age.load(Ordering::SeqCst) != age {
            break;
        }
        if let Some(pause) = pause(length, state.bytes_per_second.load(Ordering::SeqCst)) {
            thread::sleep(pause);
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// How long so many bytes take on a slow wire.
fn pause(length: usize, bytes_per_second: u64) -> Option<Duration> {
    (bytes_per_second > 0).then(|| Duration::from_secs_f64(length as f64 / bytes_per_second as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(port: u16, target: u16) -> Link {
        Link::open(Path::new("/proc/thread-self/ns/net"), port, target).unwrap()
    }

    /// A server that sends back what it gets, and its port.
    fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                thread::spawn(move || {
                    let mut buffer = [0; 64];
                    while let Ok(length @ 1..) = stream.read(&mut buffer) {
                        if stream.write_all(&buffer[..length]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        port
    }

    fn free_port() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap().port()
    }

    fn says(stream: &mut TcpStream, word: &[u8]) -> std::io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(word)?;
        let mut answer = vec![0; word.len()];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    #[test]
    fn a_cut_wire_ends_connections_and_a_mended_one_takes_new_ones() {
        if !crate::tools::is_root() {
            eprintln!("SKIPPED: entering a network namespace needs root");
            return;
        }
        let port = free_port();
        let link = link(port, echo());
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(says(&mut stream, b"one").unwrap(), b"one");
        link.cut();
        assert!(says(&mut stream, b"two").is_err());
        link.mend();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(says(&mut stream, b"three").unwrap(), b"three");
    }

    #[test]
    fn slowness_is_by_length() {
        assert_eq!(pause(1000, 0), None);
        assert_eq!(pause(1000, 500), Some(Duration::from_secs(2)));
    }
}
