//! The roles and bindings a new cluster starts with.

use api::Value;
use serde_json::value::RawValue;

/// One object per line, from upstream's default policy.
const FACTS: &str = include_str!("../facts/bootstrap.json");

/// Each default role and binding with the plural name of its resource, roles before the bindings that need them.
pub fn objects() -> Vec<(&'static str, Value)> {
    let objects: Vec<Value> = serde_json::from_str(FACTS).unwrap_or_default();
    objects
        .into_iter()
        .filter_map(|object| Some((resource(object["kind"].as_str()?)?, object)))
        .collect()
}

/// The same objects as JSON bytes, for those who store them as they are.
pub fn encoded() -> Vec<(&'static str, &'static str)> {
    #[derive(serde::Deserialize)]
    struct Kind<'a> {
        kind: &'a str,
    }
    let objects: Vec<&RawValue> = serde_json::from_str(FACTS).unwrap_or_default();
    let kind = |object: &RawValue| {
        serde_json::from_str::<Kind>(object.get())
            .ok()
            .and_then(|object| resource(object.kind))
    };
    objects
        .into_iter()
        .filter_map(|object| Some((kind(object)?, object.get())))
        .collect()
}

/// One of them, without reading the others.
pub fn cluster_role(name: &str) -> Option<Value> {
    let marker = r#""kind":"ClusterRole""#;
    let named = format!("\"name\":{name:?}}}");
    let line = FACTS
        .lines()
        .find(|line| line.contains(marker) && line.contains(&named))?;
    serde_json::from_str(line.trim_end_matches(',')).ok()
}

fn resource(kind: &str) -> Option<&'static str> {
    match kind {
        "ClusterRole" => Some("clusterroles"),
        "ClusterRoleBinding" => Some("clusterrolebindings"),
        "Role" => Some("roles"),
        "RoleBinding" => Some("rolebindings"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_are_all_there() {
        let count = |wanted: &str| objects().iter().filter(|(resource, _)| *resource == wanted).count();
        let counts = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(count);
        assert_eq!(counts, [69, 50, 7, 7]);
        assert_eq!(encoded().len(), objects().len());
        assert_eq!(cluster_role("system:node").unwrap()["metadata"]["name"], "system:node");
    }

    /// They are objects like any other: defaulting adds nothing and checking finds nothing.
    #[test]
    fn the_facts_pass_the_servers_own_checks() {
        for (resource, object) in objects() {
            let row = api::kinds::find("rbac.authorization.k8s.io", "v1", resource).unwrap();
            let mut defaulted = object.clone();
            row.rules.default(&mut defaulted);
            assert_eq!(defaulted, object);
            let mut problems = api::validate_metadata(row, &object);
            problems.extend(row.rules.validate(&object));
            assert!(problems.is_empty(), "{problems:?}");
        }
    }
}
