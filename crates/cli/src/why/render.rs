//! The answer for people and for programs.

use std::fmt::Write;

use api::Value;
use serde_json::json;

use super::finding::{Finding, Reference, Severity};
use super::{Answer, Unseen};

/// How many objects are named before the rest is counted.
const MAX_NAMED: usize = 4;

/// The answer for reading at a terminal.
pub fn render(answer: &Answer) -> String {
    let mut text = String::new();
    match &answer.target {
        Some(target) => {
            let has_trouble = answer
                .findings
                .iter()
                .any(|finding| finding.severity < Severity::Waiting);
            let health = match (answer.is_healthy, has_trouble) {
                (true, false) => "is healthy",
                (true, true) => "reports a healthy status, but has problems",
                (false, _) => "is not healthy",
            };
            let _ = writeln!(text, "{target} {health}: {}", answer.state);
        }
        None if !answer.state.is_empty() => _ = writeln!(text, "{}", answer.state),
        None => _ = writeln!(text, "{}", summary(answer)),
    }
    let is_about_one = answer.target.as_ref();
    for (index, finding) in answer.findings.iter().enumerate() {
        render_finding(&mut text, index + 1, finding, is_about_one);
    }
    render_unknown(&mut text, answer);
    if !answer.unseen.is_empty() {
        let _ = writeln!(text);
    }
    for unseen in &answer.unseen {
        let _ = writeln!(text, "{}", sentence(unseen));
    }
    text
}

pub fn render_json(answer: &Answer) -> Value {
    json!(answer)
}

fn summary(answer: &Answer) -> String {
    match answer.findings.len() {
        0 => "Some objects are not healthy.".to_owned(),
        1 => "1 problem:".to_owned(),
        number => format!("{number} problems, the most important first:"),
    }
}

fn render_finding(text: &mut String, number: usize, finding: &Finding, target: Option<&Reference>) {
    let is_of_target = target.is_some_and(|target| finding.objects == [target.clone()]);
    let whose = match is_of_target {
        true => String::new(),
        false => format!("{}: ", names(&finding.objects, target)),
    };
    let _ = writeln!(text, "\n{number}. {whose}{}", finding.message);
    for detail in &finding.details {
        let _ = writeln!(text, "     {detail}");
    }
    if !finding.affects.is_empty() {
        let _ = writeln!(text, "     This also affects {}.", names(&finding.affects, target));
    }
    for remedy in &finding.remedies {
        let _ = writeln!(text, "   → {remedy}");
    }
}

fn render_unknown(text: &mut String, answer: &Answer) {
    if answer.unknown.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nThe cause is unknown.");
    if answer.target.is_none() {
        for unknown in answer.unknown.iter().take(20) {
            let _ = writeln!(text, "     {}: {}", place(&unknown.object, None), unknown.state);
        }
    }
    let example = &answer.unknown[0].object;
    let _ = writeln!(
        text,
        "   → Check its events and status: kubectl{} describe {} {}",
        namespace_flag(&example.namespace),
        example.kind,
        example.name
    );
}

/// The first few names. The namespace is told where the question was not about one object.
fn names(objects: &[Reference], target: Option<&Reference>) -> String {
    let named: Vec<String> = objects
        .iter()
        .take(MAX_NAMED)
        .map(|object| place(object, target))
        .collect();
    let more = objects.len() - named.len();
    match more {
        0 => named.join(", "),
        _ => format!("{} and {more} more", named.join(", ")),
    }
}

fn place(object: &Reference, target: Option<&Reference>) -> String {
    let is_told = object.namespace.is_empty() || target.is_some_and(|target| target.namespace == object.namespace);
    match is_told {
        true => object.to_string(),
        false => format!("{object} -n {}", object.namespace),
    }
}

pub fn namespace_flag(namespace: &str) -> String {
    match namespace {
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    }
}

fn sentence(unseen: &Unseen) -> String {
    let place = match unseen.namespace.as_str() {
        "" => String::new(),
        namespace => format!(" in namespace {namespace}"),
    };
    let Unseen {
        resource, verb, error, ..
    } = unseen;
    match error.as_str() {
        "" => format!(
            "Cannot {verb} {resource}{place}: permission denied. Causes found there are missing from this report."
        ),
        error => format!("Cannot {verb} {resource}{place}: {error}"),
    }
}
