//! The node table: one row per node, one column per property, updated as nodes and pods change.

mod trial;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::node::{Node, Taint};
use crate::nominations::Nominations;
use crate::pod::{HostPort, Pod};
use crate::resources::Resources;
use crate::volumes::Volumes;

/// A row of the table. Rows keep their place for as long as the node or a pod on it is known.
pub type NodeId = usize;

#[derive(Default)]
pub struct Nodes {
    by_name: HashMap<Arc<str>, NodeId>,
    free: Vec<NodeId>,
    generation: u64,
    /// How many nodes are present.
    count: usize,
    /// How many present nodes have a taint that is only to be avoided.
    with_soft_taints: usize,
    /// Pods that ask something of the pods around them, and where they are.
    placed_with_wishes: BTreeMap<String, NodeId>,
    /// The labels of namespaces, by which pods of other namespaces can be meant.
    pub namespace_labels: HashMap<String, BTreeMap<String, String>>,
    /// Pods for which room is being made on a node.
    pub nominations: Nominations,
    pub volumes: Volumes,
    /// How many pods on nodes use each claim, by `namespace/name`.
    claim_users: HashMap<String, usize>,

    pub name: Vec<Arc<str>>,
    /// False for rows of nodes that are gone, or not seen yet, while pods are still known on them.
    pub present: Vec<bool>,
    /// When the row last changed, in the table's own count.
    pub changed: Vec<u64>,
    pub labels: Vec<Arc<BTreeMap<String, String>>>,
    pub taints: Vec<Arc<[Taint]>>,
    pub unschedulable: Vec<bool>,
    pub milli_cpu: Vec<i64>,
    pub milli_cpu_requested: Vec<i64>,
    pub milli_cpu_assumed: Vec<i64>,
    pub memory: Vec<i64>,
    pub memory_requested: Vec<i64>,
    pub memory_assumed: Vec<i64>,
    pub ephemeral_storage: Vec<i64>,
    pub ephemeral_storage_requested: Vec<i64>,
    /// What there is and what is requested of all other resources.
    pub others: Vec<BTreeMap<String, (i64, i64)>>,
    pub pods_allowed: Vec<i64>,
    pub host_ports: Vec<Vec<HostPort>>,
    pub images: Vec<Arc<HashMap<String, i64>>>,
    /// On how many nodes an image is.
    image_nodes: HashMap<String, i64>,
    pub pods: Vec<HashMap<String, Arc<Pod>>>,
}

impl Nodes {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All rows, present or not.
    pub fn rows(&self) -> usize {
        self.name.len()
    }

    pub fn id(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied().filter(|id| self.present[*id])
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether any pod on a node asks something of the pods around it.
    pub fn have_placements(&self) -> bool {
        !self.placed_with_wishes.is_empty()
    }

    /// Pods on nodes that ask something of the pods around them.
    pub fn pods_with_placements(&self) -> impl Iterator<Item = (NodeId, &Pod)> {
        let pods = self.placed_with_wishes.iter();
        pods.filter(|(_, id)| self.present[**id])
            .filter_map(|(uid, id)| Some((*id, &**self.pods[*id].get(uid)?)))
    }

    /// All pods on all nodes.
    pub fn all_pods(&self) -> impl Iterator<Item = (NodeId, &Pod)> {
        let present = (0..self.rows()).filter(|id| self.present[*id]);
        present.flat_map(|id| self.pods[id].values().map(move |pod| (id, &**pod)))
    }

    /// The node's value of a topology such as its zone.
    pub fn domain(&self, id: NodeId, topology_key: &str) -> Option<&str> {
        self.labels[id].get(topology_key).map(String::as_str)
    }

    /// The size of an image on a node, scaled by the share of nodes that hold it.
    pub fn spread_image_bytes(&self, id: NodeId, image: &str) -> i64 {
        let bytes = self.images[id].get(image).copied().unwrap_or(0);
        let holders = self.image_nodes.get(image).copied().unwrap_or(0);
        (bytes as f64 * holders as f64 / self.count.max(1) as f64) as i64
    }

    /// How many pods on nodes use a claim.
    pub fn claim_users(&self, key: &str) -> usize {
        self.claim_users.get(key).copied().unwrap_or(0)
    }

    pub fn have_soft_taints(&self) -> bool {
        self.with_soft_taints > 0
    }

    /// Adds or updates a node.
    pub fn set(&mut self, node: &Node) -> NodeId {
        let id = self.row(&node.metadata.name);
        self.forget_counts(id);
        self.present[id] = true;
        self.count += 1;
        self.labels[id] = Arc::new(node.labels().clone());
        self.taints[id] = node.spec.taints.clone().into();
        self.with_soft_taints += usize::from(self.has_soft_taint(id));
        self.unschedulable[id] = node.spec.unschedulable;
        let allocatable = Resources::of(&node.status.allocatable);
        self.milli_cpu[id] = allocatable.milli_cpu;
        self.memory[id] = allocatable.memory;
        self.ephemeral_storage[id] = allocatable.ephemeral_storage;
        self.set_others(id, &allocatable);
        let pods = node.status.allocatable.get("pods");
        self.pods_allowed[id] = pods.map_or(0, |pods| crate::quantity::units(pods));
        self.set_images(id, node);
        self.touch(id);
        id
    }

    pub fn remove(&mut self, name: &str) {
        if let Some(id) = self.id(name) {
            self.forget_counts(id);
            self.touch(id);
            self.release_row(id);
        }
    }

    /// Counts a pod on a node, which need not be known yet.
    pub fn add_pod(&mut self, node: &str, pod: Arc<Pod>) -> NodeId {
        let id = self.row(node);
        self.count_pod(id, &pod, 1);
        self.host_ports[id].extend(pod.demand.host_ports.iter().cloned());
        if pod.placement.is_some() {
            self.placed_with_wishes.insert(pod.metadata.uid.clone(), id);
        }
        for claim in &pod.claims {
            *self.claim_users.entry(pod.claim_key(&claim.name)).or_default() += 1;
        }
        self.pods[id].insert(pod.metadata.uid.clone(), pod);
        self.touch(id);
        id
    }

    pub fn remove_pod(&mut self, node: &str, uid: &str) -> Option<NodeId> {
        let id = *self.by_name.get(node)?;
        let pod = self.pods[id].remove(uid)?;
        self.count_pod(id, &pod, -1);
        self.placed_with_wishes.remove(uid);
        for key in pod.claims.iter().map(|claim| pod.claim_key(&claim.name)) {
            let users = self.claim_users(&key).saturating_sub(1);
            match users {
                0 => self.claim_users.remove(&key),
                _ => self.claim_users.insert(key, users),
            };
        }
        for port in &pod.demand.host_ports {
            if let Some(position) = self.host_ports[id].iter().position(|taken| taken == port) {
                self.host_ports[id].swap_remove(position);
            }
        }
        self.touch(id);
        self.release_row(id);
        Some(id)
    }

    fn count_pod(&mut self, id: NodeId, pod: &Pod, sign: i64) {
        let requests = &pod.demand.requests;
        self.milli_cpu_requested[id] += sign * requests.exact.milli_cpu;
        self.memory_requested[id] += sign * requests.exact.memory;
        self.milli_cpu_assumed[id] += sign * requests.assumed_milli_cpu;
        self.memory_assumed[id] += sign * requests.assumed_memory;
        self.ephemeral_storage_requested[id] += sign * requests.exact.ephemeral_storage;
        for (name, amount) in &requests.exact.others {
            self.others[id].entry(name.clone()).or_default().1 += sign * amount;
        }
    }

    fn set_others(&mut self, id: NodeId, allocatable: &Resources) {
        let others = &mut self.others[id];
        others.values_mut().for_each(|(there, _)| *there = 0);
        for (name, amount) in &allocatable.others {
            others.entry(name.clone()).or_default().0 = *amount;
        }
        others.retain(|_, amounts| *amounts != (0, 0));
    }

    fn set_images(&mut self, id: NodeId, node: &Node) {
        let images = node.status.images.iter();
        let images = images.flat_map(|image| image.names.iter().map(|name| (name.clone(), image.size_bytes)));
        self.images[id] = Arc::new(images.collect());
        for name in self.images[id].keys() {
            *self.image_nodes.entry(name.clone()).or_default() += 1;
        }
    }

    fn forget_images(&mut self, id: NodeId) {
        for name in std::mem::take(&mut self.images[id]).keys() {
            if let Some(count) = self.image_nodes.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.image_nodes.remove(name);
                }
            }
        }
    }

    fn has_soft_taint(&self, id: NodeId) -> bool {
        self.taints[id].iter().any(|taint| taint.effect == "PreferNoSchedule")
    }

    fn forget_counts(&mut self, id: NodeId) {
        if self.present[id] {
            self.present[id] = false;
            self.count -= 1;
            self.forget_images(id);
            self.with_soft_taints -= usize::from(self.has_soft_taint(id));
        }
    }

    fn touch(&mut self, id: NodeId) {
        self.generation += 1;
        self.changed[id] = self.generation;
    }

    /// Gives the row of a node that is gone, and on which no pod is left, to the next new node.
    fn release_row(&mut self, id: NodeId) {
        if !self.present[id] && self.pods[id].is_empty() {
            self.by_name.remove(&self.name[id]);
            self.free.push(id);
        }
    }

    fn row(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.grow();
            self.rows() - 1
        });
        let name: Arc<str> = Arc::from(name);
        self.name[id] = name.clone();
        self.by_name.insert(name, id);
        id
    }

    fn grow(&mut self) {
        self.name.push(Arc::from(""));
        self.present.push(false);
        self.changed.push(0);
        self.labels.push(Arc::default());
        self.taints.push(Arc::from([]));
        self.unschedulable.push(false);
        self.others.push(BTreeMap::new());
        self.host_ports.push(Vec::new());
        self.images.push(Arc::default());
        self.pods.push(HashMap::new());
        for column in [
            &mut self.milli_cpu,
            &mut self.milli_cpu_requested,
            &mut self.milli_cpu_assumed,
            &mut self.memory,
            &mut self.memory_requested,
            &mut self.memory_assumed,
            &mut self.ephemeral_storage,
            &mut self.ephemeral_storage_requested,
            &mut self.pods_allowed,
        ] {
            column.push(0);
        }
    }
}
