//! A volume for a claim, on the node that the scheduler has chosen.

use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::local_volumes::{self, NODE_LABEL, PROVISIONED_BY};
use api::{ObjectMeta, Value};
use client::{EventType, ObjectReference};
use serde_json::json;

use super::model::{Claim, Class, PROVISIONER, SELECTED_NODE, Topology};
use super::reclaim::FINALIZER;
use crate::model::Node;
use crate::plan::{Action, Announce, Create, Event, Patch, Plan};

/// Tells people where to look on a node with the default data directory. Kubelets never follow it: each uses the
/// directory of the volume's name under its own data directory, so that no volume can make a node serve or remove
/// anything else.
const DIRECTORY: &str = "/var/lib/karve/karve/volumes";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// A directory is on one node.
const ACCESS_MODES: &[&str] = &["ReadWriteOnce", "ReadWriteOncePod"];

pub fn plan(claim: &Claim, class: &Class, node: Option<&Node>) -> Plan {
    let mut plan = Plan::default();
    if class.provisioner != PROVISIONER {
        return plan;
    }
    if let Some(message) = refusal(claim, class) {
        plan.actions.push(failed(claim, message));
        return plan;
    }
    if claim.selected_node().is_empty() {
        let name = &class.metadata.name;
        let message = format!(
            "StorageClass {name:?} must have volumeBindingMode: WaitForFirstConsumer: \
             {PROVISIONER} makes volumes on the node of their first pod"
        );
        plan.actions.push(failed(claim, message));
        return plan;
    }
    match usable(claim, class, node) {
        Ok(node) => plan.actions.push(create(claim, class, node)),
        Err(message) => {
            // The scheduler chooses again once its choice is taken back.
            plan.actions.push(failed(claim, message));
            plan.actions.push(unselect_node(claim));
        }
    }
    plan
}

/// What no directory can be, whatever the node.
fn refusal(claim: &Claim, class: &Class) -> Option<String> {
    let spec = &claim.spec;
    if spec.volume_mode == "Block" {
        return Some(format!("{PROVISIONER} does not support block volume provisioning"));
    }
    if let Some(mode) = spec
        .access_modes
        .iter()
        .find(|mode| !ACCESS_MODES.contains(&mode.as_str()))
    {
        let modes = ACCESS_MODES.join(" and ");
        return Some(format!(
            "{PROVISIONER} does not support access mode {mode}, only {modes}"
        ));
    }
    if spec.selector.is_some() {
        return Some("claim Selector is not supported".to_owned());
    }
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return Some(format!("{PROVISIONER} does not support data sources"));
    }
    if !spec.volume_attributes_class_name.is_empty() {
        return Some(format!("{PROVISIONER} does not support VolumeAttributesClasses"));
    }
    let unknown = class.parameters.keys().next();
    unknown.map(|name| format!("invalid option {name:?} for {PROVISIONER}: it has no parameters"))
}

/// The node, if a volume may be there.
fn usable<'a>(claim: &Claim, class: &Class, node: Option<&'a Node>) -> Result<&'a ObjectMeta, String> {
    let name = claim.selected_node();
    let Some(node) = node.map(|node| &node.metadata) else {
        return Err(format!("selected node {name:?} not found"));
    };
    if node.labels.get(HOSTNAME) != Some(&node.name) {
        return Err(format!("the label {HOSTNAME} of node {name:?} is not the node's name"));
    }
    let allowed = class.allowed_topologies.is_empty() || class.allowed_topologies.iter().any(|one| allows(one, node));
    match allowed {
        true => Ok(node),
        false => {
            let class = &class.metadata.name;
            Err(format!(
                "node {name:?} is not in the allowedTopologies of StorageClass {class:?}"
            ))
        }
    }
}

fn allows(topology: &Topology, node: &ObjectMeta) -> bool {
    topology.match_label_expressions.iter().all(|expression| {
        let label = node.labels.get(&expression.key);
        label.is_some_and(|value| expression.values.contains(value))
    })
}

fn create(claim: &Claim, class: &Class, node: &ObjectMeta) -> Action {
    let name = format!("pvc-{}", claim.metadata.uid);
    let mut create = Create::new(&PERSISTENT_VOLUME, "", volume(&name, claim, class, node));
    create.exists_is_fine = true;
    create.announce = Some(Announce {
        about: ObjectReference::new(&PERSISTENT_VOLUME_CLAIM, &claim.metadata),
        success: (
            "ProvisioningSucceeded",
            format!("Successfully provisioned volume {name}"),
        ),
        failure: Some(("ProvisioningFailed", "Error saving PersistentVolume: ".into())),
    });
    Action::Create(create)
}

fn volume(name: &str, claim: &Claim, class: &Class, node: &ObjectMeta) -> Value {
    let metadata = &claim.metadata;
    let policy = match class.reclaim_policy.as_str() {
        "" => "Delete",
        policy => policy,
    };
    let hostname = json!({"key": HOSTNAME, "operator": "In", "values": [node.name]});
    let mut volume = json!({
        "apiVersion": PERSISTENT_VOLUME.api_version(),
        "kind": PERSISTENT_VOLUME.kind,
        "metadata": {
            "name": name,
            "annotations": {
                "pv.kubernetes.io/provisioned-by": PROVISIONER,
                PROVISIONED_BY: local_volumes::PROVISIONER,
            },
            "labels": {NODE_LABEL: node.name},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "accessModes": claim.spec.access_modes,
            "capacity": {"storage": claim.spec.resources.requests.get("storage")},
            "claimRef": {
                "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version(),
                "kind": PERSISTENT_VOLUME_CLAIM.kind,
                "namespace": metadata.namespace,
                "name": metadata.name,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "local": {"path": format!("{DIRECTORY}/{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class.metadata.name,
            "volumeMode": "Filesystem",
        },
    });
    if !class.mount_options.is_empty() {
        volume["spec"]["mountOptions"] = json!(class.mount_options);
    }
    volume
}

fn unselect_node(claim: &Claim) -> Action {
    let body = json!({"metadata": {"annotations": {SELECTED_NODE: null}}});
    let patch = Patch::new(&PERSISTENT_VOLUME_CLAIM, &claim.metadata, body);
    Action::Patch(patch.at_revision(&claim.metadata).by_update())
}

fn failed(claim: &Claim, message: String) -> Action {
    let class = &claim.spec.storage_class_name;
    Action::Event(Event {
        about: ObjectReference::new(&PERSISTENT_VOLUME_CLAIM, &claim.metadata),
        kind: EventType::Warning,
        reason: "ProvisioningFailed",
        message: format!("failed to provision volume with StorageClass {class:?}: {message}"),
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::object;

    fn check(spec: &str, class: &str, node: &str, expected: Expect) {
        let modes = if spec.contains("accessModes") {
            ""
        } else {
            ", accessModes: [ReadWriteOnce]"
        };
        let claim = object::<Claim>(&format!(
            "metadata: {{name: data, namespace: default, uid: c-1, resourceVersion: '9', annotations: \
             {{volume.kubernetes.io/selected-node: n1}}}}
spec: {{storageClassName: local, resources: {{requests: {{storage: 2Gi}}}}{modes}{spec}}}"
        ));
        let class = object::<Class>(&format!(
            "metadata: {{name: local}}\nprovisioner: karve.dev/local\n{class}"
        ));
        let node = (!node.is_empty()).then(|| object::<Node>(node));
        expected.assert_eq(&plan(&claim, &class, node.as_deref()).to_string());
    }

    const NODE: &str = "metadata: {name: n1, labels: {kubernetes.io/hostname: n1, zone: a}}";

    #[test]
    fn a_claim_gets_a_directory_on_the_selected_node() {
        check(
            "",
            "reclaimPolicy: Retain\nmountOptions: [noexec]\nallowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a, b]}]}]",
            NODE,
            expect![[r#"
                create persistentvolumes in no namespace: {"apiVersion":"v1","kind":"PersistentVolume","metadata":{"annotations":{"karve.dev/provisioned-by":"local","pv.kubernetes.io/provisioned-by":"karve.dev/local"},"finalizers":["karve.dev/local-volume-data"],"labels":{"karve.dev/node":"n1"},"name":"pvc-c-1"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"2Gi"},"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","name":"data","namespace":"default","resourceVersion":"9","uid":"c-1"},"local":{"path":"/var/lib/karve/karve/volumes/pvc-c-1"},"mountOptions":["noexec"],"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["n1"]}]}]}},"persistentVolumeReclaimPolicy":"Retain","storageClassName":"local","volumeMode":"Filesystem"}}
            "#]],
        );
    }

    #[test]
    fn what_a_directory_cannot_be_is_refused() {
        for (spec, class, expected) in [
            (
                ", volumeMode: Block",
                "",
                expect![[r#"
                event Warning ProvisioningFailed: failed to provision volume with StorageClass "local": karve.dev/local does not support block volume provisioning
            "#]],
            ),
            (
                ", accessModes: [ReadWriteMany]",
                "",
                expect![[r#"
                event Warning ProvisioningFailed: failed to provision volume with StorageClass "local": karve.dev/local does not support access mode ReadWriteMany, only ReadWriteOnce and ReadWriteOncePod
            "#]],
            ),
            (
                ", selector: {matchLabels: {a: b}}",
                "",
                expect![[r#"
                event Warning ProvisioningFailed: failed to provision volume with StorageClass "local": claim Selector is not supported
            "#]],
            ),
            (
                ", dataSource: {kind: PersistentVolumeClaim, name: other}",
                "",
                expect![[r#"
                event Warning ProvisioningFailed: failed to provision volume with StorageClass "local": karve.dev/local does not support data sources
            "#]],
            ),
            (
                "",
                "parameters: {path: /etc}",
                expect![[r#"
                event Warning ProvisioningFailed: failed to provision volume with StorageClass "local": invalid option "path" for karve.dev/local: it has no parameters
            "#]],
            ),
        ] {
            check(spec, class, NODE, expected);
        }
    }

    #[test]
    fn a_node_that_will_not_do_is_given_back_to_the_scheduler() {
        check(
            "",
            "",
            "",
            expect![[r#"
            event Warning ProvisioningFailed: failed to provision volume with StorageClass "local": selected node "n1" not found
            patch persistentvolumeclaims default/data: {"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null},"resourceVersion":"9"}}
        "#]],
        );
        check(
            "",
            "allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [b]}]}]",
            NODE,
            expect![[r#"
                event Warning ProvisioningFailed: failed to provision volume with StorageClass "local": node "n1" is not in the allowedTopologies of StorageClass "local"
                patch persistentvolumeclaims default/data: {"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null},"resourceVersion":"9"}}
            "#]],
        );
    }

    #[test]
    fn classes_of_other_provisioners_are_left_alone() {
        let claim = object::<Claim>("metadata: {name: data}\nspec: {storageClassName: fast}");
        let class = object::<Class>("metadata: {name: fast}\nprovisioner: example.com/disk");
        assert_eq!(plan(&claim, &class, None).to_string(), "");
    }
}
