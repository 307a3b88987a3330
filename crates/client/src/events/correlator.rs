//! Which write an event becomes: a new object, a higher count, or none. Pure but for its memory.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use api::Value;
use serde_json::json;

use super::{Event, EventType, ObjectReference};
use crate::when::Moment;

/// The events about one object that are written before the rate applies, and the time after which one more may be.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);
/// As many different messages of one reason about one object within the window are combined into one event.
const MAX_SIMILAR: usize = 10;
const SIMILAR_WINDOW: Duration = Duration::from_secs(600);
/// What is remembered of each sort; when it is full, what has not been seen for the window is forgotten, then all.
const MAX_REMEMBERED: usize = 4096;

#[derive(Debug)]
pub(super) enum Write {
    Create(Value),
    /// Raise the count of `name`; should it be gone, create `object`.
    Count {
        name: String,
        patch: Value,
        object: Value,
    },
}

#[derive(Default)]
pub(super) struct Correlator {
    written: HashMap<Same, Written>,
    similar: HashMap<Similar, Messages>,
    spent: HashMap<(String, ObjectReference), Spent>,
}

/// Events that differ only in time.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Same {
    similar: Similar,
    message: String,
}

/// Events that differ only in time and message.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Similar {
    component: String,
    about: ObjectReference,
    kind: EventType,
    reason: String,
}

struct Written {
    name: String,
    first: Moment,
    last: Moment,
    count: u32,
}

struct Messages {
    texts: HashSet<String>,
    last: Moment,
}

struct Spent {
    left: f64,
    at: Moment,
}

impl Correlator {
    pub fn plan(&mut self, event: &Event) -> Option<Write> {
        self.make_room(event.at);
        let message = self.combined(event);
        if !self.may_spend(event) {
            return None;
        }
        let same = Same::of(event, &message);
        let written = self.written.entry(same).or_insert_with(|| Written {
            name: event_name(&event.about.name, event.at),
            first: event.at,
            last: event.at,
            count: 0,
        });
        written.count += 1;
        written.last = event.at;
        let object = event.to_value(&written.name, &message, written.first, written.count);
        if written.count == 1 {
            return Some(Write::Create(object));
        }
        let patch = json!({"count": written.count, "lastTimestamp": event.at.to_time(), "message": message});
        Some(Write::Count {
            name: written.name.clone(),
            patch,
            object,
        })
    }

    /// The object of this event is gone; the next one like it starts anew.
    pub fn forget(&mut self, event: &Event) {
        let same = |known: &Same| known.similar == Similar::of(event);
        self.written.retain(|known, _| !same(known));
    }

    /// The event's message, or the one that stands for all of its kind.
    fn combined(&mut self, event: &Event) -> String {
        let entry = self.similar.entry(Similar::of(event));
        let messages = entry.or_insert_with(|| Messages {
            texts: HashSet::new(),
            last: event.at,
        });
        if event.at.since(messages.last) > SIMILAR_WINDOW {
            messages.texts.clear();
        }
        messages.last = event.at;
        if messages.texts.len() < MAX_SIMILAR || messages.texts.contains(&event.message) {
            messages.texts.insert(event.message.clone());
            return event.message.clone();
        }
        format!("(combined from similar events): {}", event.message)
    }

    fn may_spend(&mut self, event: &Event) -> bool {
        let mut about = event.about.clone();
        about.resource_version.clear();
        about.field_path.clear();
        let entry = self.spent.entry((event.source.component.clone(), about));
        let spent = entry.or_insert(Spent {
            left: f64::from(BURST),
            at: event.at,
        });
        let refilled = event.at.since(spent.at).as_secs_f64() / REFILL.as_secs_f64();
        spent.left = (spent.left + refilled).min(f64::from(BURST));
        spent.at = event.at;
        let may = spent.left >= 1.0;
        if may {
            spent.left -= 1.0;
        }
        may
    }

    fn make_room(&mut self, now: Moment) {
        fn shrink<K, V>(map: &mut HashMap<K, V>, fresh: impl Fn(&V) -> bool) {
            if map.len() >= MAX_REMEMBERED {
                map.retain(|_, value| fresh(value));
            }
            if map.len() >= MAX_REMEMBERED {
                map.clear();
            }
        }
        let fresh = |at: Moment| now.since(at) <= SIMILAR_WINDOW;
        shrink(&mut self.written, |written| fresh(written.last));
        shrink(&mut self.similar, |messages| fresh(messages.last));
        shrink(&mut self.spent, |spent| fresh(spent.at));
    }
}

impl Similar {
    fn of(event: &Event) -> Similar {
        let mut about = event.about.clone();
        // The object changes while the same thing keeps happening to it.
        about.resource_version.clear();
        Similar {
            component: event.source.component.clone(),
            about,
            kind: event.kind,
            reason: event.reason.clone(),
        }
    }
}

impl Same {
    fn of(event: &Event, message: &str) -> Same {
        // Combined messages share one object, whichever message they now show.
        let combined = message != event.message;
        Same {
            similar: Similar::of(event),
            message: if combined { String::new() } else { message.to_owned() },
        }
    }
}

/// The object's name and the time in hexadecimal, as upstream names events.
fn event_name(object: &str, at: Moment) -> String {
    let nanoseconds = at.since(Moment::from_seconds(0)).as_nanos();
    format!("{object}.{nanoseconds:x}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::events::EventSource;

    fn event(name: &str, message: &str, seconds: i64) -> Event {
        Event {
            about: ObjectReference {
                name: name.to_owned(),
                namespace: "default".to_owned(),
                ..ObjectReference::default()
            },
            kind: EventType::Warning,
            reason: "FailedScheduling".to_owned(),
            message: message.to_owned(),
            at: Moment::from_seconds(seconds),
            source: Arc::new(EventSource {
                component: "default-scheduler".to_owned(),
                host: String::new(),
            }),
        }
    }

    fn text(write: Option<Write>) -> String {
        match write {
            None => "nothing".to_owned(),
            Some(Write::Create(object)) => format!("create {}: {}", object["metadata"]["name"], object["message"]),
            Some(Write::Count { patch, .. }) => format!("count {}: {}", patch["count"], patch["message"]),
        }
    }

    #[test]
    fn repeats_are_counted() {
        let mut correlator = Correlator::default();
        assert_eq!(
            text(correlator.plan(&event("a", "no", 1))),
            "create \"a.3b9aca00\": \"no\""
        );
        assert_eq!(text(correlator.plan(&event("a", "no", 2))), "count 2: \"no\"");
        correlator.forget(&event("a", "no", 2));
        assert_eq!(
            text(correlator.plan(&event("a", "no", 3))),
            "create \"a.b2d05e00\": \"no\""
        );
    }

    #[test]
    fn many_messages_of_one_reason_are_combined() {
        let mut correlator = Correlator::default();
        let texts: Vec<String> = (0..12)
            .map(|count| text(correlator.plan(&event("a", &format!("try {count}"), 1))))
            .collect();
        assert_eq!(texts[9], "create \"a.3b9aca00\": \"try 9\"");
        assert_eq!(
            texts[10],
            "create \"a.3b9aca00\": \"(combined from similar events): try 10\""
        );
        assert_eq!(texts[11], "count 2: \"(combined from similar events): try 11\"");
    }

    #[test]
    fn an_object_gets_a_burst_and_then_one_every_five_minutes() {
        let mut correlator = Correlator::default();
        let mut written = |seconds| correlator.plan(&event("a", "no", seconds)).is_some();
        assert_eq!((0..40).filter(|_| written(1)).count(), 25);
        assert!(!written(300));
        assert!(written(301));
        assert!(correlator.plan(&event("b", "no", 1)).is_some());
    }
}
