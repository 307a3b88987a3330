//! A static pod's manifest: read strictly, completed and checked as the API server would, named for its node.

use api::{Fields, kinds};
use ring::digest;
use schema::Value;
use serde_json::json;

use crate::pod::{self, Pod};

/// Where a manifest comes from, as the pod's annotation names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// `file` or `http`.
    pub source: &'static str,
    /// The path or the URL.
    pub location: &'a str,
    pub node_name: &'a str,
}

/// A pod that this node was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// What its workers, directories and containers know it by; follows from the manifest unless that names one.
    pub uid: String,
    pub pod: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("{0}")]
    Decode(String),
    #[error("{api_version:?}, Kind={kind} is not a v1 Pod")]
    Kind { api_version: String, kind: String },
    #[error("invalid pod: {0}")]
    Invalid(String),
    /// In upstream's words.
    #[error("static pods may not reference {0}")]
    Reference(&'static str),
}

/// One pod, as files have it.
pub fn decode(data: &[u8], origin: Origin<'_>) -> Result<Manifest, ManifestError> {
    one(parse(data)?, origin)
}

/// One pod or a PodList, as URLs may have it. One bad pod makes the whole list bad, for nobody can say what is missing.
pub fn decode_all(data: &[u8], origin: Origin<'_>) -> Result<Vec<Manifest>, ManifestError> {
    let mut value = parse(data)?;
    if value.text("kind") != "PodList" {
        return Ok(vec![one(value, origin)?]);
    }
    let items = match value["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let items = items.into_iter().map(|mut item| {
        item.fill("apiVersion", "v1");
        item.fill("kind", "Pod");
        one(item, origin)
    });
    items.collect()
}

impl Manifest {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        let metadata = &self.pod["metadata"];
        format!("{}/{}", metadata.text("namespace"), metadata.text("name"))
    }

    /// Whether an object of the API stands for this very pod.
    pub fn is_mirrored_by(&self, pod: &Pod) -> bool {
        pod.metadata.annotations.get(pod::MIRROR) == Some(&self.uid) && !pod.is_deleting()
    }
}

fn parse(data: &[u8]) -> Result<Value, ManifestError> {
    schema::parse_yaml(data).map_err(|error| ManifestError::Decode(error.to_string()))
}

fn one(mut pod: Value, origin: Origin<'_>) -> Result<Manifest, ManifestError> {
    if (pod.text("apiVersion"), pod.text("kind")) != ("v1", "Pod") {
        return Err(ManifestError::Kind {
            api_version: pod.text("apiVersion").to_owned(),
            kind: pod.text("kind").to_owned(),
        });
    }
    let decode = |error: schema::DecodeError| ManifestError::Decode(error.to_string());
    let ty = schema::builtin().object("v1", "Pod");
    let ty = ty.ok_or_else(|| ManifestError::Decode("pods have no schema".to_owned()))?;
    schema::normalize(ty, &mut pod).map_err(decode)?;
    let uid = name_for_node(&mut pod, origin);
    schema::apply_table_defaults(ty, &mut pod);
    let rules = kinds::pod::POD.rules;
    rules.default(&mut pod);
    schema::normalize(ty, &mut pod).map_err(decode)?;
    let mut problems = api::validate_metadata(&kinds::pod::POD, &pod);
    problems.extend(rules.validate(&pod));
    if let Some(references) = referenced_objects(&pod["spec"]) {
        return Err(ManifestError::Reference(references));
    }
    if !problems.is_empty() {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(ManifestError::Invalid(problems.join(", ")));
    }
    Ok(Manifest { uid, pod })
}

/// Gives the pod what tells it from those of other nodes and other manifests; the result is its UID.
fn name_for_node(pod: &mut Value, origin: Origin<'_>) -> String {
    let node = origin.node_name.to_lowercase();
    pod["status"] = json!({"phase": "Pending"});
    let metadata = pod.ensure("metadata");
    let given = metadata.text("uid").to_owned();
    let name = format!("{}-{node}", metadata.text("name"));
    metadata.fill("namespace", "default");
    metadata["name"] = json!(name);
    pod.ensure("spec")["nodeName"] = json!(origin.node_name);
    let uid = match given.is_empty() {
        false => given,
        true => uid_of(pod, origin),
    };
    let metadata = pod.ensure("metadata");
    metadata["uid"] = json!(uid);
    let annotations = metadata.ensure("annotations");
    annotations[pod::CONFIG_HASH] = json!(uid);
    annotations[pod::CONFIG_SOURCE] = json!(origin.source);
    if origin.source == super::source::FILE {
        tolerate_all(pod.ensure("spec"));
    }
    uid
}

/// Different for different contents, places and nodes, and the same after a restart.
fn uid_of(pod: &Value, origin: Origin<'_>) -> String {
    let text = format!("{}\n{}\n{}\n{pod}", origin.node_name, origin.source, origin.location);
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Problems of the node do not end what the node itself is made of.
fn tolerate_all(spec: &mut Value) {
    let every = json!({"operator": "Exists", "effect": "NoExecute"});
    let mut tolerations = spec.list("tolerations").to_vec();
    if !tolerations.contains(&every) {
        tolerations.push(every);
    }
    spec["tolerations"] = Value::Array(tolerations);
}

/// What of the API a pod's spec refers to, which nobody has allowed it to: the plural that upstream's message has.
fn referenced_objects(spec: &Value) -> Option<&'static str> {
    if !spec.text("serviceAccountName").is_empty() || !spec.text("serviceAccount").is_empty() {
        return Some("serviceaccounts");
    }
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers = || lists.into_iter().flat_map(|list| spec.list(list));
    let env = |field: &str| {
        containers().any(|container| {
            let mut variables = container.list("env").iter();
            variables.any(|variable| variable["valueFrom"].has(&format!("{field}KeyRef")))
                || container
                    .list("envFrom")
                    .iter()
                    .any(|from| from.has(&format!("{field}Ref")))
        })
    };
    let volumes = || spec.list("volumes").iter();
    let projected = |field: &str| {
        let mut sources = volumes().flat_map(|volume| volume["projected"].list("sources"));
        sources.any(|source| source.has(field))
    };
    let any = |field: &str| volumes().any(|volume| volume.has(field));
    let volume_secrets = ["azureFile"].into_iter().any(any)
        || volumes().any(|volume| {
            let sources = volume.as_object().into_iter().flatten();
            let mut sources = sources.map(|(_, source)| source);
            sources.any(|source| source.has("secretRef") || source.has("nodePublishSecretRef"))
        });
    let found = [
        (
            env("secret")
                || any("secret")
                || projected("secret")
                || volume_secrets
                || !spec.list("imagePullSecrets").is_empty(),
            "secrets",
        ),
        (
            env("configMap") || any("configMap") || projected("configMap"),
            "configmaps",
        ),
        (!spec.list("resourceClaims").is_empty(), "resourceclaims"),
        (
            any("persistentVolumeClaim") || any("ephemeral"),
            "persistentvolumeclaims",
        ),
        (projected("serviceAccountToken"), "serviceaccounts"),
        (projected("clusterTrustBundle"), "clustertrustbundles"),
        (projected("podCertificate"), "podcertificates"),
        (any("csi"), "csidrivers"),
    ];
    found.into_iter().find(|(refers, _)| *refers).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const ORIGIN: Origin<'_> = Origin {
        source: "file",
        location: "/etc/kubernetes/manifests/web.yaml",
        node_name: "node-1",
    };
    const WEB: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: b}]}}";

    fn refused(text: &str, expected: Expect) {
        expected.assert_eq(&decode(text.as_bytes(), ORIGIN).unwrap_err().to_string());
    }

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node() {
        let manifest = decode(WEB.as_bytes(), ORIGIN).unwrap();
        let (metadata, spec) = (&manifest.pod["metadata"], &manifest.pod["spec"]);
        assert_eq!(manifest.key(), "default/web-node-1");
        assert_eq!(spec["nodeName"], "node-1");
        assert_eq!(metadata["annotations"]["kubernetes.io/config.source"], "file");
        assert_eq!(metadata["annotations"]["kubernetes.io/config.hash"], manifest.uid);
        assert_eq!(spec["restartPolicy"], "Always", "defaults are the API server's");
        assert_eq!(
            spec["tolerations"],
            json!([{"operator": "Exists", "effect": "NoExecute"}])
        );
    }

    #[test]
    fn the_same_manifest_is_the_same_pod_and_another_is_another() {
        let uid = |text: &str, origin: Origin<'_>| decode(text.as_bytes(), origin).unwrap().uid;
        let first = uid(WEB, ORIGIN);
        assert_eq!((first.len(), &uid(WEB, ORIGIN)), (32, &first));
        assert_ne!(uid(&WEB.replace("image: b", "image: c"), ORIGIN), first);
        let elsewhere = Origin {
            location: "/other.yaml",
            ..ORIGIN
        };
        assert_ne!(uid(WEB, elsewhere), first);
        assert_eq!(uid(&WEB.replace("name: web", "name: web, uid: own"), ORIGIN), "own");
    }

    #[test]
    fn what_is_no_valid_pod_is_refused() {
        refused(
            "{apiVersion: apps/v1, kind: Deployment}",
            expect![[r#""apps/v1", Kind=Deployment is not a v1 Pod"#]],
        );
        refused(
            &WEB.replace("name: a, ", ""),
            expect!["invalid pod: spec.containers[0].name: Required value"],
        );
        assert!(decode(b"{", ORIGIN).is_err() && decode(b"", ORIGIN).is_err() && decode(b"[]", ORIGIN).is_err());
        let escape = WEB.replace("name: web", "name: ../web");
        assert!(matches!(
            decode(escape.as_bytes(), ORIGIN),
            Err(ManifestError::Invalid(_))
        ));
    }

    #[test]
    fn nothing_of_the_api_is_within_reach() {
        let with = |more: &str| WEB.replace("spec: {", &format!("spec: {{{more}, "));
        let volume = |source: &str| with(&format!("volumes: [{{name: v, {source}}}]"));
        for (text, what) in [
            (with("serviceAccountName: admin"), "serviceaccounts"),
            (with("imagePullSecrets: [{name: s}]"), "secrets"),
            (volume("secret: {secretName: s}"), "secrets"),
            (volume("configMap: {name: s}"), "configmaps"),
            (volume("projected: {sources: [{secret: {name: s}}]}"), "secrets"),
            (
                volume("projected: {sources: [{serviceAccountToken: {path: t}}]}"),
                "serviceaccounts",
            ),
            (
                volume("persistentVolumeClaim: {claimName: s}"),
                "persistentvolumeclaims",
            ),
            (
                WEB.replace("image: b", "image: b, envFrom: [{secretRef: {name: s}}]"),
                "secrets",
            ),
            (
                WEB.replace(
                    "image: b",
                    "image: b, env: [{name: A, valueFrom: {configMapKeyRef: {name: s, key: k}}}]",
                ),
                "configmaps",
            ),
        ] {
            let error = decode(text.as_bytes(), ORIGIN).unwrap_err();
            assert_eq!(error, ManifestError::Reference(what), "{text}");
        }
        assert!(decode(volume("hostPath: {path: /etc}").as_bytes(), ORIGIN).is_ok());
    }

    #[test]
    fn a_url_may_give_a_list() {
        let list = format!(
            "{{apiVersion: v1, kind: PodList, items: [{WEB}, {}]}}",
            WEB.replace("web", "db")
        );
        let origin = Origin {
            source: "http",
            ..ORIGIN
        };
        let keys: Vec<String> = decode_all(list.as_bytes(), origin)
            .unwrap()
            .iter()
            .map(Manifest::key)
            .collect();
        assert_eq!(keys, ["default/web-node-1", "default/db-node-1"]);
        assert_eq!(decode_all(WEB.as_bytes(), origin).unwrap().len(), 1);
    }
}
