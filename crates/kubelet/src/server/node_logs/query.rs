//! Questions about the logs of a node's services: which service or file, and what of it.

use crate::moment::Moment;
use crate::server::query::Query;

/// Upstream's bounds.
const MAX_SERVICES: usize = 4;
const MAX_SERVICE_NAME_BYTES: usize = 256;
const MAX_TAIL_LINES: i64 = 100_000;

/// What is asked for. Either services, whose logs are in the journal or in files of their name, or one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    pub services: Vec<String>,
    pub files: Vec<String>,
    pub options: LogQueryOptions,
}

/// What of a service's log is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQueryOptions {
    since: Option<Moment>,
    until: Option<Moment>,
    tail_lines: Option<i64>,
    /// Counted back from the current boot, which is zero.
    boot: Option<i64>,
    pattern: String,
}

impl LogQuery {
    /// The query of a request; none for one that asks for a file by its path.
    pub fn parse(query: &Query) -> Result<Option<LogQuery>, String> {
        let asked = query.all("query");
        let mut parsed = LogQuery::default();
        for name in &asked {
            match name.contains(['/', '\\']) {
                true => parsed.files.push(name.clone()),
                false if name.trim().is_empty() => {}
                false => parsed.services.push(name.clone()),
            }
        }
        if !asked.is_empty() && parsed.files.is_empty() && parsed.services.is_empty() {
            return Err(format!("query: Invalid value: {asked:?}: may not be empty"));
        }
        parsed.options = LogQueryOptions {
            since: time(query, "sinceTime")?,
            until: time(query, "untilTime")?,
            tail_lines: number(query, "tailLines")?,
            boot: number(query, "boot")?,
            pattern: query.get("pattern").unwrap_or_default().to_owned(),
        };
        Ok((parsed != LogQuery::default()).then_some(parsed))
    }

    /// What is wrong with a query that could be read.
    pub fn validate(&self) -> Result<(), String> {
        self.services.iter().try_for_each(|name| check_service(name))?;
        let (services, files) = (&self.services, &self.files);
        let problem = match (services.len(), files.len()) {
            (0, 0) => Some("query: Required value: cannot be empty with options".to_owned()),
            (0, 1) if self.options == LogQueryOptions::default() => None,
            (0, 1) => Some(format!(
                "query: Invalid value: {files:?}: cannot specify file with options"
            )),
            (0, _) => Some(format!(
                "query: Invalid value: {files:?}: cannot specify more than one file"
            )),
            (count, 0) if count > MAX_SERVICES => Some(format!(
                "query: Too many: {count}: must have at most {MAX_SERVICES} items"
            )),
            (_, 0) => None,
            _ => Some(format!(
                "query: Invalid value: {files:?}, {services:?}: cannot specify a file and service"
            )),
        };
        problem.map_or(Ok(()), Err)?;
        self.options.validate()
    }

    /// The arguments of journalctl that print the logs of these services.
    pub fn journal_arguments(&self, services: &[String]) -> Vec<String> {
        let options = &self.options;
        let mut arguments: Vec<String> = ["--utc", "--no-pager", "--output=short-precise"]
            .map(str::to_owned)
            .into();
        let at = |moment: Moment| format!("@{}.{:03}", moment.0.div_euclid(1000), moment.0.rem_euclid(1000));
        arguments.extend(options.since.map(|since| format!("--since={}", at(since))));
        arguments.extend(options.until.map(|until| format!("--until={}", at(until))));
        arguments.extend(options.tail_lines.map(|lines| format!("--lines={lines}")));
        arguments.extend(services.iter().map(|service| format!("--unit={service}")));
        if !options.pattern.is_empty() {
            arguments.push(format!("--grep={}", options.pattern));
        }
        arguments.extend(options.boot.map(|boot| format!("--boot={boot}")));
        arguments
    }
}

impl LogQueryOptions {
    fn validate(&self) -> Result<(), String> {
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since > until
        {
            return Err("untilTime: Invalid value: must be after `sinceTime`".to_owned());
        }
        if let Some(boot) = self.boot.filter(|boot| *boot > 0) {
            return Err(format!("boot: Invalid value: {boot}: must be less than 1"));
        }
        match self.tail_lines {
            Some(lines) if !(0..=MAX_TAIL_LINES).contains(&lines) => Err(format!(
                "tailLines: Invalid value: {lines}: must be between 0 and {MAX_TAIL_LINES}, inclusive"
            )),
            _ => Ok(()),
        }
    }
}

/// Names that could be anything but a unit's are refused, options of journalctl among them.
fn check_service(name: &str) -> Result<(), String> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    if name.len() > MAX_SERVICE_NAME_BYTES {
        return Err(format!(
            "query: Invalid value: {name:?}: length must be less than {MAX_SERVICE_NAME_BYTES}"
        ));
    }
    match name.chars().all(is_known) && !name.starts_with('-') && !name.starts_with('.') {
        true => Ok(()),
        false => Err(format!(
            "query: Invalid value: {name:?}: input contains unsafe characters"
        )),
    }
}

fn time(query: &Query, name: &str) -> Result<Option<Moment>, String> {
    let text = query.get(name).filter(|text| !text.is_empty());
    let parse =
        |text: &str| Moment::parse(text).ok_or_else(|| format!("{name}: Invalid value: {text:?}: invalid time format"));
    text.map(parse).transpose()
}

fn number(query: &Query, name: &str) -> Result<Option<i64>, String> {
    let text = query.get(name).filter(|text| !text.is_empty());
    let parse = |text: &str| {
        text.parse()
            .map_err(|error| format!("{name}: Invalid value: {text:?}: {error}"))
    };
    text.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<LogQuery>, String> {
        LogQuery::parse(&Query::parse(text))
    }

    #[test]
    fn a_query_becomes_arguments_that_nobody_else_chooses() {
        let query = parsed("query=kubelet&sinceTime=2023-11-14T22:13:20Z&tailLines=3&boot=-1&pattern=a+b;--file%3D/x");
        let query = query.unwrap().unwrap();
        assert_eq!(query.validate(), Ok(()));
        assert_eq!(
            query.journal_arguments(&query.services),
            [
                "--utc",
                "--no-pager",
                "--output=short-precise",
                "--since=@1700000000.000",
                "--lines=3",
                "--unit=kubelet",
                "--grep=a b;--file=/x",
                "--boot=-1"
            ]
        );
    }

    #[test]
    fn a_request_for_a_path_is_no_query() {
        assert_eq!(parsed(""), Ok(None));
    }

    #[test]
    fn queries_that_cannot_be_answered_are_refused() {
        for (text, words) in [
            ("query=", "may not be empty"),
            ("query=+", "may not be empty"),
            ("tailLines=3", "cannot be empty with options"),
            ("query=kubelet&query=/a", "cannot specify a file and service"),
            ("query=/a&query=/b", "more than one file"),
            ("query=/a&boot=0", "cannot specify file with options"),
            ("query=a&query=b&query=c&query=d&query=e", "Too many"),
            ("query=--file=x", "unsafe characters"),
            ("query=-m", "unsafe characters"),
            ("query=a%0Ab", "unsafe characters"),
            ("query=..", "unsafe characters"),
            ("query=kubelet&boot=1", "must be less than 1"),
            ("query=kubelet&tailLines=100001", "must be between"),
            ("query=kubelet&tailLines=x", "tailLines"),
            ("query=kubelet&sinceTime=now", "invalid time format"),
            (
                "query=kubelet&sinceTime=2024-01-01T00:00:00Z&untilTime=2023-01-01T00:00:00Z",
                "must be after",
            ),
        ] {
            let refused = parsed(text).and_then(|query| query.unwrap().validate()).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }
}
