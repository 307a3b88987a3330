//! Which resources a server has, custom ones included.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use api::{Resource, Verb};
use bytes::Bytes;
use http::{Request, header};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::{Client, Error, Result, TransportError};

/// Aggregated discovery: everything in two answers.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Rows of resources that are not built in. They live as long as the process, and there are as many as custom
/// resource definitions ever seen.
static CUSTOM: LazyLock<Mutex<HashMap<Id, &'static Resource>>> = LazyLock::new(Mutex::default);

/// Group, version and plural name.
type Id = (String, String, String);

#[derive(Deserialize)]
struct GroupList {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    metadata: Name,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Name {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Found>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    resource: String,
    #[serde(default)]
    response_kind: Kind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind {
    kind: String,
}

impl Client {
    /// All resources of the server, each in the version that the server prefers for it.
    pub async fn discover(&self) -> Result<Vec<&'static Resource>> {
        let mut resources = Vec::new();
        let mut seen = HashSet::new();
        for path in ["/api", "/apis"] {
            let request = Request::get(path).header(header::ACCEPT, ACCEPT);
            let request = request.body(Bytes::new()).map_err(TransportError::from)?;
            let answer = self.fetch(request).await?;
            let list: GroupList = serde_json::from_slice(&answer).map_err(|source| Error::Decode {
                request: format!("discovery of {path}"),
                source,
            })?;
            for group in list.items {
                for version in group.versions {
                    let new = |found: &Found| seen.insert((group.metadata.name.clone(), found.resource.clone()));
                    let (group, found) = (&group.metadata.name, version.resources.into_iter().filter(new));
                    resources.extend(found.map(|found| row(group, &version.version, &found)));
                }
            }
        }
        Ok(resources)
    }
}

fn row(group: &str, version: &str, found: &Found) -> &'static Resource {
    if let Some(built_in) = api::kinds::find(group, version, &found.resource) {
        return built_in;
    }
    let id = (group.to_owned(), version.to_owned(), found.resource.clone());
    CUSTOM.lock().entry(id).or_insert_with(|| {
        let text = |text: &str| -> &'static str { text.to_owned().leak() };
        let verbs: Vec<Verb> = api::ALL_VERBS
            .iter()
            .copied()
            .filter(|verb| found.verbs.iter().any(|name| name == verb.as_str()))
            .collect();
        let mut resource = Resource::namespaced(
            text(group),
            text(version),
            text(&found.response_kind.kind),
            text(&found.resource),
            text(&found.singular_resource),
        );
        resource.namespaced = found.scope == "Namespaced";
        Box::leak(Box::new(resource.with_verbs(verbs.leak())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_resources_are_made_once() {
        let found: Found = serde_json::from_str(
            r#"{"resource": "gadgets", "responseKind": {"kind": "Gadget"}, "scope": "Cluster",
                "singularResource": "gadget", "verbs": ["list", "get", "impersonate"]}"#,
        )
        .unwrap();
        let one = row("example.com", "v1", &found);
        assert!(std::ptr::eq(one, row("example.com", "v1", &found)));
        assert_eq!(one.path(None, Some("a")), "/apis/example.com/v1/gadgets/a");
        assert_eq!(one.verbs, [Verb::Get, Verb::List]);
        assert!(!one.namespaced);
    }
}
