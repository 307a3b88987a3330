//! Clients that write through everything and remember what they were told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::history::{Did, Event};
use crate::bench::api::Api;
use crate::bench::http::{Connection, Response};
use crate::random::Random;

const CLIENTS: u64 = 4;
/// Few, so that clients meet.
const REGISTERS: u64 = 5;
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
/// A client that is refused waits, as a client would.
const PAUSE: Duration = Duration::from_millis(100);

/// What all clients saw.
#[derive(Default)]
pub struct Seen {
    pub events: Vec<Event>,
    /// Objects whose creation was acknowledged.
    pub created: BTreeSet<String>,
    /// Requests without a good answer.
    pub unanswered: usize,
}

pub struct Clients {
    stop: Arc<AtomicBool>,
    running: Vec<JoinHandle<Seen>>,
    api: Arc<Api>,
    begun: Instant,
}

impl Clients {
    /// Makes the registers and starts writing.
    pub fn start(api: Api, seed: u64) -> Result<Self> {
        for register in 0..REGISTERS {
            api.create(COLLECTION, &object(&format!("register-{register}"), 0, None))?;
        }
        let api = Arc::new(api);
        let stop = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        let running = (0..CLIENTS)
            .map(|number| {
                let mut client = Client {
                    api: api.clone(),
                    connection: None,
                    number,
                    count: 0,
                    random: Random::new(seed ^ (number + 1)),
                    begun,
                    seen: Seen::default(),
                };
                let stop = stop.clone();
                thread::spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        client.step();
                    }
                    client.seen
                })
            })
            .collect();
        Ok(Self {
            stop,
            running,
            api,
            begun,
        })
    }

    /// Stops them, reads everything once more, and returns all that was seen and the names of what is stored.
    pub fn finish(self) -> Result<(Seen, BTreeSet<String>)> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Seen::default();
        for client in self.running {
            let seen = client.join().ok().context("a client panicked")?;
            all.events.extend(seen.events);
            all.created.extend(seen.created);
            all.unanswered += seen.unanswered;
        }
        let mut last = Client {
            api: self.api.clone(),
            connection: None,
            number: CLIENTS,
            count: 0,
            random: Random::new(0),
            begun: self.begun,
            seen: Seen::default(),
        };
        for register in 0..REGISTERS {
            let key = format!("register-{register}");
            // How it began; its revision was not noted.
            last.note(&key, 0, false, None, Did::Write { value: 0, from: None });
            last.read(&key)
                .with_context(|| format!("{key} cannot be read at the end"))?;
        }
        all.events.extend(last.seen.events);
        let list: Value = serde_json::from_slice(&self.api.get(COLLECTION)?)?;
        let items = list["items"].as_array().context("the list has no items")?;
        let names = items.iter().filter_map(|item| item["metadata"]["name"].as_str());
        Ok((all, names.map(str::to_owned).collect()))
    }
}

struct Client {
    api: Arc<Api>,
    connection: Option<Connection>,
    number: u64,
    /// Values are made from it, so that no two are alike.
    count: u64,
    random: Random,
    begun: Instant,
    seen: Seen,
}

impl Client {
    fn step(&mut self) {
        let register = format!("register-{}", self.random.below(REGISTERS));
        let done = match self.random.below(4) {
            0 => self.create(),
            1 => self.read(&register).map(drop),
            2 => self.write(&register, None),
            // Conditional on what was read just before.
            _ => self
                .read(&register)
                .and_then(|revision| self.write(&register, Some(revision))),
        };
        if done.is_none() {
            self.seen.unanswered += 1;
            thread::sleep(PAUSE);
        }
    }

    fn create(&mut self) -> Option<()> {
        let value = self.next_value();
        let name = format!("made-{}-{value}", self.number);
        let response = self.send("POST", COLLECTION, &object(&name, value, None))?;
        (response.status == 201).then(|| {
            self.seen.created.insert(name);
        })
    }

    /// The revision that was seen.
    fn read(&mut self, key: &str) -> Option<u64> {
        let began = self.now();
        let response = self.send("GET", &format!("{COLLECTION}/{key}"), &Value::Null)?;
        if response.status != 200 && response.status != 404 {
            return None;
        }
        let (revision, value) = match response.status {
            404 => (None, None),
            _ => {
                let (revision, value) = parse(&response.body)?;
                (Some(revision), Some(value))
            }
        };
        self.note(key, began, true, revision, Did::Read { value });
        revision
    }

    fn write(&mut self, key: &str, from: Option<u64>) -> Option<()> {
        let value = self.next_value();
        let began = self.now();
        let body = object(key, value, from);
        let response = self.send("PUT", &format!("{COLLECTION}/{key}"), &body);
        let did = Did::Write { value, from };
        match response {
            Some(response) if response.status == 200 => {
                let (revision, _) = parse(&response.body)?;
                self.note(key, began, true, Some(revision), did);
                Some(())
            }
            // Refused: the revision had changed, or there were too many requests.
            Some(response) if response.status == 409 || response.status == 429 => Some(()),
            _ => {
                self.note(key, began, false, None, did);
                None
            }
        }
    }

    fn note(&mut self, key: &str, began: u64, answered: bool, revision: Option<u64>, did: Did) {
        let ended = answered.then(|| self.now());
        self.seen.events.push(Event {
            key: key.to_owned(),
            began,
            ended,
            revision,
            did,
        });
    }

    fn send(&mut self, method: &str, path: &str, body: &Value) -> Option<Response> {
        let body = match body {
            Value::Null => Vec::new(),
            body => serde_json::to_vec(body).ok()?,
        };
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.api.connection().ok()?,
        };
        let response = connection.request(method, path, &body).ok()?;
        self.connection = Some(connection);
        Some(response)
    }

    fn next_value(&mut self) -> u64 {
        self.count += 1;
        (self.number + 1) * 1_000_000_000 + self.count
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }
}

fn object(name: &str, value: u64, from: Option<u64>) -> Value {
    let mut metadata = json!({"name": name, "namespace": "default"});
    if let Some(revision) = from {
        metadata["resourceVersion"] = json!(revision.to_string());
    }
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"value": value.to_string()},
    })
}

/// The revision and the value of an object.
fn parse(body: &[u8]) -> Option<(u64, u64)> {
    let object: Value = serde_json::from_slice(body).ok()?;
    let number = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
    Some((
        number(&object["metadata"]["resourceVersion"])?,
        number(&object["data"]["value"])?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_parsed() {
        let body = serde_json::to_vec(&object("a", 7, Some(12))).unwrap();
        assert_eq!(parse(&body), Some((12, 7)));
    }
}
