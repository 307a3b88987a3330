//! The standards a namespace asks for, by its labels.

use std::fmt;

use api::{Fields, Value};

const PREFIX: &str = "pod-security.kubernetes.io/";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

/// A level as it was in a version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standard {
    pub level: Level,
    /// The minor version; `None` is the latest.
    pub minor: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Enforce,
    Audit,
    Warn,
}

const MODES: [(Mode, &str); 3] = [(Mode::Enforce, "enforce"), (Mode::Audit, "audit"), (Mode::Warn, "warn")];

/// What a namespace asks for in each mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    standards: [Standard; 3],
}

/// A label, its value and what is wrong with it.
pub type Problem = (String, String, String);

impl Policy {
    /// Labels that cannot be read mean the strictest, so that a typing error lets nothing in.
    pub fn parse(namespace: &Value) -> (Policy, Vec<Problem>) {
        let labels = &namespace["metadata"]["labels"];
        let mut policy = Policy::default();
        let mut problems = Vec::new();
        for (standard, (mode, name)) in policy.standards.iter_mut().zip(MODES) {
            let key = format!("{PREFIX}{name}");
            if labels.has(&key) {
                standard.level = match labels.text(&key) {
                    "privileged" => Level::Privileged,
                    "baseline" => Level::Baseline,
                    "restricted" => Level::Restricted,
                    other => {
                        let detail = "must be one of privileged, baseline, restricted";
                        problems.push((key.clone(), other.to_owned(), detail.to_owned()));
                        if mode == Mode::Enforce {
                            Level::Restricted
                        } else {
                            Level::Privileged
                        }
                    }
                };
            }
            let key = format!("{PREFIX}{name}-version");
            if labels.has(&key) {
                let text = labels.text(&key);
                match parse_version(text) {
                    Some(minor) => standard.minor = minor,
                    None => {
                        let detail = "must be \"latest\" or \"v1.x\"";
                        problems.push((key.clone(), text.to_owned(), detail.to_owned()));
                    }
                }
            }
        }
        (policy, problems)
    }

    pub fn standard(&self, mode: Mode) -> Standard {
        self.standards[mode as usize]
    }
}

fn parse_version(text: &str) -> Option<Option<u32>> {
    match text {
        "latest" => Some(None),
        text => {
            let digits = text.strip_prefix("v1.")?;
            let plain = digits == "0" || !digits.starts_with('0');
            plain.then(|| digits.parse().ok().map(Some)).flatten()
        }
    }
}

impl Default for Standard {
    fn default() -> Standard {
        Standard {
            level: Level::Privileged,
            minor: None,
        }
    }
}

impl Standard {
    /// Whether the standard is that of a version or of a later one.
    pub fn since(self, minor: u32) -> bool {
        self.minor.map_or(minor != u32::MAX, |own| own >= minor)
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.minor {
            None => write!(formatter, "{level}:latest"),
            Some(minor) => write!(formatter, "{level}:v1.{minor}"),
        }
    }
}
