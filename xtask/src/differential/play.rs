//! Putting all cases to one server.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::cases::{Action, Case, Kind, Request};
use super::change;
use super::servers::{Client, Server};
use super::vary;
use crate::signals;

/// What a server said.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub code: u16,
    pub warnings: Vec<String>,
    /// Text that is not JSON is a string.
    pub body: Value,
}

/// A case with its kind, as it is reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Title {
    pub kind: String,
    pub case: String,
}

/// The case in which the object itself is stored.
pub const STORED: &str = "POST the object";

/// Kinds that a server's own controllers write to.
const WRITTEN: &[&str] = &[
    "APIService",
    "CustomResourceDefinition",
    "FlowSchema",
    "PriorityLevelConfiguration",
];

/// Kinds that a server's own controllers judge, and what they say in the end: upstream establishes a definition some
/// seconds after it has told that it will.
const JUDGED: &[(&str, &str, &[&str])] = &[
    ("APIService", "Available", &["False", "True"]),
    ("CustomResourceDefinition", "Established", &["True"]),
    ("FlowSchema", "Dangling", &["False", "True"]),
];
const SETTLING_TRIES: usize = 600;
const SETTLING_PAUSE: Duration = Duration::from_millis(100);
/// Nobody writes to an object any more that was the same as often as this.
const SETTLED: usize = 10;
/// How often a change is made from the newest state when somebody else has changed that.
const MAX_CONFLICTS: usize = 10;

struct Player<'a> {
    server: &'a Server,
    client: Client,
    /// The object of the kind that is at its turn, as it is stored.
    stored: Value,
    answers: Vec<(Title, Answer)>,
}

/// The answers to everything, in order.
pub fn play(server: &Server, kinds: &[Kind]) -> Result<Vec<(Title, Answer)>> {
    let mut player = Player {
        server,
        client: server.connect()?,
        stored: Value::Null,
        answers: Vec::new(),
    };
    for kind in kinds {
        signals::check()?;
        player.kind(kind).with_context(|| kind.name.clone())?;
    }
    Ok(player.answers)
}

impl Player<'_> {
    /// New objects first, while there is none in their way; then the object itself, and what one does with it.
    fn kind(&mut self, kind: &Kind) -> Result<()> {
        let Some(base) = &kind.base else {
            return kind.cases.iter().try_for_each(|case| self.case(kind, case));
        };
        let (creates, others): (Vec<&Case>, Vec<&Case>) = kind
            .cases
            .iter()
            .partition(|case| matches!(case.action, Action::Create(_)));
        for case in creates {
            self.case(kind, case)?;
        }
        for case in vary::creates(base) {
            self.case(kind, &case)?;
        }
        if base["metadata"]["name"].is_null() {
            return others.into_iter().try_for_each(|case| self.case(kind, case));
        }
        let seed = send("POST", &kind.collection, &base.to_string());
        let seeded = self.ask(&seed)?;
        self.note(kind, STORED, seeded);
        let path = kind.object_path()?;
        self.stored = self.settled(kind, &path)?;
        for case in others.into_iter().chain(&vary::updates(base)) {
            self.case(kind, case)?;
        }
        for case in [vary::reads(&path), vary::reads(&kind.collection)].iter().flatten() {
            self.case(kind, case)?;
        }
        let deleted = self.ask(&send("DELETE", &path, ""))?;
        self.note(kind, "DELETE the object", deleted);
        Ok(())
    }

    /// The object as it is stored, after the server's own controllers have said what they think of it.
    fn settled(&mut self, kind: &Kind, path: &str) -> Result<Value> {
        let mut stored = self.ask(&send("GET", path, ""))?.body;
        if !WRITTEN.contains(&kind.name.as_str()) {
            return Ok(stored);
        }
        let mut same = 0;
        for _ in 0..SETTLING_TRIES {
            if same >= SETTLED && is_judged(&kind.name, &stored) {
                return Ok(stored);
            }
            thread::sleep(SETTLING_PAUSE);
            let now = self.ask(&send("GET", path, ""))?.body;
            same = if now == stored { same + 1 } else { 0 };
            stored = now;
        }
        bail!("it does not come to rest: {stored}");
    }

    fn case(&mut self, kind: &Kind, case: &Case) -> Result<()> {
        for _ in 0..MAX_CONFLICTS {
            let answer = self.answer(kind, case)?;
            let stale = answer.code == 409 && answer.body.to_string().contains("the object has been modified");
            let mut moved = false;
            if stale && matches!(case.action, Action::Put { .. }) {
                let now = self.settled(kind, &kind.object_path()?)?;
                moved = std::mem::replace(&mut self.stored, now) != self.stored;
            }
            // A case may also ask for a conflict.
            if !moved {
                self.note(kind, &case.title, answer);
                return Ok(());
            }
        }
        bail!("{}: somebody always changes the object", case.title);
    }

    fn answer(&mut self, kind: &Kind, case: &Case) -> Result<Answer> {
        let request = match &case.action {
            Action::Send(request) => request.clone(),
            Action::Create(changes) => {
                let mut object = kind.base.clone().unwrap_or_else(|| json!({}));
                change::apply(changes, &mut object);
                send("POST", &format!("{}?dryRun=All", kind.collection), &object.to_string())
            }
            Action::Put { subresource, changes } => {
                let mut object = self.stored.clone();
                change::apply(changes, &mut object);
                let path = format!("{}{subresource}?dryRun=All", kind.object_path()?);
                send("PUT", &path, &object.to_string())
            }
        };
        self.ask(&request).with_context(|| case.title.clone())
    }

    /// A server may close a connection after a request that it could not read to the end.
    fn ask(&mut self, request: &Request) -> Result<Answer> {
        let response = match self.client.ask(request) {
            Ok(response) => response,
            Err(_) => {
                self.client = self.server.connect()?;
                self.client.ask(request)?
            }
        };
        let body = match serde_json::from_slice(&response.body) {
            Ok(body) => body,
            Err(_) => String::from_utf8_lossy(&response.body).into_owned().into(),
        };
        Ok(Answer {
            code: response.status,
            warnings: response.warnings,
            body,
        })
    }

    fn note(&mut self, kind: &Kind, case: &str, answer: Answer) {
        let title = Title {
            kind: kind.name.clone(),
            case: case.to_owned(),
        };
        self.answers.push((title, answer));
    }
}

/// Whether the server's own controllers have said what they think of an object, where they do.
fn is_judged(kind: &str, stored: &Value) -> bool {
    let mut conditions = stored["status"]["conditions"].as_array().into_iter().flatten();
    let awaited = JUDGED.iter().find(|(name, ..)| *name == kind);
    awaited.is_none_or(|(_, condition, states)| {
        conditions.any(|found| {
            found["type"] == *condition && found["status"].as_str().is_some_and(|state| states.contains(&state))
        })
    })
}

fn send(method: &str, path: &str, body: &str) -> Request {
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        content_type: "application/json".to_owned(),
        body: body.to_owned(),
        ..Request::default()
    }
}
