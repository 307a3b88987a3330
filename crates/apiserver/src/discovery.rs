//! Discovery: which groups, versions and resources there are, in the aggregated and in the plain form.

mod remote;

use api::{Error, Resource, Subresource, Value, Verb};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Response, StatusCode};
use registry::CustomResources;
use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::ApiServer;
use crate::body::Body;
use crate::request::Query;
use crate::respond;

/// How much of a hash tells storage versions apart.
const STORAGE_HASH_BYTES: usize = 8;

const AGGREGATED_V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// `/api`: the versions of the core group.
pub fn core(server: &ApiServer, headers: &HeaderMap, query: &Query) -> Result<Response<Body>, Error> {
    if let Some((media_type, version)) = aggregated_version(headers) {
        let items = aggregated_items(&server.registry.custom_resources(), &[""]);
        return Ok(aggregated(headers, media_type, version, items));
    }
    let address = server.advertised_address();
    let versions = json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": address }],
    });
    respond::document(headers, query, &versions)
}

/// `/apis`: all other groups.
pub fn groups(server: &ApiServer, headers: &HeaderMap, query: &Query) -> Result<Response<Body>, Error> {
    let custom_resources = server.registry.custom_resources();
    let names = group_names(&custom_resources);
    let table = server.aggregation.table();
    if let Some((media_type, version)) = aggregated_version(headers) {
        let mut items = aggregated_items(&custom_resources, &names);
        remote::add_aggregated(&mut items, &table);
        return Ok(aggregated(headers, media_type, version, items));
    }
    let mut groups: Vec<Value> = names.iter().map(|name| group_value(&custom_resources, name)).collect();
    remote::add_plain(&mut groups, &table);
    let groups = json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups });
    respond::document(headers, query, &groups)
}

/// `/apis/GROUP`.
pub fn group(server: &ApiServer, name: &str) -> Option<Value> {
    let custom_resources = server.registry.custom_resources();
    let own = group_names(&custom_resources).contains(&name);
    let mut groups: Vec<Value> = own.then(|| group_value(&custom_resources, name)).into_iter().collect();
    remote::add_plain(&mut groups, &server.aggregation.table());
    let mut value = groups.into_iter().find(|group| group["name"] == name)?;
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub fn resources(server: &ApiServer, group: &str, version: &str) -> Option<Value> {
    let custom_resources = server.registry.custom_resources();
    let rows = rows(&custom_resources, group, version);
    if rows.is_empty() {
        return None;
    }
    let resources: Vec<Value> = rows
        .iter()
        .flat_map(|resource| plain_resources(&custom_resources, resource))
        .collect();
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(group, version),
        "resources": resources,
    }))
}

/// The first aggregated form that `Accept` names before any plain one.
fn aggregated_version(headers: &HeaderMap) -> Option<(&'static str, &'static str)> {
    let accept = headers.get(ACCEPT)?.to_str().ok()?;
    let first = accept.split(',').find_map(|clause| {
        let mut parts: Vec<&str> = clause.split(';').map(str::trim).collect();
        let media_type = parts.remove(0);
        if media_type != "application/json" && media_type != "*/*" {
            return None;
        }
        let has = |wanted: &str| parts.contains(&wanted);
        let is_aggregated = has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList");
        match () {
            () if is_aggregated && has("v=v2") => Some(Some((AGGREGATED_V2, "v2"))),
            () if is_aggregated && has("v=v2beta1") => Some(Some((AGGREGATED_V2BETA1, "v2beta1"))),
            () if parts.iter().any(|part| part.starts_with("as=")) => None,
            () => Some(None),
        }
    });
    first.flatten()
}

fn aggregated_items(custom_resources: &CustomResources, groups: &[&str]) -> Vec<Value> {
    groups
        .iter()
        .map(|group| {
            let versions: Vec<Value> = versions(custom_resources, group)
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = rows(custom_resources, group, version)
                        .iter()
                        .map(|resource| aggregated_resource(resource))
                        .collect();
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            let metadata = if group.is_empty() {
                json!({})
            } else {
                json!({ "name": group })
            };
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect()
}

/// The whole document, or that the client has it already.
fn aggregated(asked: &HeaderMap, media_type: &'static str, version: &str, items: Vec<Value>) -> Response<Body> {
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    });
    let content = document.to_string();
    let hash = digest(&SHA256, content.as_bytes());
    let tag: String = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    let tag = HeaderValue::from_str(&format!("\"{tag}\"")).ok();
    let mut response = match tag.is_some() && asked.get(IF_NONE_MATCH) == tag.as_ref() {
        true => respond::bytes(StatusCode::NOT_MODIFIED, media_type, Bytes::new()),
        false => respond::bytes(StatusCode::OK, media_type, content),
    };
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.extend(tag.map(|tag| (ETAG, tag)));
    response
}

fn aggregated_resource(resource: &Resource) -> Value {
    // Only custom resources repeat the group and version they are listed under.
    let is_custom = api::kinds::find(resource.group, resource.version, resource.plural).is_none();
    let own = if is_custom {
        (resource.group, resource.version)
    } else {
        ("", "")
    };
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": { "group": own.0, "version": own.1, "kind": resource.kind },
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource.verbs),
    });
    for (key, names) in [
        ("shortNames", resource.short_names),
        ("categories", resource.categories),
    ] {
        if !names.is_empty() {
            value[key] = json!(names);
        }
    }
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let (group, version, kind) = body_kind(resource, subresource, own);
            json!({
                "subresource": subresource.name, "verbs": verbs(subresource.verbs),
                "responseKind": { "group": group, "version": version, "kind": kind },
            })
        })
        .collect();
    if !subresources.is_empty() {
        value["subresources"] = subresources.into();
    }
    value
}

fn plain_resources(custom_resources: &CustomResources, resource: &Resource) -> Vec<Value> {
    let mut main = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": verbs(resource.verbs),
    });
    for (key, names) in [
        ("shortNames", resource.short_names),
        ("categories", resource.categories),
    ] {
        if !names.is_empty() {
            main[key] = json!(names);
        }
    }
    if !resource.storage.is_empty() {
        main["storageVersionHash"] = storage_version_hash(custom_resources, resource).into();
    }
    let subresources = resource.subresources.iter().map(|subresource| {
        let own = (resource.group, resource.version);
        let (group, version, kind) = body_kind(resource, subresource, own);
        let mut value = json!({
            "name": format!("{}/{}", resource.plural, subresource.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": kind, "verbs": verbs(subresource.verbs),
        });
        if (group, version) != own {
            value["group"] = group.into();
            value["version"] = version.into();
        }
        value
    });
    std::iter::once(main).chain(subresources).collect()
}

fn body_kind<'a>(
    resource: &'a Resource,
    subresource: &'a Subresource,
    own: (&'a str, &'a str),
) -> (&'a str, &'a str, &'a str) {
    match subresource.body {
        Some((group, version, kind)) => (group, version, kind),
        None => (own.0, own.1, resource.kind),
    }
}

/// Eight bytes that change when the stored version changes.
/// Changes when objects are stored in another version; made as upstream makes it.
fn storage_version_hash(custom_resources: &CustomResources, resource: &Resource) -> String {
    let custom = custom_resources.find(resource.group, resource.version, resource.plural);
    let custom = custom.and_then(|served| served.custom.as_ref());
    let (group, version) = match custom {
        Some(custom) => (resource.group, custom.definition.storage.as_str()),
        None => resource.storage_version.unwrap_or((resource.group, resource.version)),
    };
    let hash = digest(&SHA256, format!("{group}/{version}/{}", resource.kind).as_bytes());
    BASE64.encode(&hash.as_ref()[..STORAGE_HASH_BYTES])
}

fn group_value(custom_resources: &CustomResources, name: &str) -> Value {
    let versions: Vec<Value> = versions(custom_resources, name)
        .iter()
        .map(|version| json!({ "groupVersion": group_version(name, version), "version": version }))
        .collect();
    json!({ "name": name, "preferredVersion": versions[0], "versions": versions })
}

fn rows(custom_resources: &CustomResources, group: &str, version: &str) -> Vec<&'static Resource> {
    let wanted = |resource: &&'static Resource| resource.group == group && resource.version == version;
    let built_in = api::kinds::all().iter().copied();
    built_in.chain(custom_resources.resources()).filter(wanted).collect()
}

/// Built-in groups in their own order, then custom ones by name.
fn group_names(custom_resources: &CustomResources) -> Vec<&'static str> {
    let mut names = Vec::new();
    for (group, _) in api::kinds::GROUP_VERSIONS
        .iter()
        .copied()
        .chain(custom_resources.group_versions())
    {
        if !group.is_empty() && !names.contains(&group) {
            names.push(group);
        }
    }
    names
}

fn versions(custom_resources: &CustomResources, group: &str) -> Vec<&'static str> {
    let mut versions = Vec::new();
    for (name, version) in api::kinds::GROUP_VERSIONS
        .iter()
        .copied()
        .chain(custom_resources.group_versions())
    {
        if name == group && !versions.contains(&version) {
            versions.push(version);
        }
    }
    versions
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn verbs(verbs: &[Verb]) -> Value {
    verbs.iter().map(|verb| verb.as_str()).collect()
}
