//! Reading what the checks need, as the user that asks. What that user may not read is told and not guessed.

use std::collections::BTreeSet;

use api::kinds::event::EVENT;
use api::kinds::lease::LEASE;
use api::kinds::pod::POD;
use api::{Resource, Value};
use bytes::Bytes;
use client::when::Moment;
use client::{Client, ListOptions};
use http::Request;

use super::facts::{self, Facts, Unseen};
use super::kinds::pod::crash::wanted_logs;
use super::look::Look;
use super::plain;
use super::table::{self, Kind};

/// Objects per page, and the most that are read of one resource.
const PAGE: u32 = 500;
const MAX_OBJECTS: usize = 20_000;
/// The most logs that are read for one question, and how much of each.
const MAX_LOGS: usize = 8;
const LOG_LINES: usize = 8;
const LOG_BYTES: usize = 4096;
/// Where kubelets renew their leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// What a question is about.
pub struct Scope {
    /// The kind and name, or none for everything.
    pub target: Option<(&'static Kind, String)>,
    /// Empty for all namespaces.
    pub namespace: String,
}

#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    #[error("{0:?} is not of the form KIND/NAME, such as pod/web-0")]
    Syntax(String),
    #[error("karve why does not support {kind:?}; supported kinds: {known}")]
    UnknownKind { kind: String, known: String },
    #[error("{object} not found{place}{}", suggestion(.near))]
    NotFound {
        object: String,
        place: String,
        near: Vec<String>,
    },
    #[error("cannot {verb} {resource}{place}: permission denied; ask your administrator for {verb} on {resource}")]
    Forbidden {
        resource: String,
        verb: &'static str,
        place: String,
    },
    #[error(transparent)]
    Client(#[from] client::Error),
}

fn suggestion(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

impl Scope {
    /// Reads `KIND/NAME`; an empty target asks about everything.
    pub fn parse(target: &str, namespace: &str) -> Result<Scope, WhyError> {
        let namespace = namespace.to_owned();
        if target.is_empty() {
            return Ok(Scope {
                target: None,
                namespace,
            });
        }
        let parts = target.split_once('/').filter(|(_, name)| !name.is_empty());
        let (kind, name) = parts.ok_or_else(|| WhyError::Syntax(plain::line(target, 100)))?;
        let kind = table::called(kind).ok_or_else(|| WhyError::UnknownKind {
            kind: plain::line(kind, 100),
            known: table::known_kinds(),
        })?;
        Ok(Scope {
            target: Some((kind, name.to_owned())),
            namespace,
        })
    }

    /// Every resource that is needed to answer.
    fn resources(&self) -> Vec<&'static Resource> {
        let mut found: Vec<&'static Resource> = match &self.target {
            Some((kind, _)) => vec![kind.resource],
            None => table::KINDS.iter().map(|kind| kind.resource).collect(),
        };
        let mut seen: BTreeSet<_> = found.iter().map(|resource| facts::key(resource)).collect();
        let mut next = 0;
        while next < found.len() {
            let (group, plural) = facts::key(found[next]);
            for read in table::served_as(group, plural).map_or(&[][..], |kind| kind.reads) {
                if seen.insert(facts::key(read)) {
                    found.push(read);
                }
            }
            next += 1;
        }
        found
    }
}

/// Reads everything that is needed to answer a question.
pub async fn read(client: &Client, scope: &Scope) -> Result<Facts, WhyError> {
    let mut facts = Facts::new(Moment::now());
    let namespace = match &scope.target {
        Some((kind, _)) if !kind.resource.namespaced => "",
        _ => scope.namespace.as_str(),
    };
    for resource in scope.resources() {
        read_resource(client, &mut facts, resource, namespace).await?;
    }
    if let Some((kind, _)) = &scope.target
        && !facts.knows(kind.resource)
    {
        return Err(forbidden(&facts, kind));
    }
    read_events(client, &mut facts, namespace).await?;
    read_logs(client, &mut facts, scope).await;
    Ok(facts)
}

fn forbidden(facts: &Facts, kind: &Kind) -> WhyError {
    let resource = kind.resource.qualified();
    let unseen = facts.unseen.iter().find(|unseen| unseen.resource == resource);
    let namespace = unseen.map(|unseen| unseen.namespace.as_str()).unwrap_or_default();
    WhyError::Forbidden {
        resource,
        verb: "list",
        place: match namespace {
            "" => String::new(),
            namespace => format!(" in namespace {namespace}"),
        },
    }
}

async fn read_resource(
    client: &Client,
    facts: &mut Facts,
    resource: &'static Resource,
    namespace: &str,
) -> Result<(), WhyError> {
    // What is free on a node depends on the pods of all namespaces; whoever may not see them sees their own.
    if facts::key(resource) == facts::key(&POD)
        && !namespace.is_empty()
        && let Ok((items, is_whole)) = list(client, resource, "").await
    {
        facts.add(resource, items, is_whole);
        return Ok(());
    }
    let namespace = match () {
        () if facts::key(resource) == facts::key(&LEASE) => LEASE_NAMESPACE,
        () if resource.namespaced => namespace,
        () => "",
    };
    match list(client, resource, namespace).await {
        Ok((items, is_whole)) => facts.add(resource, items, is_whole && namespace.is_empty()),
        Err(error) => facts
            .unseen
            .push(unseen(resource.qualified(), namespace, "list", error)?),
    }
    Ok(())
}

async fn read_events(client: &Client, facts: &mut Facts, namespace: &str) -> Result<(), WhyError> {
    match list(client, &EVENT, namespace).await {
        Ok((events, _)) => facts.add_events(events),
        Err(error) => facts.unseen.push(unseen(EVENT.qualified(), namespace, "list", error)?),
    }
    if !namespace.is_empty() {
        // Events about nodes and volumes are in the default namespace.
        if let Ok((events, _)) = list(client, &EVENT, "default").await
            && namespace != "default"
        {
            facts.add_events(events);
        }
    }
    Ok(())
}

/// What is told instead of an object that cannot be read. A server that does not answer at all answers nothing.
fn unseen(resource: String, namespace: &str, verb: &str, error: client::Error) -> Result<Unseen, WhyError> {
    let error = match error {
        error if error.is_forbidden() => String::new(),
        client::Error::Api(error) => plain::line(&error.to_string(), 300),
        error => return Err(WhyError::Client(error)),
    };
    Ok(Unseen {
        resource,
        namespace: namespace.to_owned(),
        verb: verb.to_owned(),
        error,
    })
}

/// The objects, and whether these are all.
async fn list(
    client: &Client,
    resource: &'static Resource,
    namespace: &str,
) -> Result<(Vec<Value>, bool), client::Error> {
    let api = client.resource(resource).in_namespace(namespace);
    let mut options = ListOptions {
        limit: PAGE,
        ..ListOptions::default()
    };
    let mut items = Vec::new();
    loop {
        let page = api.list::<Value>(&options).await?;
        items.extend(page.items);
        options.continue_token = page.metadata.continue_token;
        if options.continue_token.is_empty() {
            return Ok((items, true));
        }
        if items.len() >= MAX_OBJECTS {
            return Ok((items, false));
        }
    }
}

/// The last lines of containers that have ended badly.
async fn read_logs(client: &Client, facts: &mut Facts, scope: &Scope) {
    let mut wanted = Vec::new();
    for pod in facts.list(&POD) {
        let is_in_scope = scope.namespace.is_empty() || pod.namespace() == scope.namespace;
        let is_target = match &scope.target {
            Some((kind, name)) if facts::key(kind.resource) == facts::key(&POD) => pod.name() == name,
            _ => true,
        };
        if is_in_scope && is_target {
            let logs = wanted_logs(pod).into_iter();
            wanted.extend(
                logs.map(|(container, previous)| {
                    (pod.namespace().to_owned(), pod.name().to_owned(), container, previous)
                }),
            );
        }
    }
    for (namespace, pod, container, previous) in wanted.into_iter().take(MAX_LOGS) {
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&previous={previous}\
             &tailLines={LOG_LINES}&limitBytes={LOG_BYTES}"
        );
        match fetch_text(client, &path).await {
            Ok(text) => facts.add_log(&namespace, &pod, &container, &text),
            Err(Some(error)) if error.is_forbidden() => {
                let told = Unseen {
                    resource: "pods/log".to_owned(),
                    namespace,
                    verb: "get".to_owned(),
                    error: String::new(),
                };
                if !facts.unseen.contains(&told) {
                    facts.unseen.push(told);
                }
            }
            // A log that is gone is not what was asked about.
            Err(_) => (),
        }
    }
}

async fn fetch_text(client: &Client, path: &str) -> Result<String, Option<client::Error>> {
    let request = Request::get(path).body(Bytes::new()).map_err(|_| None)?;
    let answer = client.fetch(request).await.map_err(Some)?;
    let answer = &answer[..answer.len().min(LOG_BYTES)];
    Ok(String::from_utf8_lossy(answer).into_owned())
}
