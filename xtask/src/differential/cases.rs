//! The cases as files of `interop/differential/` hold them; README.md there describes the form.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::change::{self, Change};

/// A kind, the object that its cases start from, and the cases.
pub struct Kind {
    pub name: String,
    /// The path of the collection.
    pub collection: String,
    /// None for kinds whose cases are requests only.
    pub base: Option<Value>,
    pub cases: Vec<Case>,
}

#[derive(Clone)]
pub struct Case {
    /// The line that it stands in.
    pub title: String,
    pub action: Action,
}

#[derive(Clone)]
pub enum Action {
    /// The base, changed, is created as a dry run.
    Create(Vec<Change>),
    /// The stored object, changed, is written back as a dry run, or written to a subresource.
    Put { subresource: String, changes: Vec<Change> },
    /// Something else.
    Send(Request),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub content_type: String,
    pub accept: String,
    pub body: String,
    /// Other headers.
    pub headers: Vec<(String, String)>,
    /// Who asks: somebody who may do everything when there is none, and nobody when it is empty.
    pub token: Option<String>,
}

/// All kinds in the order of the files' names; and the cases that hold for every kind.
pub fn read(dir: &Path) -> Result<Vec<Kind>> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .with_context(|| format!("cannot read {}", dir.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "cases"));
    files.sort();
    let mut kinds = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        kinds.extend(parse(&text).with_context(|| format!("in {}", file.display()))?);
    }
    let (every, mut kinds): (Vec<Kind>, Vec<Kind>) = kinds.into_iter().partition(|kind| kind.name == "*");
    for case in every.iter().flat_map(|kind| &kind.cases) {
        for kind in kinds.iter_mut().filter(|kind| kind.base.is_some()) {
            kind.cases.push(case.clone());
        }
    }
    Ok(kinds)
}

fn parse(text: &str) -> Result<Vec<Kind>> {
    let mut kinds: Vec<Kind> = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let context = || format!("line {}: {line}", number + 1);
        if let Some(head) = line.strip_prefix("kind ") {
            let mut body = String::new();
            while let Some((_, inside)) = lines.next_if(|(_, line)| line.starts_with(' ')) {
                body += inside;
                body.push('\n');
            }
            kinds.push(parse_kind(head, &body).with_context(context)?);
        } else {
            let kind = kinds.last_mut().with_context(context)?;
            let case = parse_case(line, kind).with_context(context)?;
            kind.cases.push(case);
        }
    }
    Ok(kinds)
}

fn parse_kind(head: &str, body: &str) -> Result<Kind> {
    let (name, collection) = head.split_once(' ').unwrap_or((head, ""));
    let base = match body.trim().is_empty() {
        true => None,
        false => {
            let mut base: Value = serde_saphyr::from_str(body).context("the object is not YAML")?;
            base["apiVersion"] = api_version(collection)?.into();
            base["kind"] = name.split('/').next().unwrap_or_default().into();
            Some(base)
        }
    };
    Ok(Kind {
        name: name.to_owned(),
        collection: collection.trim().to_owned(),
        base,
        cases: Vec::new(),
    })
}

/// `/apis/apps/v1/…` is that of `apps/v1`.
fn api_version(collection: &str) -> Result<String> {
    let parts: Vec<&str> = collection.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", version, ..] => Ok((*version).to_owned()),
        ["apis", group, version, ..] => Ok(format!("{group}/{version}")),
        _ => bail!("{collection} is no path of a collection"),
    }
}

fn parse_case(line: &str, kind: &Kind) -> Result<Case> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let (first, others) = rest.split_once(' ').unwrap_or((rest, ""));
    let action = match verb {
        "create" => Action::Create(change::parse(rest)?),
        "update" => Action::Put {
            subresource: String::new(),
            changes: change::parse(rest)?,
        },
        "put" => Action::Put {
            subresource: format!("/{first}"),
            changes: change::parse(others)?,
        },
        "patch" => Action::Send(patch(first, others, kind)?),
        "post" => Action::Send(Request {
            method: "POST".to_owned(),
            path: format!("{}/{first}?dryRun=All", kind.object_path()?),
            content_type: "application/json".to_owned(),
            body: others.to_owned(),
            ..Request::default()
        }),
        "delete" => Action::Send(Request {
            method: "DELETE".to_owned(),
            path: format!("{}?dryRun=All", kind.object_path()?),
            content_type: "application/json".to_owned(),
            body: dry(rest),
            ..Request::default()
        }),
        _ if verb.bytes().all(|byte| byte.is_ascii_uppercase()) => Action::Send(request(verb, first, others)?),
        _ => bail!("there is no verb {verb:?}"),
    };
    Ok(Case {
        title: line.to_owned(),
        action,
    })
}

/// Options as a body, of a dry run: where there is a body, the query counts for nothing.
fn dry(body: &str) -> String {
    match serde_json::from_str(body) {
        Ok(Value::Object(mut options)) => {
            options.entry("dryRun").or_insert_with(|| serde_json::json!(["All"]));
            Value::Object(options).to_string()
        }
        _ => body.to_owned(),
    }
}

/// `strategic BODY`, or `merge/status BODY` for a subresource.
fn patch(target: &str, body: &str, kind: &Kind) -> Result<Request> {
    let (form, subresource) = target.split_once('/').unwrap_or((target, ""));
    let (content_type, query) = match form {
        "json" => ("application/json-patch+json", ""),
        "merge" => ("application/merge-patch+json", ""),
        "strategic" => ("application/strategic-merge-patch+json", ""),
        "apply" => ("application/apply-patch+yaml", "&fieldManager=differential"),
        _ => bail!("there is no patch {form:?}"),
    };
    let mut path = kind.object_path()?;
    if !subresource.is_empty() {
        path = format!("{path}/{subresource}");
    }
    Ok(Request {
        method: "PATCH".to_owned(),
        path: format!("{path}?dryRun=All{query}"),
        content_type: content_type.to_owned(),
        body: body.to_owned(),
        ..Request::default()
    })
}

/// `GET /path accept=… type=… BODY`
fn request(method: &str, path: &str, rest: &str) -> Result<Request> {
    ensure!(path.starts_with('/'), "{path:?} is no path");
    let mut request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        content_type: "application/json".to_owned(),
        ..Request::default()
    };
    let mut rest = rest.trim_start();
    loop {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        if let Some(accept) = word.strip_prefix("accept=") {
            request.accept = accept.to_owned();
        } else if let Some(content_type) = word.strip_prefix("type=") {
            request.content_type = content_type.to_owned();
        } else {
            request.body = rest.to_owned();
            return Ok(request);
        }
        rest = after.trim_start();
    }
}

impl Kind {
    /// The path of the base's object.
    pub fn object_path(&self) -> Result<String> {
        let name = self.base.as_ref().and_then(|base| base["metadata"]["name"].as_str());
        let name = name.with_context(|| format!("{} has no object with a name", self.name))?;
        Ok(format!("{}/{name}", self.collection))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = r#"
# A comment.
kind Thing/full /apis/example.com/v1/things
  metadata: {name: base}
  spec:
    size: 1
create spec.size = -1
patch merge/status {"status": {}}
GET /apis accept=text/html
"#;

    #[test]
    fn a_kind_has_an_object_and_a_case_per_line() {
        let kinds = parse(TEXT).unwrap();
        let thing = &kinds[0];
        let base = json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "base"}, "spec": {"size": 1},
        });
        assert_eq!(thing.base.as_ref(), Some(&base));
        let sent: Vec<String> = thing
            .cases
            .iter()
            .filter_map(|case| match &case.action {
                Action::Send(request) => Some(format!("{} {} {}", request.method, request.path, request.body)),
                _ => None,
            })
            .collect();
        assert_eq!(
            sent,
            [
                r#"PATCH /apis/example.com/v1/things/base/status?dryRun=All {"status": {}}"#,
                "GET /apis "
            ]
        );
        assert!(parse("create spec = 1").is_err());
        assert!(parse("kind Thing /apis/a/v1/things\nmake x = 1").is_err());
    }
}
