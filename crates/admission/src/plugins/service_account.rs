//! Gives every pod an account, and its containers the token of that account.

mod mountable_secrets;

use std::sync::Arc;

use api::kinds::pod::POD;
use api::kinds::service_account::SERVICE_ACCOUNT;
use api::{Error, Fields, Value};
use async_trait::async_trait;
use serde_json::json;

use crate::{Attributes, Lookup, Operation, Plugin};

/// `suffix` makes the end of the token volume's name.
pub struct ServiceAccount {
    pub suffix: fn() -> String,
}

const DEFAULT_ACCOUNT: &str = "default";
const MIRROR_POD: &str = "kubernetes.io/config.mirror";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and a little, so that a token can be told from one that a user asked for.
const TOKEN_SECONDS: i64 = 3607;
/// Letters and digits that cannot spell a word.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

impl Default for ServiceAccount {
    fn default() -> ServiceAccount {
        ServiceAccount { suffix: random_suffix }
    }
}

#[async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        is_new_pod(attributes)
            || attributes.operation == Operation::Update && attributes.is(&POD, "ephemeralcontainers")
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        // A mirror pod shows what its kubelet already runs, so changing it would be a lie.
        if !is_new_pod(attributes) || is_mirror(&attributes.object) {
            return Ok(());
        }
        let spec = attributes.object.ensure("spec");
        spec.fill("serviceAccountName", DEFAULT_ACCOUNT);
        let name = spec.text("serviceAccountName").to_owned();
        spec.set("serviceAccount", name.as_str());
        let account = account(attributes, &name, lookup).await?;
        let spec = attributes.object.ensure("spec");
        let pod_wish = spec["automountServiceAccountToken"].as_bool();
        if pod_wish
            .or(account["automountServiceAccountToken"].as_bool())
            .unwrap_or(true)
        {
            mount_token(spec, self.suffix);
        }
        let pull_secrets = account.list("imagePullSecrets");
        if spec.list("imagePullSecrets").is_empty() && !pull_secrets.is_empty() {
            let names: Vec<Value> = pull_secrets
                .iter()
                .map(|secret| json!({"name": secret.text("name")}))
                .collect();
            spec.set("imagePullSecrets", names);
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let spec = &attributes.object["spec"];
        let name = spec.text("serviceAccountName");
        let is_new = is_new_pod(attributes);
        if is_new && is_mirror(&attributes.object) {
            return validate_mirror(spec).map_err(|why| attributes.forbidden(why));
        }
        if name.is_empty() {
            let pod = attributes.object["metadata"].text("name");
            let why = format!("no service account specified for pod {}/{pod}", attributes.namespace);
            return Err(attributes.forbidden(why));
        }
        let account = account(attributes, name, lookup).await?;
        let checked = match is_new {
            true => mountable_secrets::validate_pod(&account, spec),
            false => mountable_secrets::validate_ephemeral_containers(&account, spec),
        };
        checked.map_err(|why| attributes.forbidden(why))
    }
}

/// Otherwise it is one that gets ephemeral containers.
fn is_new_pod(attributes: &Attributes) -> bool {
    attributes.operation == Operation::Create && attributes.is(&POD, "")
}

async fn account(attributes: &Attributes, name: &str, lookup: &dyn Lookup) -> Result<Arc<Value>, Error> {
    let namespace = attributes.namespace.as_str();
    // The default account of a new namespace is made by a controller; a pod that follows at once waits for it.
    let found = match name {
        DEFAULT_ACCOUNT => lookup.get_soon(&SERVICE_ACCOUNT, namespace, name).await,
        _ => lookup.get(&SERVICE_ACCOUNT, namespace, name),
    };
    found.ok_or_else(|| {
        attributes.forbidden(format!(
            "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
        ))
    })
}

/// Mounts the token into every container that has nothing else at its place.
fn mount_token(spec: &mut Value, suffix: fn() -> String) {
    let volumes = spec.list("volumes");
    let existing = volumes
        .iter()
        .map(|volume| volume.text("name"))
        .find(|name| name.starts_with(VOLUME_PREFIX));
    let is_new = existing.is_none();
    let name = existing.map_or_else(|| format!("{VOLUME_PREFIX}{}", suffix()), str::to_owned);
    let mount = json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH});
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in spec.list_mut(list) {
            if container
                .list("volumeMounts")
                .iter()
                .any(|mount| mount.text("mountPath") == MOUNT_PATH)
            {
                continue;
            }
            needed = true;
            push(container, "volumeMounts", mount.clone());
        }
    }
    if needed && is_new {
        push(spec, "volumes", token_volume(&name));
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{
                    "path": "namespace",
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                }]}},
            ],
        },
    })
}

fn push(object: &mut Value, field: &str, item: Value) {
    let mut items = object.list(field).to_vec();
    items.push(item);
    object.set(field, items);
}

fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].has(MIRROR_POD)
}

/// A kubelet could otherwise help itself to secrets by claiming that it runs a pod with them.
fn validate_mirror(spec: &Value) -> Result<(), &'static str> {
    if !spec.text("serviceAccountName").is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    let containers = ["containers", "initContainers", "ephemeralContainers"];
    let in_containers = containers.iter().flat_map(|list| spec.list(list)).any(|container| {
        container
            .list("env")
            .iter()
            .any(|variable| variable["valueFrom"].has("secretKeyRef"))
            || container.list("envFrom").iter().any(|source| source.has("secretRef"))
    });
    let projections = || {
        spec.list("volumes")
            .iter()
            .flat_map(|volume| volume["projected"].list("sources"))
    };
    let in_volumes = spec.list("volumes").iter().any(|volume| volume.has("secret"))
        || projections().any(|source| source.has("secret"));
    if in_containers || in_volumes || !spec.list("imagePullSecrets").is_empty() {
        return Err("a mirror pod may not reference secrets");
    }
    if projections().any(|source| source.has("serviceAccountToken")) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

fn random_suffix() -> String {
    clock::random_bytes()[..SUFFIX_LENGTH]
        .iter()
        .map(|byte| SUFFIX_ALPHABET[*byte as usize % SUFFIX_ALPHABET.len()] as char)
        .collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::{Cluster, create, pod, run, update};

    const PLUGIN: ServiceAccount = ServiceAccount {
        suffix: || "x2b4c".to_owned(),
    };

    fn cluster(account: Value) -> Cluster {
        let mut object = json!({"metadata": {"name": "default", "namespace": "default"}});
        object
            .as_object_mut()
            .unwrap()
            .extend(account.as_object().unwrap().clone());
        Cluster(vec![(&SERVICE_ACCOUNT, object)])
    }

    #[test]
    fn a_pod_gets_the_default_account_and_its_token() {
        let admitted = run(
            &PLUGIN,
            create(&POD, pod(json!({"containers": [{"name": "main"}]}))),
            &cluster(json!({})),
        );
        expect![[r#"
            {
              "containers": [
                {
                  "name": "main",
                  "volumeMounts": [
                    {
                      "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                      "name": "kube-api-access-x2b4c",
                      "readOnly": true
                    }
                  ]
                }
              ],
              "serviceAccount": "default",
              "serviceAccountName": "default",
              "volumes": [
                {
                  "name": "kube-api-access-x2b4c",
                  "projected": {
                    "defaultMode": 420,
                    "sources": [
                      {
                        "serviceAccountToken": {
                          "expirationSeconds": 3607,
                          "path": "token"
                        }
                      },
                      {
                        "configMap": {
                          "items": [
                            {
                              "key": "ca.crt",
                              "path": "ca.crt"
                            }
                          ],
                          "name": "kube-root-ca.crt"
                        }
                      },
                      {
                        "downwardAPI": {
                          "items": [
                            {
                              "fieldRef": {
                                "apiVersion": "v1",
                                "fieldPath": "metadata.namespace"
                              },
                              "path": "namespace"
                            }
                          ]
                        }
                      }
                    ]
                  }
                }
              ]
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&admitted.unwrap()["spec"]).unwrap());
    }

    #[test]
    fn pod_and_account_can_decline_the_token() {
        let spec = json!({"containers": [{"name": "main"}], "automountServiceAccountToken": false});
        let admitted = run(&PLUGIN, create(&POD, pod(spec)), &cluster(json!({}))).unwrap();
        assert!(!admitted["spec"].has("volumes"));
        let account = json!({"automountServiceAccountToken": false, "imagePullSecrets": [{"name": "registry"}]});
        let admitted = run(
            &PLUGIN,
            create(&POD, pod(json!({"containers": [{}]}))),
            &cluster(account),
        )
        .unwrap();
        assert!(!admitted["spec"].has("volumes"));
        assert_eq!(admitted["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    }

    #[test]
    fn the_account_must_exist_and_a_mirror_pod_has_none() {
        let robot = pod(json!({"serviceAccountName": "robot"}));
        expect![[r#"pods "web" is forbidden: error looking up service account default/robot: serviceaccount "robot" not found"#]]
            .assert_eq(&run(&PLUGIN, create(&POD, robot), &cluster(json!({}))).unwrap_err());
        let mut mirror = pod(json!({"volumes": [{"name": "s", "secret": {"secretName": "s"}}]}));
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
        expect![[r#"pods "web" is forbidden: a mirror pod may not reference secrets"#]]
            .assert_eq(&run(&PLUGIN, create(&POD, mirror), &cluster(json!({}))).unwrap_err());
    }

    #[test]
    fn ephemeral_containers_have_only_secrets_that_the_account_lists() {
        let enforced = json!({"name": "default", "namespace": "default",
            "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}});
        let cluster = cluster(json!({"metadata": enforced, "secrets": [{"name": "own"}]}));
        // The pod's volume is older than the annotation, and is not asked about again.
        let spec = |secret: &str| {
            json!({
                "serviceAccountName": "default",
                "volumes": [{"name": "v", "secret": {"secretName": "other"}}],
                "ephemeralContainers": [{"name": "debug", "envFrom": [{"secretRef": {"name": secret}}]}],
            })
        };
        let with = |secret: &str| {
            let mut attributes = update(&POD, pod(spec("own")), pod(spec(secret)));
            attributes.subresource = "ephemeralcontainers".to_owned();
            run(&PLUGIN, attributes, &cluster)
        };
        assert_eq!(with("own").unwrap(), pod(spec("own")));
        expect![[r#"pods "web" is forbidden: ephemeral container debug with envFrom referencing secret.secretName="other" is not allowed because service account default does not reference that secret"#]]
            .assert_eq(&with("other").unwrap_err());
        expect![[r#"pods "web" is forbidden: volume with secret.secretName="other" is not allowed because service account default does not reference that secret"#]]
            .assert_eq(&run(&PLUGIN, create(&POD, pod(spec("own"))), &cluster).unwrap_err());
        let plain = update(&POD, pod(spec("own")), pod(spec("other")));
        assert!(
            run(&PLUGIN, plain, &cluster).is_ok(),
            "other changes of a pod are not asked about"
        );
    }
}
