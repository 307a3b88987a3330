//! What the scheduler knows of storage: claims, volumes, their classes, and what nodes can attach.

mod model;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use client::WithMetadata;

pub use model::{Capacity, Claim, CsiDriver, CsiNode, SELECTED_NODE, StorageClass, Volume};

use crate::pod::Pod;

#[derive(Default)]
pub struct Volumes {
    pub claims: ByKey<Claim>,
    pub volumes: ByKey<Volume>,
    pub classes: ByKey<StorageClass>,
    pub csi_nodes: ByKey<CsiNode>,
    pub csi_drivers: ByKey<CsiDriver>,
    pub capacities: ByKey<Capacity>,
    /// What pods that are being bound will take, by their UID, until the API shows it.
    promised: HashMap<String, Vec<Assignment>>,
}

/// Objects by `namespace/name`, or by name for those without a namespace.
pub struct ByKey<T>(BTreeMap<String, Arc<T>>);

/// What becomes of a claim when its pod goes to a node.
#[derive(Clone, Debug)]
pub enum Assignment {
    Bind {
        claim: Arc<Claim>,
        volume: Arc<Volume>,
    },
    /// The storage class makes a volume for the node.
    Provision {
        claim: Arc<Claim>,
    },
}

impl<T> Default for ByKey<T> {
    fn default() -> ByKey<T> {
        ByKey(BTreeMap::new())
    }
}

impl<T: WithMetadata> ByKey<T> {
    pub fn get(&self, key: &str) -> Option<&Arc<T>> {
        self.0.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.0.values()
    }

    pub fn changed(&mut self, old: Option<&Arc<T>>, new: Option<&Arc<T>>) {
        if let Some(old) = old {
            self.0.remove(&key_of(&**old));
        }
        if let Some(new) = new {
            self.0.insert(key_of(&**new), new.clone());
        }
    }
}

/// The key of an object in [`ByKey`].
pub fn key_of<T: WithMetadata>(object: &T) -> String {
    let metadata = object.metadata();
    match metadata.namespace.as_str() {
        "" => metadata.name.clone(),
        namespace => format!("{namespace}/{}", metadata.name),
    }
}

impl Volumes {
    /// The claim of a pod by its name.
    pub fn claim(&self, pod: &Pod, name: &str) -> Option<&Arc<Claim>> {
        self.claims.get(&pod.claim_key(name))
    }

    /// The storage class that a claim asks for.
    pub fn class_of(&self, claim: &Claim) -> Option<&Arc<StorageClass>> {
        self.classes.get(claim.class_name())
    }

    pub fn promise(&mut self, uid: &str, assignments: Vec<Assignment>) {
        if !assignments.is_empty() {
            self.promised.insert(uid.to_owned(), assignments);
        }
    }

    /// The pod is bound, or will not be: the API tells the truth.
    pub fn forget_promise(&mut self, uid: &str) {
        self.promised.remove(uid);
    }

    pub fn promised_to(&self, uid: &str) -> Vec<Assignment> {
        self.promised.get(uid).cloned().unwrap_or_default()
    }

    /// The names of volumes that are as good as taken by other pods.
    pub fn promised_volumes(&self, except: &str) -> BTreeSet<&str> {
        let others = self.promised.iter().filter(|(uid, _)| *uid != except);
        others
            .flat_map(|(_, assignments)| assignments)
            .filter_map(|assignment| match assignment {
                Assignment::Bind { volume, .. } => Some(volume.metadata.name.as_str()),
                Assignment::Provision { .. } => None,
            })
            .collect()
    }

    /// The CSI driver that attaches the claim's volume, and what tells that volume from others.
    pub fn attachment(&self, claim: &Claim) -> Option<(String, String)> {
        if !claim.spec.volume_name.is_empty() {
            let csi = self.volumes.get(&claim.spec.volume_name)?.spec.csi.as_ref()?;
            return Some((csi.driver.clone(), format!("{}/{}", csi.driver, csi.volume_handle)));
        }
        let class = self.class_of(claim)?;
        let in_tree = class.provisioner.starts_with("kubernetes.io/");
        (!in_tree).then(|| (class.provisioner.clone(), key_of(claim)))
    }
}
