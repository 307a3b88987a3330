//! What is read of volumes, claims and storage classes.

use std::collections::BTreeMap;

use api::selector::Selector;
use api::{Fields, LabelSelector, ObjectMeta, Value};
use client::Key;
use schema::quantity::Quantity;
use serde::Deserialize;

use crate::model::with_metadata;

/// On what the controller has bound by its own choice; what a user has bound is never undone.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On claims that were bound once: they never choose again.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Who is to provision a volume for a claim, as provisioners look for it, old ones under the second name.
pub const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
pub const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The node that the scheduler has chosen for the first pod of a claim.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The class of volumes and claims before there was a field for it.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: &[&str] = &[
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

with_metadata!(Volume, Claim, StorageClass);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub metadata: ObjectMeta,
    pub spec: VolumeSpec,
    pub status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    pub capacity: Value,
    pub access_modes: Vec<String>,
    pub claim_ref: Option<ClaimRef>,
    storage_class_name: String,
    volume_mode: String,
    volume_attributes_class_name: String,
    pub persistent_volume_reclaim_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
    /// Empty while a user has only said which claim the volume is meant for.
    pub uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub metadata: ObjectMeta,
    pub spec: ClaimSpec,
    pub status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSpec {
    pub volume_name: String,
    pub access_modes: Vec<String>,
    pub storage_class_name: Option<String>,
    selector: Option<LabelSelector>,
    resources: Resources,
    volume_mode: String,
    volume_attributes_class_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StorageClass {
    pub metadata: ObjectMeta,
    pub provisioner: String,
    volume_binding_mode: String,
}

impl StorageClass {
    pub fn is_default(&self) -> bool {
        let annotations = &self.metadata.annotations;
        let says = |name: &&str| annotations.get(*name).is_some_and(|value| value == "true");
        DEFAULT_CLASS.iter().any(says)
    }

    pub fn waits_for_consumer(&self) -> bool {
        self.volume_binding_mode == "WaitForFirstConsumer"
    }
}

impl Volume {
    pub fn claim_key(&self) -> Option<Key> {
        let claim = self.spec.claim_ref.as_ref()?;
        Some(Key::new(&claim.namespace, &claim.name))
    }

    /// Bound to the claim, or meant for it.
    pub fn is_for(&self, claim: &Claim) -> bool {
        let own = (&claim.metadata.namespace, &claim.metadata.name);
        self.spec.claim_ref.as_ref().is_some_and(|reference| {
            (&reference.namespace, &reference.name) == own
                && (reference.uid.is_empty() || reference.uid == claim.metadata.uid)
        })
    }

    pub fn is_bound_to(&self, claim: &Claim) -> bool {
        self.is_for(claim)
            && self
                .spec
                .claim_ref
                .as_ref()
                .is_some_and(|reference| !reference.uid.is_empty())
    }

    pub fn size(&self) -> Option<Quantity> {
        self.spec.capacity.text("storage").parse().ok()
    }

    fn class(&self) -> &str {
        let old = self.metadata.annotations.get(OLD_CLASS);
        old.unwrap_or(&self.spec.storage_class_name)
    }

    /// Whether the volume has all that the claim asks for.
    pub fn satisfies(&self, claim: &Claim) -> bool {
        let spec = &claim.spec;
        let selector = spec.selector.as_ref().map(Selector::from);
        let enough = match (self.size(), claim.request()) {
            (Some(size), Some(request)) => size >= request,
            (_, request) => request.is_none(),
        };
        enough
            && self.class() == claim.class()
            && mode(&self.spec.volume_mode) == mode(&spec.volume_mode)
            && self.spec.volume_attributes_class_name == spec.volume_attributes_class_name
            && spec
                .access_modes
                .iter()
                .all(|mode| self.spec.access_modes.contains(mode))
            && selector.is_none_or(|selector| selector.matches(&self.metadata.labels))
    }
}

impl Claim {
    pub fn is_bound(&self) -> bool {
        self.metadata.annotations.contains_key(BIND_COMPLETED)
    }

    pub fn class(&self) -> &str {
        let old = self.metadata.annotations.get(OLD_CLASS).map(String::as_str);
        old.or(self.spec.storage_class_name.as_deref()).unwrap_or_default()
    }

    /// Whether nobody has said anything about its class, not even that there is to be none.
    pub fn leaves_class_open(&self) -> bool {
        self.spec.storage_class_name.is_none() && !self.metadata.annotations.contains_key(OLD_CLASS)
    }

    fn request(&self) -> Option<Quantity> {
        self.spec.resources.requests.get("storage")?.parse().ok()
    }
}

fn mode(text: &str) -> &str {
    match text {
        "" => "Filesystem",
        mode => mode,
    }
}
