//! Answers of other servers, kept for a while.
//!
//! A client fills only its own share: what it asks for beyond that pushes out what it asked for before, and nobody
//! else's. No answer is given to a question that differs from the one it was given to.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::keepable::keepable;
use crate::wire::{LARGEST_UDP_BYTES, Query};

/// Answers in all, and of one client.
const MAX_ANSWERS: usize = 4096;
const MAX_PER_CLIENT: usize = 512;
/// Longer answers are not kept.
const MAX_BYTES: usize = LARGEST_UDP_BYTES;
/// However long an answer may be kept, it is not kept longer than by a cluster's usual CoreDNS.
const MAX_AGE_S: u32 = 30;

/// Everything that an answer depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    name: String,
    kind: u16,
    extended: bool,
    by_tcp: bool,
}

struct Kept {
    answer: Vec<u8>,
    ttls_at: Vec<usize>,
    since: Instant,
    until: Instant,
    /// Tells an answer from a later one to the same question.
    number: u64,
}

#[derive(Default)]
pub struct Cache(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    by_key: HashMap<Key, Kept>,
    /// What each client had asked for, the oldest first. Some of it may be replaced or gone.
    by_client: HashMap<IpAddr, VecDeque<(Key, u64)>>,
    /// How much is in `by_client`.
    held: usize,
    next: u64,
}

impl Cache {
    /// The answer to a question, as if the server had been asked just now.
    pub fn find(&self, query: &Query, by_tcp: bool, now: Instant) -> Option<Vec<u8>> {
        let key = Key::of(query, by_tcp)?;
        let mut answers = self.0.lock();
        let kept = answers.by_key.get(&key)?;
        if kept.until <= now {
            answers.by_key.remove(&key);
            return None;
        }
        let fits = by_tcp || kept.answer.len() <= query.udp_bytes;
        fits.then(|| kept.told_to(query, now))
    }

    /// Keeps the answer to a client's question, if it may be kept.
    pub fn keep(&self, client: IpAddr, query: &Query, by_tcp: bool, answer: &[u8], now: Instant) {
        let Some(key) = Key::of(query, by_tcp) else { return };
        let Some(keepable) = keepable(answer).filter(|_| answer.len() <= MAX_BYTES && query.is_answered_by(answer))
        else {
            return;
        };
        let kept = Kept {
            answer: answer.to_vec(),
            ttls_at: keepable.ttls_at,
            since: now,
            until: now + Duration::from_secs(keepable.ttl_s.min(MAX_AGE_S).into()),
            number: 0,
        };
        self.0.lock().insert(client, key, kept);
    }
}

impl Key {
    /// None for questions whose answers depend on more than can be compared.
    fn of(query: &Query, by_tcp: bool) -> Option<Key> {
        query.is_plain.then(|| Key {
            name: query.name.clone(),
            kind: query.kind,
            extended: query.is_extended(),
            by_tcp,
        })
    }
}

impl Kept {
    fn told_to(&self, query: &Query, now: Instant) -> Vec<u8> {
        let mut answer = self.answer.clone();
        let age_s = u32::try_from((now - self.since).as_secs()).unwrap_or(u32::MAX);
        for at in &self.ttls_at {
            if let Some(place) = answer.get_mut(*at..at + 4)
                && let Ok(ttl) = <[u8; 4]>::try_from(&*place)
            {
                let left = u32::from_be_bytes(ttl).saturating_sub(age_s);
                place.copy_from_slice(&left.to_be_bytes());
            }
        }
        query.address(&mut answer);
        answer
    }
}

impl Answers {
    fn insert(&mut self, client: IpAddr, key: Key, mut kept: Kept) {
        while self.held >= MAX_ANSWERS {
            let largest = self.by_client.iter().max_by_key(|(_, held)| held.len());
            let Some(largest) = largest.map(|(client, _)| *client) else {
                break;
            };
            self.drop_oldest(largest);
        }
        if self
            .by_client
            .get(&client)
            .is_some_and(|held| held.len() >= MAX_PER_CLIENT)
        {
            self.drop_oldest(client);
        }
        self.next += 1;
        kept.number = self.next;
        self.by_client
            .entry(client)
            .or_default()
            .push_back((key.clone(), self.next));
        self.held += 1;
        self.by_key.insert(key, kept);
    }

    fn drop_oldest(&mut self, client: IpAddr) {
        let Some(held) = self.by_client.get_mut(&client) else {
            return;
        };
        if let Some((key, number)) = held.pop_front() {
            self.held -= 1;
            if self.by_key.get(&key).is_some_and(|kept| kept.number == number) {
                self.by_key.remove(&key);
            }
        }
        if held.is_empty() {
            self.by_client.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 2));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 3));
    const PLAIN: u8 = 0x01;

    fn question(id: u8, flags: [u8; 2], name: &str) -> Vec<u8> {
        let mut message = vec![0, id, flags[0], flags[1], 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(label.len() as u8);
            message.extend_from_slice(label.as_bytes());
        }
        message.extend([0, 0, 1, 0, 1]);
        message
    }

    fn answer(question: &[u8], ttl: u8) -> Vec<u8> {
        let mut answer = question.to_vec();
        (answer[2], answer[3], answer[7]) = (0x81, 0x80, 1);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, ttl, 0, 4, 192, 0, 2, 1]);
        answer
    }

    /// A cache and the time.
    struct Clocked {
        cache: Cache,
        now: Instant,
    }

    impl Clocked {
        fn new() -> Clocked {
            Clocked {
                cache: Cache::default(),
                now: Instant::now(),
            }
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }

        fn keep(&self, client: IpAddr, name: &str, ttl: u8) {
            let asked = question(1, [PLAIN, 0], name);
            let query = Query::parse(&asked).unwrap();
            self.cache.keep(client, &query, false, &answer(&asked, ttl), self.now);
        }

        fn find(&self, message: &[u8]) -> Option<Vec<u8>> {
            self.cache.find(&Query::parse(message).unwrap(), false, self.now)
        }
    }

    #[test]
    fn an_answer_is_given_again_under_the_question_asked_and_counts_down() {
        let mut cache = Clocked::new();
        cache.keep(POD, "example.com", 20);
        cache.pass(5);
        let again = question(9, [PLAIN, 0], "eXample.COM");
        assert_eq!(cache.find(&again), Some(answer(&again, 15)));
        cache.pass(15);
        assert_eq!(cache.find(&again), None);
        cache.keep(POD, "example.com", 200);
        cache.pass(30);
        assert_eq!(cache.find(&again), None);
    }

    #[test]
    fn other_questions_are_not_answered_by_it() {
        let cache = Clocked::new();
        cache.keep(POD, "example.com", 20);
        let asked = question(1, [PLAIN, 0], "example.com");
        assert!(cache.find(&asked).is_some());
        assert!(
            cache
                .cache
                .find(&Query::parse(&asked).unwrap(), true, cache.now)
                .is_none()
        );
        let mut other_kind = asked.clone();
        let at = other_kind.len() - 3;
        other_kind[at] = 28;
        let mut extended = asked.clone();
        extended[11] = 1;
        extended.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        for message in [
            question(1, [0, 0], "example.com"),
            question(1, [PLAIN, 0x10], "example.com"),
            question(1, [PLAIN, 0], "example.co"),
            other_kind,
            extended,
        ] {
            assert!(cache.find(&message).is_none(), "{message:?}");
        }
    }

    #[test]
    fn an_answer_to_another_question_is_not_kept() {
        let cache = Clocked::new();
        let asked = question(1, [PLAIN, 0], "bank.example");
        let forged = answer(&question(1, [PLAIN, 0], "evil.example"), 20);
        let query = Query::parse(&asked).unwrap();
        cache.cache.keep(POD, &query, false, &forged, cache.now);
        assert!(cache.find(&asked).is_none());
        assert!(cache.find(&question(1, [PLAIN, 0], "evil.example")).is_none());
    }

    #[test]
    fn a_client_pushes_out_only_what_it_asked_for_itself() {
        let cache = Clocked::new();
        cache.keep(OTHER, "example.com", 20);
        for number in 0..2 * MAX_ANSWERS {
            cache.keep(POD, &format!("n{number}.example"), 20);
        }
        assert!(cache.find(&question(1, [PLAIN, 0], "example.com")).is_some());
        let answers = cache.cache.0.lock();
        assert_eq!(answers.by_client[&POD].len(), MAX_PER_CLIENT);
        assert_eq!(
            (answers.held, answers.by_key.len()),
            (MAX_PER_CLIENT + 1, MAX_PER_CLIENT + 1)
        );
    }

    #[test]
    fn many_clients_together_fill_no_more_than_there_is() {
        let cache = Clocked::new();
        cache.keep(OTHER, "example.com", 20);
        for client in 0..20u8 {
            for number in 0..MAX_PER_CLIENT {
                cache.keep([10, 245, 0, client].into(), &format!("n{number}.c{client}"), 20);
            }
        }
        assert!(cache.find(&question(1, [PLAIN, 0], "example.com")).is_some());
        let answers = cache.cache.0.lock();
        assert_eq!((answers.held, answers.by_key.len()), (MAX_ANSWERS, MAX_ANSWERS));
    }
}
