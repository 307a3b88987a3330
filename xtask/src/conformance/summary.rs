//! The results of a run: a table by group for the terminal, JUnit for machines.

use std::fmt::Write;

use super::outcome::{Outcome, State};
use super::table::Test;

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
    seconds: f64,
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        match outcome.state {
            State::Passed => self.passed += 1,
            State::Failed => self.failed += 1,
            State::Skipped => self.skipped += 1,
        }
        self.seconds += outcome.seconds;
    }

    fn row(&self, label: &str) -> String {
        let Self {
            passed,
            failed,
            skipped,
            seconds,
        } = self;
        format!("{label:<6} {passed:>6} {failed:>6} {skipped:>7} {seconds:>8.0}\n")
    }
}

/// Passed, failed, skipped and the sum of the tests' own times, by group.
pub fn by_group(tests: &[Test], outcomes: &[Outcome]) -> String {
    let mut groups: Vec<&str> = outcomes.iter().map(|outcome| group(tests, outcome)).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut text = "group  passed failed skipped  seconds\n".to_owned();
    let mut total = Count::default();
    for id in groups {
        let mut count = Count::default();
        for outcome in outcomes.iter().filter(|outcome| group(tests, outcome) == id) {
            count.add(outcome);
            total.add(outcome);
        }
        text += &count.row(id);
    }
    text + &total.row("all")
}

fn group<'a>(tests: &'a [Test], outcome: &Outcome) -> &'a str {
    &tests[outcome.index].group
}

/// A JUnit file, with one suite per group.
pub fn junit(tests: &[Test], outcomes: &[Outcome]) -> String {
    let failures = outcomes.iter().filter(|outcome| outcome.state == State::Failed).count();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"conformance\" tests=\"{}\" failures=\"{failures}\">\n",
        outcomes.len()
    );
    for outcome in outcomes {
        let test = &tests[outcome.index];
        let _ = write!(
            xml,
            "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\">",
            test.group,
            escape(&test.name),
            outcome.seconds
        );
        let message = escape(&outcome.message);
        match outcome.state {
            State::Passed => {}
            State::Failed => {
                let _ = write!(xml, "<failure>{message}</failure>");
            }
            State::Skipped => {
                let _ = write!(xml, "<skipped message=\"{message}\"/>");
            }
        }
        xml += "</testcase>\n";
    }
    xml + "</testsuite>\n"
}

/// For text and attributes alike. Control characters have no place in XML at all.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(character),
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::table;

    fn outcome(index: usize, state: State, message: &str) -> Outcome {
        Outcome {
            index,
            state,
            seconds: 1.25,
            message: message.to_owned(),
        }
    }

    #[test]
    fn results_are_counted_by_group() {
        let tests = table::tests().unwrap();
        let outcomes = [
            outcome(0, State::Passed, ""),
            outcome(1, State::Failed, "no"),
            outcome(24, State::Skipped, ""),
        ];
        assert_eq!(
            by_group(&tests, &outcomes),
            "group  passed failed skipped  seconds
G01         0      0       1        1
G12         1      1       0        2
all         1      1       1        4
"
        );
    }

    #[test]
    fn junit_holds_messages_as_text() {
        let tests = table::tests().unwrap();
        let xml = junit(&tests, &[outcome(368, State::Failed, "a < b & \"c\"\u{1b}")]);
        assert!(
            xml.contains("<failure>a &lt; b &amp; &quot;c&quot; </failure>"),
            "{xml}"
        );
        assert!(xml.contains("tests=\"1\" failures=\"1\""), "{xml}");
    }
}
