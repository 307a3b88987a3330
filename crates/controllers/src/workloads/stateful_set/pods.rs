//! Making and deleting the pods of a StatefulSet.

use api::kinds::pod::POD;
use api::kinds::stateful_set::STATEFUL_SET;
use api::{Fields, Value};
use client::ObjectReference;
use serde_json::json;

use super::Planner;
use super::revisions::Version;
use crate::model::Pod;
use crate::plan::{Action, Announce, Create, Delete, Patch};
use crate::workloads::history::REVISION_LABEL;
use crate::workloads::template;

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

impl Planner<'_> {
    pub fn create(&mut self, ordinal: i64) {
        let set = self.set;
        let version = self.version_for(ordinal).clone();
        let name = set.pod_name(ordinal);
        let mut pod = template::pod(&version.template, &STATEFUL_SET, &set.metadata);
        let metadata = pod.ensure("metadata");
        metadata.set("name", name.as_str());
        let labels = metadata.ensure("labels");
        labels.set(POD_NAME, name.as_str());
        labels.set(POD_INDEX, ordinal.to_string());
        labels.set(REVISION_LABEL, version.name.as_str());
        let volumes = self.volumes(&pod["spec"], ordinal);
        let spec = pod.ensure("spec");
        spec.set("hostname", name.as_str());
        spec.set("subdomain", set.spec.service_name.as_str());
        if !volumes.is_empty() {
            spec.set("volumes", volumes);
        }
        let mut create = Create::new(&POD, &set.metadata.namespace, pod);
        create.mark = Some("statefulset-controller/pod-created");
        let failure = ("FailedCreate", "create Pod in StatefulSet failed error: ");
        create.announce = Some(self.announce("SuccessfulCreate", "create", &name, failure));
        self.plan.actions.push(Action::Create(create));
    }

    pub fn delete(&mut self, pod: &Pod) {
        let mut delete = Delete::new(&POD, &pod.metadata);
        let failure = ("FailedDelete", "delete Pod in StatefulSet failed error: ");
        delete.announce = Some(self.announce("SuccessfulDelete", "delete", &pod.metadata.name, failure));
        self.plan.actions.push(Action::Delete(delete));
    }

    /// Gives a pod that was adopted, or that someone has changed, back its labels.
    pub fn restore_identity(&mut self, pod: &Pod, ordinal: i64) {
        let (name, index) = (&pod.metadata.name, ordinal.to_string());
        let label = |key: &str| pod.metadata.labels.get(key);
        if label(POD_NAME) != Some(name) || label(POD_INDEX) != Some(&index) {
            let body = json!({"metadata": {"labels": {POD_NAME: name, POD_INDEX: index}}});
            self.plan
                .actions
                .push(Action::Patch(Patch::new(&POD, &pod.metadata, body)));
        }
    }

    /// While a rollout is under way, pods that it has not come to are made of the template they had.
    fn version_for(&self, ordinal: i64) -> &Version {
        let set = self.set;
        let history = self.history;
        if !set.is_rolling_update() || history.current.name == history.update.name {
            return &history.update;
        }
        let kept = set.partition().unwrap_or_else(|| set.status.number("currentReplicas"));
        match ordinal < set.start() + kept {
            true => &history.current,
            false => &history.update,
        }
    }

    /// The claims' volumes take the place of template volumes of their names.
    fn volumes(&self, spec: &Value, ordinal: i64) -> Vec<Value> {
        let templates = &self.set.spec.volume_claim_templates;
        let claimed = templates.iter().map(|template| {
            let claim = self.set.claim_name(template, ordinal);
            json!({"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}})
        });
        let is_claimed = |name: &str| {
            templates
                .iter()
                .any(|template| template["metadata"].text("name") == name)
        };
        let others = spec
            .list("volumes")
            .iter()
            .filter(|volume| !is_claimed(volume.text("name")));
        claimed.chain(others.cloned()).collect()
    }

    fn announce(&self, reason: &'static str, verb: &str, pod: &str, failure: (&'static str, &'static str)) -> Announce {
        let set = &self.set.metadata.name;
        Announce {
            about: ObjectReference::new(&STATEFUL_SET, &self.set.metadata),
            success: (reason, format!("{verb} Pod {pod} in StatefulSet {set} successful")),
            failure: Some((failure.0, failure.1.into())),
        }
    }
}
