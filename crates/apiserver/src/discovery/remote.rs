//! Groups and versions of other API servers, told beside our own.

use api::{Fields, Value};
use serde_json::json;

use crate::aggregation::{Remote, Table};

/// Adds them to the groups of an APIGroupList.
pub fn add_plain(groups: &mut Vec<Value>, table: &Table) {
    for remote in &table.remotes {
        let version = json!({ "groupVersion": remote.group_version(), "version": remote.version });
        let known = groups.iter().position(|group| group["name"] == remote.group.as_str());
        match known {
            Some(at) => add_version(&mut groups[at], version),
            None => groups.push(json!({
                "name": remote.group, "preferredVersion": version, "versions": [version],
            })),
        }
    }
}

/// Adds them to the items of an APIGroupDiscoveryList.
pub fn add_aggregated(items: &mut Vec<Value>, table: &Table) {
    for remote in &table.remotes {
        let version = aggregated_version(remote);
        let known = items
            .iter()
            .position(|item| item["metadata"]["name"] == remote.group.as_str());
        match known {
            Some(at) => add_version(&mut items[at], version),
            None => items.push(json!({ "metadata": { "name": remote.group }, "versions": [version] })),
        }
    }
}

/// A version that another server took over is told once, as the other server's.
fn add_version(group: &mut Value, version: Value) {
    if let Some(versions) = group["versions"].as_array_mut() {
        versions.retain(|known| known["version"] != version["version"]);
        versions.push(version);
    }
}

fn aggregated_version(remote: &Remote) -> Value {
    let seen = remote.seen();
    let listed = seen.resources.list("resources");
    let (mains, subs): (Vec<&Value>, Vec<&Value>) = listed.iter().partition(|one| !one.text("name").contains('/'));
    let resources: Vec<Value> = mains.into_iter().map(|main| resource(remote, main, &subs)).collect();
    let freshness = if seen.available { "Current" } else { "Stale" };
    json!({ "version": remote.version, "resources": resources, "freshness": freshness })
}

fn resource(remote: &Remote, main: &Value, subresources: &[&Value]) -> Value {
    let name = main.text("name");
    let mut told = json!({
        "resource": name, "responseKind": response_kind(remote, main),
        "scope": if main.flag("namespaced") { "Namespaced" } else { "Cluster" },
        "singularResource": main.text("singularName"), "verbs": main["verbs"],
    });
    for field in ["shortNames", "categories"] {
        if main.has(field) {
            told[field] = main[field].clone();
        }
    }
    let of_main = subresources.iter().filter_map(|sub| {
        let (parent, subresource) = sub.text("name").split_once('/')?;
        (parent == name).then(
            || json!({ "subresource": subresource, "responseKind": response_kind(remote, sub), "verbs": sub["verbs"] }),
        )
    });
    let of_main: Vec<Value> = of_main.collect();
    if !of_main.is_empty() {
        told["subresources"] = of_main.into();
    }
    told
}

/// Kinds of another group or version say so, all others are of the list's.
fn response_kind(remote: &Remote, resource: &Value) -> Value {
    let or = |field: &str, own: &str| match resource.text(field) {
        "" => own.to_owned(),
        text => text.to_owned(),
    };
    json!({
        "group": or("group", &remote.group), "version": or("version", &remote.version), "kind": resource.text("kind"),
    })
}
