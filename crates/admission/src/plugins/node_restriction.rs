//! Holds a kubelet to its own node and the pods bound to it, where the authorizer cannot see the object.

mod references;
mod volumes;

use std::sync::Arc;

use api::kinds::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST;
use api::kinds::csi_node::CSI_NODE;
use api::kinds::lease::LEASE;
use api::kinds::node::NODE;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::resource_slice::RESOURCE_SLICE;
use api::kinds::service_account::SERVICE_ACCOUNT;
use api::{Error, Fields, Value};
use async_trait::async_trait;
use auth::{Attributes as Question, Authorizer, Decision};

use super::certificates::common_name;
use crate::{Attributes, Lookup, Operation, Plugin};

pub struct NodeRestriction(pub Arc<dyn Authorizer>);

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
const MIRROR_POD: &str = "kubernetes.io/config.mirror";
const NODE_LEASES: &str = "kube-node-lease";
/// The labels in Kubernetes' own domains that a kubelet may set on its node.
const KUBELET_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const KUBELET_LABEL_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const RESTRICTED_LABEL_DOMAIN: &str = "node-restriction.kubernetes.io";

#[async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.user.node_name().is_some()
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let Some(node) = attributes.user.node_name() else {
            return Ok(());
        };
        let decision = if attributes.concerns(&POD) {
            decide_pod(node, attributes, lookup)
        } else if attributes.concerns(&NODE) {
            decide_node(node, attributes)
        } else if attributes.concerns(&PERSISTENT_VOLUME_CLAIM) && attributes.subresource != "status" {
            Err("may only update PVC status".to_owned())
        } else if attributes.concerns(&PERSISTENT_VOLUME_CLAIM) {
            decide_claim_status(node, attributes)
        } else if attributes.concerns(&PERSISTENT_VOLUME) {
            volumes::decide(node, attributes)
        } else if attributes.is(&SERVICE_ACCOUNT, "token") && attributes.operation == Operation::Create {
            decide_token(node, attributes, lookup, self.0.as_ref())
        } else if attributes.concerns(&LEASE) && attributes.namespace != NODE_LEASES {
            Err(format!(
                "can only access leases in the {NODE_LEASES:?} system namespace"
            ))
        } else if attributes.concerns(&LEASE) {
            decide_own_name(node, attributes, "node lease")
        } else if attributes.concerns(&CSI_NODE) {
            decide_own_name(node, attributes, "CSINode")
        } else if attributes.concerns(&RESOURCE_SLICE) {
            decide_slice(node, attributes)
        } else if attributes.concerns(&CERTIFICATE_SIGNING_REQUEST) && attributes.operation == Operation::Create {
            decide_certificate(node, attributes)
        } else {
            Ok(())
        };
        decision.map_err(|why| attributes.forbidden(why))
    }
}

fn decide_pod(node: &str, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), String> {
    let is_own = |pod: &Value| pod["spec"].text("nodeName") == node;
    let existing = || {
        lookup
            .get(&POD, &attributes.namespace, &attributes.name)
            .unwrap_or_default()
    };
    match (attributes.subresource.as_str(), attributes.operation) {
        ("", Operation::Create) => decide_mirror_pod(node, attributes, lookup),
        ("", Operation::Delete) if is_own(&existing()) => Ok(()),
        ("", Operation::Delete) => Err(format!(
            "node {node:?} can only delete pods with spec.nodeName set to itself"
        )),
        ("status", Operation::Update) if !is_own(&attributes.old_object) => Err(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        )),
        ("status", Operation::Update) => {
            let (old, new) = (&attributes.old_object, &attributes.object);
            if old["metadata"]["labels"] != new["metadata"]["labels"] {
                return Err(format!("node {node:?} cannot update labels through pod status"));
            }
            if old["status"]["resourceClaimStatuses"] != new["status"]["resourceClaimStatuses"] {
                return Err(format!("node {node:?} cannot update resource claim statues"));
            }
            if old["status"]["extendedResourceClaimStatus"] != new["status"]["extendedResourceClaimStatus"] {
                return Err(format!("node {node:?} cannot update extended resource claim status"));
            }
            Ok(())
        }
        ("eviction", Operation::Create) if is_own(&existing()) => Ok(()),
        ("eviction", Operation::Create) => Err(format!(
            "node {node} can only evict pods with spec.nodeName set to itself"
        )),
        ("" | "status" | "eviction", operation) => Err(format!(
            "unexpected operation \"{}\", node {node:?} can only create and delete mirror pods",
            format!("{operation:?}").to_uppercase()
        )),
        (other, _) => Err(format!(
            "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
        )),
    }
}

fn decide_mirror_pod(node: &str, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), String> {
    let metadata = &attributes.object["metadata"];
    if !metadata["annotations"].has(MIRROR_POD) {
        return Err(format!(
            "pod does not have {MIRROR_POD:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if attributes.object["spec"].text("nodeName") != node {
        return Err(format!(
            "node {node:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    let owner = match metadata.list("ownerReferences") {
        [] => {
            return Err(format!(
                "node {node:?} can only create pods with an owner reference set to itself"
            ));
        }
        [owner] => owner,
        _ => {
            return Err(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        }
    };
    if (owner.text("apiVersion"), owner.text("kind"), owner.text("name")) != ("v1", "Node", node) {
        return Err(format!(
            "node {node:?} can only create pods with an owner reference set to itself"
        ));
    }
    if !owner.flag("controller") {
        return Err(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner.flag("blockOwnerDeletion") {
        return Err(format!(
            "node {node:?} must not set blockOwnerDeletion on an owner reference"
        ));
    }
    let held = lookup
        .get(&NODE, "", node)
        .ok_or_else(|| format!("nodes {node:?} not found"))?;
    let (claimed, actual) = (owner.text("uid"), held["metadata"].text("uid"));
    if claimed != actual {
        return Err(format!("node {node} UID mismatch: expected {claimed} got {actual}"));
    }
    // A kubelet sees everything that its pods refer to, so that it could help itself to any Secret by such a pod.
    match references::referenced_resource(&attributes.object) {
        Some(resource) => Err(format!("node {node:?} can not create pods that reference {resource}")),
        None => Ok(()),
    }
}

fn decide_node(node: &str, attributes: &Attributes) -> Result<(), String> {
    let (old, new) = (&attributes.old_object, &attributes.object);
    let requested = match attributes.name.as_str() {
        "" => new["metadata"].text("name"),
        name => name,
    };
    if requested != node {
        return Err(format!("node {node:?} is not allowed to modify node {requested:?}"));
    }
    let forbidden = forbidden_labels(&new["metadata"]["labels"], &old["metadata"]["labels"]);
    match attributes.operation {
        Operation::Create if !forbidden.is_empty() => Err(format!(
            "node {node:?} is not allowed to set the following labels: {}",
            forbidden.join(", ")
        )),
        Operation::Update if old["spec"]["taints"] != new["spec"]["taints"] => {
            Err(format!("node {node:?} is not allowed to modify taints"))
        }
        Operation::Update if old["metadata"]["ownerReferences"] != new["metadata"]["ownerReferences"] => {
            Err(format!("node {node:?} is not allowed to modify ownerReferences"))
        }
        Operation::Update if !forbidden.is_empty() => {
            Err(format!("is not allowed to modify labels: {}", forbidden.join(", ")))
        }
        _ => Ok(()),
    }
}

/// The changed labels that a kubelet may not touch: with them it could draw pods of trusted workloads to itself.
fn forbidden_labels<'a>(new: &'a Value, old: &'a Value) -> Vec<&'a str> {
    let keys = |labels: &'a Value| labels.as_object().into_iter().flat_map(|labels| labels.keys());
    let mut changed: Vec<&str> = keys(new)
        .chain(keys(old))
        .filter(|key| new[*key] != old[*key])
        .map(String::as_str)
        .collect();
    changed.sort_unstable();
    changed.dedup();
    changed.retain(|key| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let within = |of: &str| domain == of || domain.strip_suffix(of).is_some_and(|rest| rest.ends_with('.'));
        let is_ours = within("kubernetes.io") || within("k8s.io");
        let allowed = KUBELET_LABELS.contains(key) || KUBELET_LABEL_DOMAINS.iter().any(|of| within(of));
        within(RESTRICTED_LABEL_DOMAIN) || is_ours && !allowed
    });
    changed
}

fn decide_claim_status(node: &str, attributes: &Attributes) -> Result<(), String> {
    let strip = |claim: &Value| {
        let mut claim = claim.clone();
        let metadata = claim.ensure("metadata");
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        for field in [
            "capacity",
            "conditions",
            "allocatedResources",
            "allocatedResourceStatuses",
        ] {
            claim.ensure("status").remove(field);
        }
        claim
    };
    if strip(&attributes.old_object) == strip(&attributes.object) {
        return Ok(());
    }
    Err(format!(
        "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
    ))
}

/// A kubelet gets tokens only for the pods that it runs.
fn decide_token(
    node: &str,
    attributes: &Attributes,
    lookup: &dyn Lookup,
    authorizer: &dyn Authorizer,
) -> Result<(), String> {
    let bound = &attributes.object["spec"]["boundObjectRef"];
    let (name, uid) = (bound.text("name"), bound.text("uid"));
    if bound.text("apiVersion") != "v1" || bound.text("kind") != "Pod" || name.is_empty() {
        return Err("node requested token not bound to a pod".to_owned());
    }
    if uid.is_empty() {
        return Err("node requested token with a pod binding without a uid".to_owned());
    }
    let pod = lookup
        .get(&POD, &attributes.namespace, name)
        .ok_or_else(|| format!("pods {name:?} not found"))?;
    if pod["metadata"].text("uid") != uid {
        return Err(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        ));
    }
    if pod["spec"].text("nodeName") != node {
        return Err("node requested token bound to a pod scheduled on a different node".to_owned());
    }
    decide_audience(&pod, attributes, lookup, authorizer)
}

/// A token is for an audience that a volume of the pod names, or that somebody allowed the node by a role.
fn decide_audience(
    pod: &Value,
    attributes: &Attributes,
    lookup: &dyn Lookup,
    authorizer: &dyn Authorizer,
) -> Result<(), String> {
    let audience = match attributes.object["spec"].list("audiences") {
        [] => "",
        [audience] => audience.as_str().unwrap_or_default(),
        _ => return Err("node may only request 0 or 1 audiences".to_owned()),
    };
    if references::needs_audience(pod, audience, lookup) {
        return Ok(());
    }
    let verb = "request-serviceaccounts-token-audience";
    let question = Question {
        version: "v1",
        ..Question::resource(&attributes.user, verb, "", audience).named(&attributes.namespace, &attributes.name)
    };
    match authorizer.authorize(&question) {
        Decision::Allow(_) => Ok(()),
        _ => Err(format!(
            "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
            attributes.user.name
        )),
    }
}

/// A kubelet asks for certificates of its own node only.
fn decide_certificate(node: &str, attributes: &Attributes) -> Result<(), String> {
    let spec = &attributes.object["spec"];
    if ![CLIENT_SIGNER, SERVING_SIGNER].contains(&spec.text("signerName")) {
        return Ok(());
    }
    let subject = common_name(spec.text("request")).ok_or("unable to parse csr")?;
    match subject.strip_prefix("system:node:") == Some(node) {
        true => Ok(()),
        false => Err(format!("can only create a node CSR with CN=system:node:{node}")),
    }
}

fn decide_own_name(node: &str, attributes: &Attributes, kind: &str) -> Result<(), String> {
    let name = match attributes.operation {
        Operation::Create => attributes.object["metadata"].text("name"),
        _ => attributes.name.as_str(),
    };
    if name == node {
        return Ok(());
    }
    Err(format!(
        "can only access {kind} with the same name as the requesting node"
    ))
}

fn decide_slice(node: &str, attributes: &Attributes) -> Result<(), String> {
    let (slice, verb) = match attributes.operation {
        Operation::Create => (&attributes.object, "create"),
        Operation::Delete => (&attributes.old_object, "delete"),
        Operation::Update | Operation::Connect => return Ok(()),
    };
    if slice["spec"].text("nodeName") == node {
        return Ok(());
    }
    Err(format!(
        "can only {verb} ResourceSlice with the same NodeName as the requesting node"
    ))
}

#[cfg(test)]
mod tests {
    use api::kinds::csi_driver::CSI_DRIVER;
    use auth::User;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, pod, run, update};

    /// A role lets nodes ask for tokens of the audience "vault".
    struct AudienceRole;

    impl Authorizer for AudienceRole {
        fn authorize(&self, question: &Question) -> Decision {
            let asked = (question.verb, question.resource, question.namespace, question.name);
            match asked == ("request-serviceaccounts-token-audience", "vault", "default", "robot") {
                true => Decision::Allow(String::new()),
                false => Decision::NoOpinion(String::new()),
            }
        }
    }

    fn check(attributes: Attributes, expect: Expect) {
        let pods = [("web", "one"), ("other", "two")].map(|(name, node)| {
            let metadata = json!({"name": name, "namespace": "default", "uid": format!("{name}-uid")});
            let token = json!({"serviceAccountToken": {"audience": "bank"}});
            let volumes = json!([
                {"name": "api", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}, token]}},
                {"name": "data", "csi": {"driver": "driver.example"}},
            ]);
            (
                &POD,
                json!({"metadata": metadata, "spec": {"nodeName": node, "volumes": volumes}}),
            )
        });
        let driver = json!({"metadata": {"name": "driver.example"}, "spec": {"tokenRequests": [{"audience": "disk"}]}});
        let node = json!({"metadata": {"name": "one", "uid": "one-uid"}});
        let objects = pods.into_iter().chain([(&CSI_DRIVER, driver), (&NODE, node)]).collect();
        let attributes = Attributes {
            user: User::system("system:node:one", &["system:nodes"]),
            ..attributes
        };
        let plugin = NodeRestriction(Arc::new(AudienceRole));
        let shown = match run(&plugin, attributes, &Cluster(objects)) {
            Ok(_) => "fine".to_owned(),
            Err(why) => why,
        };
        expect.assert_eq(&shown);
    }

    #[test]
    fn a_kubelet_changes_its_own_node_within_bounds() {
        let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
        check(
            create(
                &NODE,
                node("one", json!({"kubernetes.io/hostname": "one", "team": "a"})),
            ),
            expect!["fine"],
        );
        check(
            create(&NODE, node("two", json!({}))),
            expect![[r#"nodes "two" is forbidden: node "one" is not allowed to modify node "two""#]],
        );
        check(
            create(&NODE, node("one", json!({"node-role.kubernetes.io/control-plane": ""}))),
            expect![[
                r#"nodes "one" is forbidden: node "one" is not allowed to set the following labels: node-role.kubernetes.io/control-plane"#
            ]],
        );
        let mut tainted = node("one", json!({}));
        tainted["spec"] = json!({"taints": [{"key": "x"}]});
        check(
            update(&NODE, tainted, node("one", json!({}))),
            expect![[r#"nodes "one" is forbidden: node "one" is not allowed to modify taints"#]],
        );
    }

    #[test]
    fn a_kubelet_speaks_for_the_pods_it_runs() {
        check(
            create(&POD, pod(json!({"nodeName": "one"}))),
            expect![[
                r#"pods "web" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "one" can only create mirror pods"#
            ]],
        );
        let delete = |name: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "default"}});
            Attributes {
                operation: Operation::Delete,
                ..create(&POD, object)
            }
        };
        check(delete("web"), expect!["fine"]);
        check(
            delete("other"),
            expect![[r#"pods "other" is forbidden: node "one" can only delete pods with spec.nodeName set to itself"#]],
        );
        let token = |pod: &str| {
            let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": format!("{pod}-uid")});
            let object =
                json!({"metadata": {"name": "robot", "namespace": "default"}, "spec": {"boundObjectRef": bound}});
            Attributes {
                subresource: "token".to_owned(),
                ..create(&SERVICE_ACCOUNT, object)
            }
        };
        check(token("web"), expect!["fine"]);
        let for_audiences = |audiences: Value| {
            let mut attributes = token("web");
            attributes.object["spec"]["audiences"] = audiences;
            attributes
        };
        check(for_audiences(json!(["bank"])), expect!["fine"]);
        check(for_audiences(json!(["disk"])), expect!["fine"]);
        check(for_audiences(json!(["vault"])), expect!["fine"]);
        check(
            for_audiences(json!(["other-cluster"])),
            expect![[
                r#"serviceaccounts "robot" is forbidden: audience "other-cluster" not found in pod spec volume, system:node:one is not authorized to request tokens for this audience"#
            ]],
        );
        check(
            for_audiences(json!(["bank", "disk"])),
            expect![[r#"serviceaccounts "robot" is forbidden: node may only request 0 or 1 audiences"#]],
        );
        check(
            token("other"),
            expect![[
                r#"serviceaccounts "robot" is forbidden: node requested token bound to a pod scheduled on a different node"#
            ]],
        );
    }

    fn mirror(spec: Value) -> Attributes {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "one", "uid": "one-uid", "controller": true});
        let metadata = json!({
            "name": "web", "namespace": "default", "ownerReferences": [owner],
            "annotations": {MIRROR_POD: "hash"},
        });
        let mut spec = spec;
        spec["nodeName"] = json!("one");
        create(&POD, json!({"metadata": metadata, "spec": spec}))
    }

    #[test]
    fn mirror_pods_refer_to_nothing() {
        let volume = |source: &str, value: Value| json!({"volumes": [{"name": "v", source: value}]});
        check(mirror(volume("hostPath", json!({"path": "/etc"}))), expect!["fine"]);
        let refused = |spec: Value, resource: &str| {
            let expected =
                format!("pods \"web\" is forbidden: node \"one\" can not create pods that reference {resource}");
            let shown = run(
                &NodeRestriction(Arc::new(AudienceRole)),
                Attributes {
                    user: User::system("system:node:one", &["system:nodes"]),
                    ..mirror(spec)
                },
                &Cluster(vec![(&NODE, json!({"metadata": {"name": "one", "uid": "one-uid"}}))]),
            );
            assert_eq!(shown.unwrap_err(), expected);
        };
        refused(json!({"serviceAccountName": "admin"}), "serviceaccounts");
        refused(json!({"imagePullSecrets": [{"name": "s"}]}), "secrets");
        refused(volume("secret", json!({"secretName": "s"})), "secrets");
        let env = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]);
        refused(json!({"initContainers": [{"name": "i", "env": env}]}), "configmaps");
        refused(json!({"resourceClaims": [{"name": "gpu"}]}), "resourceclaims");
        refused(volume("csi", json!({"driver": "d"})), "csidrivers (via CSI volumes)");
        refused(
            volume("persistentVolumeClaim", json!({"claimName": "c"})),
            "persistentvolumeclaims",
        );
        refused(
            volume("ephemeral", json!({})),
            "persistentvolumeclaims (via ephemeral volumes)",
        );
        let token = json!({"sources": [{"serviceAccountToken": {"path": "t"}}]});
        refused(volume("projected", token), "serviceaccounts (via projected volumes)");
    }

    #[test]
    fn a_kubelet_asks_for_certificates_of_its_own_node() {
        let request = |signer: &str, name: &str| {
            let mut parameters = rcgen::CertificateParams::default();
            parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
            let key = rcgen::KeyPair::generate().unwrap();
            let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
            let spec = json!({"signerName": signer, "request": STANDARD.encode(pem)});
            create(
                &CERTIFICATE_SIGNING_REQUEST,
                json!({"metadata": {"name": "csr"}, "spec": spec}),
            )
        };
        check(request(SERVING_SIGNER, "system:node:one"), expect!["fine"]);
        check(request("example.com/own", "system:node:two"), expect!["fine"]);
        for signer in [CLIENT_SIGNER, SERVING_SIGNER] {
            check(
                request(signer, "system:node:two"),
                expect![[
                    r#"certificatesigningrequests.certificates.k8s.io "csr" is forbidden: can only create a node CSR with CN=system:node:one"#
                ]],
            );
        }
    }
}
