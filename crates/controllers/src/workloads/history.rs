//! ControllerRevisions: the templates that a DaemonSet or a StatefulSet has had, each under a number.
//!
//! A revision holds the template as a strategic merge patch of its owner, in the very form that upstream writes: what
//! the two compare is this content, so neither takes the other's revision for a new template.

use std::collections::HashSet;
use std::sync::Arc;

use api::kinds::controller_revision::CONTROLLER_REVISION;
use api::{Fields, ObjectMeta, Resource, Value};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::model::{created, with_metadata};
use crate::owner::controller_reference;
use crate::plan::{Action, Create, Delete, Patch};
use crate::workloads::template;

/// The label of pods that says which revision they are of.
pub const REVISION_LABEL: &str = "controller-revision-hash";
/// The label of a revision that holds the hash in its name.
pub const HASH_LABEL: &str = "controller.kubernetes.io/hash";

const DEFAULT_LIMIT: i64 = 10;
/// Names of revisions are cut so that the hash fits behind them.
const MAX_PREFIX_BYTES: usize = 223;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Revision {
    pub metadata: ObjectMeta,
    pub revision: i64,
    data: Option<Box<RawValue>>,
}

with_metadata!(Revision);

impl Revision {
    pub fn data(&self) -> Value {
        let text = self.data.as_deref().map_or("null", RawValue::get);
        // The text was part of an object that parsed.
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The template that this revision stands for.
    pub fn template(&self) -> Value {
        let mut template = self.data()["spec"]["template"].take();
        template.remove("$patch");
        template
    }
}

/// A template as the content of a revision.
pub fn data(template: &Value) -> Value {
    let mut template = template.clone();
    template.set("$patch", "replace");
    json!({"spec": {"template": template}})
}

/// The hash of a revision's content for names and labels.
pub fn hash(data: &Value, collisions: i64) -> String {
    let text = format!("{}{collisions}", escaped(&data.to_string()));
    let sum = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        hash.wrapping_mul(0x0100_0193) ^ u32::from(byte)
    });
    template::safe_text(&sum.to_string())
}

/// JSON as Go writes it, which hides what HTML gives a meaning to.
fn escaped(json: &str) -> String {
    json.replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

pub fn name(owner: &str, hash: &str) -> String {
    let end = (0..=owner.len().min(MAX_PREFIX_BYTES))
        .rev()
        .find(|end| owner.is_char_boundary(*end));
    format!("{}-{hash}", &owner[..end.unwrap_or(0)])
}

/// The oldest first.
pub fn sort(revisions: &mut [Arc<Revision>]) {
    revisions.sort_by_key(|revision| {
        let metadata = &revision.metadata;
        (revision.revision, created(metadata), metadata.name.clone())
    });
}

/// Makes a revision of `template`'s owner. `labels` are added to those of the template.
pub fn create(
    owner: (&'static Resource, &ObjectMeta),
    template: &Value,
    name: &str,
    label: (&str, &str),
    revision: i64,
) -> Action {
    let mut labels = template["metadata"]["labels"].clone();
    labels.set(label.0, label.1);
    let object = json!({
        "apiVersion": CONTROLLER_REVISION.api_version(),
        "kind": CONTROLLER_REVISION.kind,
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": owner.1.annotations,
            "ownerReferences": [controller_reference(owner.0, owner.1)],
        },
        "data": data(template),
        "revision": revision,
    });
    Action::Create(Create::new(&CONTROLLER_REVISION, &owner.1.namespace, object))
}

/// Makes an old revision the newest again.
pub fn renumber(revision: &Revision, number: i64) -> Action {
    let metadata = &revision.metadata;
    let patch = Patch::new(&CONTROLLER_REVISION, metadata, json!({"revision": number}));
    Action::Patch(patch.at_revision(metadata))
}

/// Deletes the oldest of the revisions that nothing uses, beyond the limit. `revisions` are sorted.
pub fn trim(
    revisions: &[Arc<Revision>],
    live: &HashSet<&str>,
    limit: Option<i64>,
    id: fn(&Revision) -> &str,
) -> Vec<Action> {
    let idle: Vec<&Arc<Revision>> = revisions
        .iter()
        .filter(|revision| !live.contains(id(revision)))
        .collect();
    let excess = (idle.len() as i64 - limit.unwrap_or(DEFAULT_LIMIT)).max(0) as usize;
    let doomed = idle
        .into_iter()
        .take(excess)
        .filter(|revision| !revision.metadata.is_deleting());
    doomed
        .map(|revision| Action::Delete(Delete::new(&CONTROLLER_REVISION, &revision.metadata)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_has_the_content_and_the_hash_that_upstream_gives_it() {
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "command": ["sh", "-c", "a && b > c"]}]},
        });
        let data = data(&template);
        assert_eq!(
            data.to_string(),
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"command":["sh","-c","a && b > c"],"name":"web"}]}}}}"#
        );
        assert_ne!(hash(&data, 0), hash(&data, 1));
        assert_eq!(escaped("a && b > c"), "a \\u0026\\u0026 b \\u003e c");
    }

    /// The names that kube-controller-manager v1.36.4 gave to revisions of these templates.
    #[test]
    fn hashes_are_upstreams() {
        let template = |command: &str, rest: Value| {
            let mut container = json!({
                "name": "web", "image": "x:1", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", command],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            });
            container["resources"] = rest;
            json!({
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
                    "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
                },
            })
        };
        let requests = json!({"requests": {"cpu": "100m"}});
        assert_eq!(hash(&data(&template("sleep 1000", requests.clone())), 0), "88b4b88c8");
        assert_eq!(hash(&data(&template("a && b > c", requests)), 0), "7549f6857f");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(name("web", "abc"), "web-abc");
        assert_eq!(name(&"x".repeat(250), "abc").len(), 227);
    }
}
