//! What a kubelet may touch: its own node, the pods bound to it, and what those pods refer to.

mod graph;

use api::Value;
use api::local_volumes::NODE_LABEL;
use api::selector::{Requirement, Selector};
use parking_lot::RwLock;

use super::rbac::Rule;
use super::{Attributes, Authorizer, Decision};
use crate::bootstrap;
use graph::Graph;
pub use graph::{Kind, pod_references};

/// Decides for users that are nodes, and has no opinion on others.
pub struct NodeAuthorizer {
    graph: RwLock<Graph>,
    /// What every node may do to objects that are nobody's in particular.
    rules: Vec<Rule>,
}

const NODE_LEASES: &str = "kube-node-lease";

impl Default for NodeAuthorizer {
    fn default() -> NodeAuthorizer {
        let role = bootstrap::cluster_role("system:node").unwrap_or_default();
        NodeAuthorizer {
            graph: RwLock::default(),
            rules: Rule::parse_all(&role["rules"]),
        }
    }
}

impl NodeAuthorizer {
    /// Takes in an object that was created or changed: a pod, claim, volume, volume attachment or resource slice.
    /// `resource` is its plural name.
    pub fn set(&self, resource: &str, object: &Value) {
        self.graph.write().set(resource, object);
    }

    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        self.graph.write().remove(resource, namespace, name);
    }

    fn decide(&self, node: &str, attributes: &Attributes) -> Result<(), String> {
        let related = |kind: Kind| self.related(node, kind, attributes);
        match (attributes.group, attributes.resource) {
            ("", "secrets") => readable(attributes).and_then(|()| related(Kind::Secret)),
            ("", "configmaps") => readable(attributes).and_then(|()| related(Kind::ConfigMap)),
            ("", "persistentvolumeclaims") if attributes.subresource == "status" => match attributes.verb {
                "update" | "patch" => related(Kind::Claim),
                _ => Err("can only get/update/patch this type".to_owned()),
            },
            ("", "persistentvolumeclaims") => gettable(attributes).and_then(|()| related(Kind::Claim)),
            // Admission lets it say nothing but that the data is gone.
            ("", "persistentvolumes") if attributes.verb == "patch" && attributes.subresource.is_empty() => {
                match self.graph.read().keeps_volume(node, attributes.name) {
                    true => Ok(()),
                    false => Err("can only patch volumes that are directories of this node".to_owned()),
                }
            }
            ("", "persistentvolumes") if matches!(attributes.verb, "list" | "watch") && attributes.name.is_empty() => {
                match requires(attributes.label_selector, NODE_LABEL, node) {
                    true => Ok(()),
                    false => Err(format!(
                        "can only list/watch persistentvolumes with the label selector {NODE_LABEL}={node}"
                    )),
                }
            }
            ("", "persistentvolumes") => gettable(attributes).and_then(|()| related(Kind::Volume)),
            ("resource.k8s.io", "resourceclaims") => gettable(attributes).and_then(|()| related(Kind::ResourceClaim)),
            ("storage.k8s.io", "volumeattachments") => gettable(attributes).and_then(|()| related(Kind::Attachment)),
            ("", "serviceaccounts") => self.decide_account(node, attributes),
            ("coordination.k8s.io", "leases") => decide_lease(node, attributes),
            ("storage.k8s.io", "csinodes") => decide_own(node, attributes, "CSINode", "a CSINode"),
            ("resource.k8s.io", "resourceslices") => self.decide_slice(node, attributes),
            ("", "nodes") => decide_node(node, attributes),
            ("", "pods") => self.decide_pod(node, attributes),
            _ if self.rules.iter().any(|rule| rule.allows(attributes)) => Ok(()),
            _ => Err(String::new()),
        }
    }

    fn related(&self, node: &str, kind: Kind, attributes: &Attributes) -> Result<(), String> {
        if attributes.name.is_empty() {
            return Err("No Object name found".to_owned());
        }
        if self
            .graph
            .read()
            .relates(node, kind, attributes.namespace, attributes.name)
        {
            return Ok(());
        }
        Err(format!("no relationship found between node '{node}' and this object"))
    }

    fn decide_account(&self, node: &str, attributes: &Attributes) -> Result<(), String> {
        match (attributes.verb, attributes.subresource) {
            ("get", "") => readable(attributes)?,
            ("create", "token") if !attributes.name.is_empty() => {}
            ("create", _) if !attributes.name.is_empty() => {
                return Err("can only create token subresource of serviceaccount".to_owned());
            }
            _ => return Err("can only create tokens for individual service accounts".to_owned()),
        }
        self.related(node, Kind::ServiceAccount, attributes)
    }

    fn decide_slice(&self, node: &str, attributes: &Attributes) -> Result<(), String> {
        if !attributes.subresource.is_empty() {
            return Err("cannot authorize ResourceSlice subresources".to_owned());
        }
        match attributes.verb {
            // Admission sees the object and its node.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, Kind::Slice, attributes),
            _ if selects(attributes, "spec.nodeName", node) => Ok(()),
            _ => Err("can only list/watch/deletecollection resourceslices with nodeName field selector".to_owned()),
        }
    }

    fn decide_pod(&self, node: &str, attributes: &Attributes) -> Result<(), String> {
        match (attributes.subresource, attributes.verb) {
            ("", "get") => self.related(node, Kind::Pod, attributes),
            ("", "list" | "watch") if selects(attributes, "spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if !attributes.name.is_empty() => self.related(node, Kind::Pod, attributes),
            ("", "list" | "watch") => Err("can only list/watch pods with spec.nodeName field selector".to_owned()),
            // Which pods exactly is for the NodeRestriction admission plugin to say, which sees the object.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(String::new()),
        }
    }
}

impl Authorizer for NodeAuthorizer {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        let Some(node) = attributes.user.node_name() else {
            return Decision::NoOpinion(String::new());
        };
        let decision = if attributes.is_resource {
            self.decide(node, attributes)
        } else if self.rules.iter().any(|rule| rule.allows(attributes)) {
            Ok(())
        } else {
            Err(String::new())
        };
        match decision {
            Ok(()) => Decision::Allow(String::new()),
            Err(reason) => Decision::NoOpinion(reason),
        }
    }
}

fn readable(attributes: &Attributes) -> Result<(), String> {
    let problem = if !matches!(attributes.verb, "get" | "list" | "watch") {
        "can only read resources of this type"
    } else if !attributes.subresource.is_empty() {
        "cannot read subresource"
    } else if attributes.namespace.is_empty() {
        "can only read namespaced object of this type"
    } else {
        return Ok(());
    };
    Err(problem.to_owned())
}

fn gettable(attributes: &Attributes) -> Result<(), String> {
    if attributes.verb != "get" {
        return Err("can only get individual resources of this type".to_owned());
    }
    if !attributes.subresource.is_empty() {
        return Err("cannot get subresource".to_owned());
    }
    Ok(())
}

fn decide_lease(node: &str, attributes: &Attributes) -> Result<(), String> {
    if !matches!(attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a node lease".to_owned());
    }
    if attributes.namespace != NODE_LEASES {
        return Err(format!(
            "can only access leases in the {NODE_LEASES:?} system namespace"
        ));
    }
    // The name is not known on create; admission checks it.
    if attributes.verb != "create" && attributes.name != node {
        return Err("can only access node lease with the same name as the requesting node".to_owned());
    }
    Ok(())
}

fn decide_own(node: &str, attributes: &Attributes, kind: &str, one: &str) -> Result<(), String> {
    if !matches!(attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err(format!("can only get, create, update, patch, or delete {one}"));
    }
    if !attributes.subresource.is_empty() {
        return Err(format!("cannot authorize {kind} subresources"));
    }
    if attributes.verb != "create" && attributes.name != node {
        return Err(format!(
            "can only access {kind} with the same name as the requesting node"
        ));
    }
    Ok(())
}

fn decide_node(node: &str, attributes: &Attributes) -> Result<(), String> {
    match (attributes.subresource, attributes.verb) {
        // Admission holds it to its own object.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match attributes.name {
            name if name == node => Ok(()),
            "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
            other => Err(format!("node '{node}' cannot read '{other}', only its own Node object")),
        },
        _ => Err(String::new()),
    }
}

fn selects(attributes: &Attributes, field: &str, value: &str) -> bool {
    requires(attributes.field_selector, field, value)
}

/// Whether everything that a selector selects has this value.
fn requires(selector: Option<&Selector>, field: &str, value: &str) -> bool {
    let requirements = selector.map_or(&[][..], |selector| &selector.requirements);
    requirements.iter().any(|requirement| match requirement {
        Requirement::Equals(key, wanted) => key == field && wanted == value,
        _ => false,
    })
}

#[cfg(test)]
mod tests;
