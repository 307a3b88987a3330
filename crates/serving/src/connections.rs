//! Who may stay connected.
//!
//! A connection costs memory, a file handle and a handshake before anybody knows whose it is. Those of clients that have
//! not proved who they are yet are bounded by address: one too many ends the oldest of them, so that a flood displaces
//! itself and a client that identifies itself at once is never kept out. Those of known clients are bounded by client,
//! and all together by the file handles of the process.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Open connections of everybody.
    pub total: usize,
    /// Connections from one address whose client is not known.
    pub unidentified: usize,
    /// The same for loopback addresses, behind which a whole machine of clients may be.
    pub unidentified_on_loopback: usize,
    /// Connections of one known client.
    pub per_client: usize,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        // The rest is for files, watches of the kernel and connections to others.
        let handles = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        ConnectionLimits {
            total: usize::try_from(handles / 4 * 3).unwrap_or(usize::MAX).min(100_000),
            unidentified: 512,
            unidentified_on_loopback: 8192,
            per_client: 5000,
        }
    }
}

/// All connections of a server.
pub struct Connections {
    limits: ConnectionLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    open: usize,
    /// By address, in the order in which they came.
    unidentified: HashMap<IpAddr, BTreeSet<u64>>,
    /// How to end the unidentified ones.
    ends: HashMap<u64, Arc<Notify>>,
    clients: HashMap<u64, usize>,
}

/// An open connection; it is given back when this is dropped.
pub struct Connection {
    connections: Arc<Connections>,
    id: u64,
    address: IpAddr,
    end: Arc<Notify>,
    client: Mutex<Option<u64>>,
}

impl Connections {
    pub fn new(limits: ConnectionLimits) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            state: Mutex::default(),
        })
    }

    /// Takes in a connection, or nothing when there are too many of known clients.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Connection> {
        let address = block_of(address);
        let mut state = self.state.lock();
        let own = state.unidentified.get(&address).map_or(0, BTreeSet::len);
        if own >= self.unidentified_limit(address) {
            state.end_oldest(address);
        } else if state.open >= self.limits.total {
            let crowd = state.unidentified.iter().max_by_key(|(_, ids)| ids.len());
            let crowd = *crowd?.0;
            state.end_oldest(crowd);
        }
        state.next += 1;
        state.open += 1;
        let (id, end) = (state.next, Arc::new(Notify::new()));
        state.unidentified.entry(address).or_default().insert(id);
        state.ends.insert(id, end.clone());
        Some(Connection {
            connections: self.clone(),
            id,
            address,
            end,
            client: Mutex::new(None),
        })
    }

    fn unidentified_limit(&self, address: IpAddr) -> usize {
        match address.is_loopback() {
            true => self.limits.unidentified_on_loopback,
            false => self.limits.unidentified,
        }
    }
}

impl State {
    /// The connection itself is counted until it is gone; it only stops being a candidate.
    fn end_oldest(&mut self, address: IpAddr) {
        let ids = self.unidentified.get_mut(&address);
        if let Some(id) = ids.and_then(BTreeSet::pop_first) {
            self.forget_unidentified(address, id);
        }
    }

    fn forget_unidentified(&mut self, address: IpAddr, id: u64) {
        if let Some(ids) = self.unidentified.get_mut(&address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.unidentified.remove(&address);
            }
        }
        if let Some(end) = self.ends.remove(&id) {
            end.notify_one();
        }
    }
}

impl Connection {
    /// The client is known now: `client` is a number of its own, such as a hash of its name. False when it has too many
    /// connections; then this one is to be closed. Only the first call counts.
    pub fn identify(&self, client: u64) -> bool {
        let mut known = self.client.lock();
        if known.is_some() {
            return true;
        }
        let mut state = self.connections.state.lock();
        let count = state.clients.entry(client).or_default();
        if *count >= self.connections.limits.per_client {
            return false;
        }
        *count += 1;
        *known = Some(client);
        // Nothing waits for this notification any more, see `ended`.
        state.forget_unidentified(self.address, self.id);
        true
    }

    pub fn is_identified(&self) -> bool {
        self.client.lock().is_some()
    }

    /// Waits until the connection has to make room for others.
    pub async fn ended(&self) {
        loop {
            self.end.notified().await;
            if !self.is_identified() {
                return;
            }
        }
    }

    /// Asks the connection to end, as if it had to make room.
    pub fn end(&self) {
        self.end.notify_one();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        state.open -= 1;
        state.forget_unidentified(self.address, self.id);
        if let Some(client) = *self.client.lock()
            && let Some(count) = state.clients.get_mut(&client)
        {
            *count -= 1;
            if *count == 0 {
                state.clients.remove(&client);
            }
        }
    }
}

/// The block that addresses of one client come from: a machine has many of version 6, but seldom more than one network.
fn block_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        total: 6,
        unidentified: 2,
        unidentified_on_loopback: 4,
        per_client: 2,
    };

    fn remote(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    async fn has_ended(connection: &Connection) -> bool {
        timeout(Duration::from_millis(20), connection.ended()).await.is_ok()
    }

    #[tokio::test]
    async fn a_flood_from_one_address_displaces_only_itself() {
        let connections = Connections::new(LIMITS);
        let other = connections.admit(remote(2)).unwrap();
        let known = connections.admit(remote(1)).unwrap();
        assert!(known.identify(7));
        let flood: Vec<Connection> = (0..3).map(|_| connections.admit(remote(1)).unwrap()).collect();
        assert!(has_ended(&flood[0]).await, "the oldest makes room");
        assert!(!has_ended(&flood[1]).await);
        assert!(!has_ended(&known).await, "a known client stays");
        assert!(!has_ended(&other).await, "another address is not concerned");
    }

    #[tokio::test]
    async fn an_address_cannot_be_written_in_two_ways() {
        let connections = Connections::new(LIMITS);
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        let first = connections.admit(mapped).unwrap();
        let _others = [connections.admit(remote(1)), connections.admit(remote(1))];
        assert!(has_ended(&first).await);
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let block = |text: &str| block_of(text.parse().unwrap());
        assert_eq!(block("2001:db8::1"), block("2001:db8::ffff:1"));
        assert_ne!(block("2001:db8::1"), block("2001:db8:0:1::1"));
        assert_eq!(block("::ffff:192.0.2.1"), block("192.0.2.1"));
        assert_ne!(block("192.0.2.1"), block("192.0.2.2"));
        assert!(block("::1").is_loopback());
    }

    #[tokio::test]
    async fn when_all_are_taken_the_largest_crowd_makes_room_and_known_clients_do_not() {
        let connections = Connections::new(LIMITS);
        let crowd: Vec<Connection> = (0..2).map(|_| connections.admit(remote(1)).unwrap()).collect();
        let known: Vec<Connection> = (2..6).map(|last| connections.admit(remote(last)).unwrap()).collect();
        for (client, connection) in known.iter().enumerate() {
            assert!(connection.identify(client as u64));
        }
        let late = connections.admit(remote(9)).unwrap();
        assert!(has_ended(&crowd[0]).await);
        assert!(!has_ended(&crowd[1]).await && !has_ended(&late).await);
        for connection in &known {
            assert!(!has_ended(connection).await);
        }
    }

    #[test]
    fn nobody_is_admitted_when_only_known_clients_are_there() {
        let connections = Connections::new(LIMITS);
        let known: Vec<Connection> = (0..6).map(|last| connections.admit(remote(last)).unwrap()).collect();
        for (client, connection) in known.iter().enumerate() {
            assert!(connection.identify(client as u64));
        }
        assert!(connections.admit(remote(9)).is_none());
        drop(known);
        assert!(connections.admit(remote(9)).is_some());
    }

    #[test]
    fn a_client_has_a_bounded_number_of_connections_and_gets_them_back() {
        let connections = Connections::new(LIMITS);
        let first = connections.admit(remote(1)).unwrap();
        let second = connections.admit(remote(2)).unwrap();
        let third = connections.admit(remote(3)).unwrap();
        assert!(first.identify(1) && second.identify(1));
        assert!(!third.identify(1));
        drop(second);
        assert!(third.identify(1));
        drop((first, third));
        let state = connections.state.lock();
        assert!(state.clients.is_empty() && state.unidentified.is_empty() && state.ends.is_empty());
        assert_eq!(state.open, 0);
    }
}
