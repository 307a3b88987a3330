//! Broken examples: objects as a cluster shows them, and the whole answer. Each is a pair of files in `fixtures/why`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use api::{Resource, Value};
use client::when::Moment;
use serde::Deserialize;

use super::facts::Facts;
use super::look::Look;
use super::*;

/// What there was, and what is asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    /// Empty to ask about everything.
    #[serde(default)]
    target: String,
    #[serde(default)]
    namespace: String,
    now: String,
    /// By `namespace/pod/container`.
    #[serde(default)]
    logs: BTreeMap<String, String>,
    /// What the user may not read.
    #[serde(default)]
    unseen: Vec<Unseen>,
    objects: Vec<Value>,
    #[serde(default)]
    events: Vec<Value>,
}

impl Example {
    fn read(path: &Path) -> Example {
        let value = schema::parse_yaml(&fs::read(path).unwrap()).unwrap();
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::new(Moment::parse(&self.now).unwrap());
        facts.unseen = self.unseen.clone();
        let is_seen = |resource: &Resource| !self.unseen.iter().any(|unseen| unseen.resource == resource.qualified());
        let rows = table::KINDS.iter();
        let resources = rows.flat_map(|kind| kind.reads.iter().copied().chain([kind.resource]));
        for resource in resources.filter(|resource| is_seen(resource)) {
            facts.add(resource, Vec::new(), true);
        }
        for object in &self.objects {
            let (group, version) = match object.str("apiVersion").split_once('/') {
                Some(parts) => parts,
                None => ("", object.str("apiVersion")),
            };
            let resource = api::kinds::find_kind(group, version, object.str("kind")).expect("a known kind");
            assert!(
                is_seen(resource),
                "{} exists in the example but is listed as unseen",
                resource.plural
            );
            facts.add(resource, vec![object.clone()], true);
        }
        facts.add_events(self.events.clone());
        for (place, text) in &self.logs {
            let parts: Vec<&str> = place.split('/').collect();
            facts.add_log(parts[0], parts[1], parts[2], text);
        }
        facts
    }

    fn answer(&self) -> Result<Answer, WhyError> {
        let scope = Scope::parse(&self.target, &self.namespace)?;
        explain(&self.facts(), &scope)
    }
}

fn examples() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/why");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .collect();
    files.sort();
    files
}

#[test]
fn broken_examples_are_explained() {
    let files = examples();
    assert!(files.len() >= 40, "only {} examples", files.len());
    for path in files {
        let text = match Example::read(&path).answer() {
            Ok(answer) => render(&answer),
            Err(error) => format!("error: {error}\n"),
        };
        expect_test::expect_file![path.with_extension("txt")].assert_eq(&text);
    }
}

/// Each answer can be read by programs, and says the same.
#[test]
fn answers_are_also_json() {
    for path in examples() {
        let Ok(answer) = Example::read(&path).answer() else {
            continue;
        };
        let json = render_json(&answer);
        assert_eq!(json["isHealthy"], answer.is_healthy);
        assert_eq!(json["findings"].as_array().map(Vec::len), Some(answer.findings.len()));
    }
}

/// Whoever may write texts into objects gets none of them onto a terminal unchanged.
#[test]
fn hostile_text_is_stripped_wherever_it_comes_from() {
    const ESCAPE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}";
    fn poison(value: &mut Value) {
        match value {
            // Texts that are compared are left alone, or nothing would be found.
            Value::String(text) if text.contains(' ') || text.contains('/') => *text = format!("{text}{ESCAPE}x"),
            Value::Array(items) => items.iter_mut().for_each(poison),
            Value::Object(fields) => fields.values_mut().for_each(poison),
            _ => (),
        }
    }
    for path in examples() {
        let mut example = Example::read(&path);
        for object in &mut example.objects {
            for part in ["spec", "status"] {
                object.get_mut(part).map(poison).unwrap_or_default();
            }
        }
        example
            .events
            .iter_mut()
            .for_each(|event| event.get_mut("message").map(poison).unwrap_or_default());
        example
            .logs
            .values_mut()
            .for_each(|log| *log = format!("{ESCAPE}{log}"));
        let Ok(answer) = example.answer() else { continue };
        let shown = render(&answer);
        let is_safe = |char: char| char == '\n' || !(char.is_control() || char == '\u{202e}');
        assert!(shown.chars().all(is_safe), "{}: {shown:?}", path.display());
        assert!(!shown.contains("owned"), "{}", path.display());
    }
}

#[test]
fn what_cannot_be_named_is_refused_with_what_can() {
    let refused = |target: &str| {
        Scope::parse(target, "default")
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert!(refused("web").starts_with("\"web\" is not of the form KIND/NAME"));
    assert!(refused("pod/").starts_with("\"pod/\" is not of the form KIND/NAME"));
    let unknown = refused("sausage/web");
    assert!(
        unknown.contains("does not support \"sausage\"") && unknown.contains("statefulset"),
        "{unknown}"
    );
    for target in [
        "po/web",
        "Pods/web",
        "deployments.apps/web",
        "sts/web",
        "pvc/data",
        "hpa/web",
        "crd/x.y",
    ] {
        assert_eq!(refused(target), "", "{target}");
    }
    assert!(refused("deployments.batch/web").contains("does not support"));
}
