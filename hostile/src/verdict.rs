//! How an attack ended.

use std::fmt;

use serde_json::{Value, json};

/// What became of an attack that was really tried. One that could not be tried is an error instead.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It got nowhere; the text says what stopped it.
    Blocked(String),
    /// It got through; the text says what the attacker got.
    Succeeded(String),
}

/// Shorthand for cases.
pub fn blocked(how: impl Into<String>) -> anyhow::Result<Verdict> {
    Ok(Verdict::Blocked(how.into()))
}

pub fn succeeded(what: impl Into<String>) -> anyhow::Result<Verdict> {
    Ok(Verdict::Succeeded(what.into()))
}

/// Blocked unless one of the attempts got through.
pub fn judge(attempts: &[Verdict]) -> anyhow::Result<Verdict> {
    anyhow::ensure!(!attempts.is_empty(), "nothing was tried");
    let through: Vec<&str> = attempts
        .iter()
        .filter_map(|attempt| match attempt {
            Verdict::Succeeded(what) => Some(what.as_str()),
            Verdict::Blocked(_) => None,
        })
        .collect();
    if !through.is_empty() {
        return succeeded(through.join("; "));
    }
    let Some(Verdict::Blocked(how)) = attempts.first() else {
        unreachable!("none got through")
    };
    match attempts.len() {
        1 => blocked(how.clone()),
        count => blocked(format!("{count} attempts, such as: {how}")),
    }
}

/// The line of one case in the report.
#[derive(Debug)]
pub struct Ended {
    pub name: &'static str,
    pub seconds: f64,
    pub how: How,
}

#[derive(Debug)]
pub enum How {
    Tried(Verdict),
    /// This machine lacks what the attack needs.
    Skipped(String),
    /// The attack could not be carried out.
    Error(String),
}

impl Ended {
    pub fn is_good(&self) -> bool {
        matches!(self.how, How::Tried(Verdict::Blocked(_)) | How::Skipped(_))
    }

    pub fn was_skipped(&self) -> bool {
        matches!(self.how, How::Skipped(_))
    }

    fn words(&self) -> (&'static str, &str) {
        match &self.how {
            How::Tried(Verdict::Blocked(text)) => ("blocked", text),
            How::Tried(Verdict::Succeeded(text)) => ("SUCCEEDED", text),
            How::Skipped(text) => ("skipped", text),
            How::Error(text) => ("error", text),
        }
    }

    pub fn json(&self) -> Value {
        let (outcome, detail) = self.words();
        json!({"case": self.name, "outcome": outcome, "detail": detail, "seconds": (self.seconds * 10.0).round() / 10.0})
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (outcome, text) = self.words();
        write!(
            formatter,
            "{outcome:<9} {:<44} {:>5.1} s  {text}",
            self.name, self.seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_attempt_that_gets_through_is_enough() {
        let stopped = || Verdict::Blocked("403".into());
        let through = || Verdict::Succeeded("a key".into());
        assert_eq!(
            judge(&[stopped(), stopped()]).unwrap(),
            Verdict::Blocked("2 attempts, such as: 403".into())
        );
        assert_eq!(judge(&[stopped(), through()]).unwrap(), through());
        assert!(judge(&[]).is_err());
    }
}
