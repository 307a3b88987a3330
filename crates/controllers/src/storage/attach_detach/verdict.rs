//! What is to be attached to a node and detached from it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::Fields;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::kinds::volume_attachment::VOLUME_ATTACHMENT;
use client::when::Moment;
use client::{EventType, ObjectReference};
use ring::digest;
use serde_json::json;

use super::model::{Attachment, CsiSource, StorageNode, Volume};
use crate::conditions;
use crate::model::Pod;
use crate::plan::{Action, Create, Delete, Event, Patch, Plan};

/// How long a lost node may take to unmount a volume before it is detached all the same.
const MAX_WAIT_FOR_UNMOUNT: Duration = Duration::from_secs(360);
/// How soon a volume that another node has is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// The taint by which an administrator says that a node is off and stays off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A volume, and the first of the pods that need it.
pub struct Needed {
    pub volume: Arc<Volume>,
    pub pod: Arc<Pod>,
}

pub struct View<'a> {
    pub name: &'a str,
    pub node: Option<&'a StorageNode>,
    pub needed: Vec<Needed>,
    /// All attachments to this node, by whomever.
    pub attachments: Vec<Arc<Attachment>>,
    /// Which other node has a volume that only one may have.
    pub elsewhere: HashMap<String, String>,
}

pub fn plan(view: &View<'_>, waiting: &mut HashMap<String, Moment>, now: Moment) -> Plan {
    let mut plan = Plan::default();
    let mut attached: BTreeMap<String, bool> = BTreeMap::new();
    for needed in &view.needed {
        let Some(csi) = &needed.volume.spec.csi else { continue };
        let name = attachment_name(csi, view.name);
        waiting.remove(&name);
        match view.attachments.iter().find(|one| one.metadata.name == name) {
            Some(one) if one.status.attached && !one.metadata.is_deleting() => {
                attached.insert(volume_name(csi), true);
            }
            Some(_) => {}
            None => attach(&mut plan, view, needed, csi, name),
        }
    }
    for one in view.attachments.iter().filter(|one| is_unneeded(view, one)) {
        detach(&mut plan, view, one, waiting, now);
    }
    tell_attached(&mut plan, view, &attached);
    plan
}

/// Attachments that somebody else made keep their own names and are nobody's business here.
fn is_unneeded(view: &View<'_>, one: &Attachment) -> bool {
    let is_needed = view
        .needed
        .iter()
        .any(|needed| needed.volume.metadata.name == one.volume());
    !is_needed && !one.metadata.is_deleting() && is_own_name(&one.metadata.name)
}

fn is_own_name(name: &str) -> bool {
    let digest = name.strip_prefix("csi-").unwrap_or_default();
    digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn attach(plan: &mut Plan, view: &View<'_>, needed: &Needed, csi: &CsiSource, name: String) {
    if view.node.is_none() || needed.pod.metadata.is_deleting() {
        return;
    }
    let volume = &needed.volume.metadata.name;
    if view.elsewhere.contains_key(volume) {
        plan.actions.push(Action::Event(Event {
            about: ObjectReference::new(&POD, &needed.pod.metadata),
            kind: EventType::Warning,
            reason: "FailedAttachVolume",
            message: format!(
                "Multi-Attach error for volume {volume:?} Volume is already exclusively attached to one node and can't \
                 be attached to another"
            ),
        }));
        plan.again_after(RETRY);
        return;
    }
    let attachment = json!({
        "apiVersion": VOLUME_ATTACHMENT.api_version(),
        "kind": VOLUME_ATTACHMENT.kind,
        "metadata": {"name": name},
        "spec": {"attacher": csi.driver, "nodeName": view.name, "source": {"persistentVolumeName": volume}},
    });
    let mut create = Create::new(&VOLUME_ATTACHMENT, "", attachment);
    create.exists_is_fine = true;
    plan.actions.push(Action::Create(create));
}

fn detach(plan: &mut Plan, view: &View<'_>, one: &Attachment, waiting: &mut HashMap<String, Moment>, now: Moment) {
    let prefix = format!("kubernetes.io/csi/{}^", one.spec.attacher);
    let mounted = view.node.filter(|node| {
        let in_use = node.status.volumes_in_use.iter();
        in_use.filter_map(|name| name.strip_prefix(&prefix)).any(|handle| {
            let csi = CsiSource {
                driver: one.spec.attacher.clone(),
                volume_handle: handle.to_owned(),
            };
            attachment_name(&csi, view.name) == one.metadata.name
        })
    });
    if let Some(node) = mounted
        && !is_out_of_service(node)
    {
        let since = *waiting.entry(one.metadata.name.clone()).or_insert(now);
        let waited = now.since(since);
        if is_healthy(node) || waited < MAX_WAIT_FOR_UNMOUNT {
            plan.again_after(MAX_WAIT_FOR_UNMOUNT.saturating_sub(waited).max(RETRY));
            return;
        }
    }
    waiting.remove(&one.metadata.name);
    plan.actions
        .push(Action::Delete(Delete::new(&VOLUME_ATTACHMENT, &one.metadata)));
}

/// The kubelet mounts what its node's status says is attached; a volume leaves the list before it is detached.
fn tell_attached(plan: &mut Plan, view: &View<'_>, attached: &BTreeMap<String, bool>) {
    let Some(node) = view.node else { return };
    let mut known = node.attached();
    known.sort_unstable();
    if known.iter().copied().eq(attached.keys().map(String::as_str)) {
        return;
    }
    let list: Vec<_> = attached
        .keys()
        .map(|name| json!({"name": name, "devicePath": ""}))
        .collect();
    let mut patch = Patch::new(&NODE, &node.metadata, json!({"status": {"volumesAttached": list}}));
    patch.subresource = "status";
    plan.actions.insert(0, Action::Patch(patch));
}

fn is_healthy(node: &StorageNode) -> bool {
    let ready = conditions::find(&node.status.conditions, "Ready");
    ready.is_some_and(|ready| ready.text("status") == "True")
}

fn is_out_of_service(node: &StorageNode) -> bool {
    node.spec.taints.iter().any(|taint| taint.text("key") == OUT_OF_SERVICE)
}

/// The name that kubelets look an attachment up by.
fn attachment_name(csi: &CsiSource, node: &str) -> String {
    let text = format!("{}{}{node}", csi.volume_handle, csi.driver);
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hex}")
}

/// The name of a volume in the status of its node.
fn volume_name(csi: &CsiSource) -> String {
    format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object};

    const NAME: &str = "csi-6b8eb3d9";

    fn own_name() -> String {
        let csi = CsiSource {
            driver: "d.example".to_owned(),
            volume_handle: "h1".to_owned(),
        };
        attachment_name(&csi, "n1")
    }

    fn volume() -> Arc<Volume> {
        object("metadata: {name: pv}\nspec: {accessModes: [ReadWriteOnce], csi: {driver: d.example, volumeHandle: h1}}")
    }

    struct Case<'a> {
        needed: bool,
        attachment: Option<(&'a str, bool)>,
        node: &'a str,
        elsewhere: bool,
        waited: u64,
    }

    const PLAIN: Case<'_> = Case {
        needed: true,
        attachment: None,
        node: "status: {}",
        elsewhere: false,
        waited: 0,
    };

    fn check(case: Case<'_>, expected: Expect) {
        let node = object::<StorageNode>(&format!("metadata: {{name: n1}}\n{}", case.node));
        let needed = Needed {
            volume: volume(),
            pod: object("metadata: {name: p, namespace: default}"),
        };
        let attachment = case.attachment.map(|(name, attached)| {
            object::<Attachment>(&format!(
                "metadata: {{name: {name}}}
spec: {{attacher: d.example, nodeName: n1, source: {{persistentVolumeName: pv}}}}
status: {{attached: {attached}}}"
            ))
        });
        let elsewhere = case.elsewhere.then(|| ("pv".to_owned(), "n2".to_owned()));
        let view = View {
            name: "n1",
            node: Some(&node),
            needed: case.needed.then_some(needed).into_iter().collect(),
            attachments: attachment.into_iter().collect(),
            elsewhere: elsewhere.into_iter().collect(),
        };
        let mut waiting = HashMap::from([(own_name(), noon())]);
        let now = noon().plus(Duration::from_secs(case.waited));
        let text = plan(&view, &mut waiting, now).to_string();
        expected.assert_eq(&text.replace(&own_name(), NAME));
    }

    const MOUNTED: &str =
        "status: {volumesInUse: ['kubernetes.io/csi/d.example^h1'], conditions: [{type: Ready, status: Unknown}]}";

    #[test]
    fn volumes_of_pods_are_attached_and_told_to_the_kubelet() {
        check(
            PLAIN,
            expect![[r#"
            create volumeattachments in no namespace: {"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachment","metadata":{"name":"csi-6b8eb3d9"},"spec":{"attacher":"d.example","nodeName":"n1","source":{"persistentVolumeName":"pv"}}}
        "#]],
        );
        let name = own_name();
        check(
            Case {
                attachment: Some((&name, false)),
                ..PLAIN
            },
            expect![""],
        );
        check(
            Case {
                attachment: Some((&name, true)),
                ..PLAIN
            },
            expect![[r#"
            patch nodes n1/status: {"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/csi/d.example^h1"}]}}
        "#]],
        );
    }

    #[test]
    fn no_two_nodes_get_a_volume_of_one_node() {
        check(
            Case {
                elsewhere: true,
                ..PLAIN
            },
            expect![[r#"
            event Warning FailedAttachVolume: Multi-Attach error for volume "pv" Volume is already exclusively attached to one node and can't be attached to another
            again after 5s
        "#]],
        );
    }

    #[test]
    fn a_mounted_volume_is_detached_only_from_a_lost_node() {
        let name = own_name();
        let unneeded = |node, waited| Case {
            needed: false,
            attachment: Some((&name, true)),
            node,
            elsewhere: false,
            waited,
        };
        check(
            unneeded("status: {}", 0),
            expect![[r#"
            delete volumeattachments csi-6b8eb3d9
        "#]],
        );
        check(
            unneeded(MOUNTED, 60),
            expect![[r#"
            again after 300s
        "#]],
        );
        check(
            unneeded(MOUNTED, 361),
            expect![[r#"
            delete volumeattachments csi-6b8eb3d9
        "#]],
        );
        let healthy = MOUNTED.replace("Unknown", "'True'");
        check(
            unneeded(&healthy, 4000),
            expect![[r#"
            again after 5s
        "#]],
        );
        let off =
            format!("spec: {{taints: [{{key: node.kubernetes.io/out-of-service, effect: NoExecute}}]}}\n{MOUNTED}");
        check(
            unneeded(&off, 0),
            expect![[r#"
            delete volumeattachments csi-6b8eb3d9
        "#]],
        );
    }

    #[test]
    fn attachments_of_others_are_left_alone() {
        let other = Case {
            needed: false,
            attachment: Some(("made-by-hand", true)),
            ..PLAIN
        };
        check(other, expect![""]);
    }
}
