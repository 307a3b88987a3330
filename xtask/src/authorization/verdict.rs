//! What the answers come to, and where they differ.

use std::collections::BTreeMap;

use crate::differential::cases::Request;

/// How many differences are shown in full.
const SHOWN: usize = 40;
/// How much of an answer is shown.
const SHOWN_BYTES: usize = 300;

/// What a server said.
pub struct Answer {
    status: u16,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// Nobody knows who asks.
    Unauthenticated,
    Denied,
    /// Let through, and then there was nothing, or what was asked for made no sense.
    Nothing,
    /// Let through and served.
    Served,
}

pub struct Report {
    requests: Vec<Request>,
    theirs: Vec<Answer>,
    ours: Vec<Answer>,
}

impl Answer {
    pub fn new(status: u16, body: Vec<u8>) -> Answer {
        Answer { status, body }
    }

    fn verdict(&self) -> Verdict {
        match self.status {
            401 => Verdict::Unauthenticated,
            403 => Verdict::Denied,
            // A review says in its body what it thinks.
            200..300 if self.has("\"allowed\":false") => Verdict::Denied,
            200..300 => Verdict::Served,
            _ => Verdict::Nothing,
        }
    }

    fn has(&self, text: &str) -> bool {
        let without_spaces = |text: &str| text.replace(": ", ":");
        without_spaces(&String::from_utf8_lossy(&self.body)).contains(&without_spaces(text))
    }

    /// Of some answers nothing but the status is read.
    fn is_unread_or_has(&self, text: &str) -> bool {
        self.body.is_empty() || self.has(text)
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let end = text.char_indices().nth(SHOWN_BYTES).map_or(text.len(), |(at, _)| at);
        format!("{} {}", self.status, text[..end].trim_end())
    }
}

/// Where ours refuses what upstream does not, and why that stays.
const STRICTER: &[(&str, Explanation)] = &[
    ("nodes connect to nothing, whatever roles say", |request, ours| {
        let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
        let words = ["forbidden: unexpected pod subresource", "is not allowed to modify node"];
        is_read && words.iter().any(|words| ours.is_unread_or_has(words))
    }),
    (
        "a collection is not deleted by those who may not delete what is in it",
        |request, ours| request.method == "DELETE" && ours.has("can only delete pods with spec.nodeName"),
    ),
];

/// Whether a request of a node is refused for this reason.
type Explanation = fn(&Request, &Answer) -> bool;

fn is_by_node(request: &Request) -> bool {
    request
        .token
        .as_deref()
        .is_some_and(|token| token.starts_with("system:node:"))
}

/// Whether two answers differ in what matters: one is let through and the other is not, or ours serves what upstream
/// does not have.
fn differs(theirs: Verdict, ours: Verdict) -> bool {
    let is_refused = |verdict| verdict <= Verdict::Denied;
    match (is_refused(theirs), is_refused(ours)) {
        (true, true) => theirs != ours,
        (false, false) => theirs == Verdict::Nothing && ours == Verdict::Served,
        _ => true,
    }
}

impl Report {
    pub fn new(requests: Vec<Request>, theirs: Vec<Answer>, ours: Vec<Answer>) -> Report {
        Report { requests, theirs, ours }
    }

    fn rows(&self) -> impl Iterator<Item = (&Request, &Answer, &Answer)> {
        let answers = self.theirs.iter().zip(&self.ours);
        self.requests
            .iter()
            .zip(answers)
            .map(|(request, (theirs, ours))| (request, theirs, ours))
    }

    fn differing(&self) -> impl Iterator<Item = (&Request, &Answer, &Answer)> {
        let is_known = |request: &Request, ours: &Answer| {
            let explained = || STRICTER.iter().any(|(_, explains)| explains(request, ours));
            ours.verdict() == Verdict::Denied && is_by_node(request) && explained()
        };
        self.rows()
            .filter(|(_, theirs, ours)| differs(theirs.verdict(), ours.verdict()))
            .filter(move |(request, _, ours)| !is_known(request, ours))
    }

    pub fn differences(&self) -> usize {
        self.differing().count()
    }

    pub fn text(&self, with_statuses: bool) -> String {
        let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
        for answer in &self.theirs {
            *counts.entry(answer.verdict()).or_default() += 1;
        }
        let mut text = format!("{} requests; upstream's answers: {counts:?}\n", self.requests.len());
        for (request, theirs, ours) in self.differing().take(SHOWN) {
            text += &shown(request, theirs, ours);
        }
        if with_statuses {
            let same = self
                .rows()
                .filter(|(_, theirs, ours)| !differs(theirs.verdict(), ours.verdict()));
            let other = same.filter(|(_, theirs, ours)| theirs.status != ours.status);
            for (request, theirs, ours) in other {
                text += "only the status: ";
                text += &shown(request, theirs, ours);
            }
        }
        text += &format!("{} differ\n", self.differences());
        text
    }
}

fn shown(request: &Request, theirs: &Answer, ours: &Answer) -> String {
    let who = request.token.as_deref().unwrap_or("a master");
    let headers: Vec<String> = request
        .headers
        .iter()
        .map(|(name, value)| format!(" {name}: {value}"))
        .collect();
    format!(
        "{who:?}{} {} {} {}\n  upstream {}\n  karve    {}\n",
        headers.concat(),
        request.method,
        request.path,
        request.body,
        theirs.text(),
        ours.text()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_who_gets_through_and_what_is_served() {
        use Verdict::{Denied, Nothing, Served, Unauthenticated};
        assert!(differs(Denied, Served) && differs(Served, Denied) && differs(Denied, Nothing));
        assert!(differs(Unauthenticated, Denied));
        assert!(differs(Nothing, Served), "what upstream does not have");
        assert!(!differs(Served, Nothing) && !differs(Denied, Denied));
        assert_eq!(
            Answer::new(201, b"{\"status\":{\"allowed\": false}}".to_vec()).verdict(),
            Denied
        );
        assert_eq!(Answer::new(404, Vec::new()).verdict(), Nothing);
    }
}
