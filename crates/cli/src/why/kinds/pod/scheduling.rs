//! Pods that have no node.

use api::Value;
use api::kinds::node::NODE;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;

use super::resources;
use crate::why::facts::Facts;
use crate::why::finding::{Finding, Reference};
use crate::why::look::{self, Look};

/// How long a scheduler may take to look at a pod.
const PATIENCE_SECONDS: u64 = 10;
const MAX_NODES: usize = 5;
/// What follows the reasons in the scheduler's message, about preemption.
const ENDS: &[&str] = &[". no new claims to deallocate", ". preemption:"];

/// What a filter of the scheduler says, what that means with numbers, and what to do.
struct Filter {
    says: &'static str,
    explain: fn(&Facts, &Value, &str) -> Vec<String>,
    remedy: &'static str,
}

const FILTERS: &[Filter] = &[
    Filter {
        says: "Insufficient ",
        explain: resources::shortage,
        remedy: "Lower the requests of the pod, scale down other workloads, or add a node.",
    },
    Filter {
        says: "Too many pods",
        explain: |facts, _, _| pod_limits(facts),
        remedy: "Delete pods, raise the kubelet's maxPods, or add a node.",
    },
    Filter {
        says: "untolerated taint",
        explain: |facts, pod, _| untolerated(facts, pod),
        remedy: "Add a toleration to spec.tolerations, or remove the taint: kubectl taint nodes NODE KEY-",
    },
    Filter {
        says: "were unschedulable",
        explain: |facts, _, _| cordoned(facts),
        remedy: "Make the node schedulable again: kubectl uncordon NODE",
    },
    Filter {
        says: "node affinity/selector",
        explain: |facts, pod, _| unmatched_selector(facts, pod),
        remedy: "Change spec.nodeSelector or spec.affinity, or label a node: kubectl label node NODE KEY=VALUE",
    },
    Filter {
        says: "requested node name",
        explain: |_, pod, _| vec![format!("The pod requires node \"{}\".", pod.str("spec.nodeName"))],
        remedy: "Correct spec.nodeName.",
    },
    Filter {
        says: "free ports",
        explain: |_, pod, _| host_ports(pod),
        remedy: "Use a Service instead of hostPort, or fewer replicas than there are nodes.",
    },
    Filter {
        says: "anti-affinity rules",
        explain: |_, _, _| vec!["The podAntiAffinity of this pod or of a running pod excludes the node.".to_owned()],
        remedy: "Add nodes, use fewer replicas, or make the rule preferredDuringSchedulingIgnoredDuringExecution.",
    },
    Filter {
        says: "pod affinity rules",
        explain: |_, _, _| vec!["No node runs pods that match spec.affinity.podAffinity.".to_owned()],
        remedy: "Check the labelSelector of the rule, or start the other pods first.",
    },
    Filter {
        says: "topology spread constraints",
        explain: |_, pod, _| spread(pod),
        remedy: "Label the nodes with the topology key, raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway.",
    },
    Filter {
        says: "volume node affinity",
        explain: |_, _, _| vec!["A volume of the pod is only accessible from other nodes.".to_owned()],
        remedy: "Free resources on the node that has the volume: kubectl describe pv",
    },
    Filter {
        says: "PersistentVolume's node affinity",
        explain: |_, _, _| vec!["A volume of the pod is only accessible from other nodes.".to_owned()],
        remedy: "Free resources on the node that has the volume: kubectl describe pv",
    },
    Filter {
        says: "available persistent volumes to bind",
        explain: |facts, pod, _| open_claims(facts, pod),
        remedy: "Create a matching PersistentVolume, or use a StorageClass with a provisioner.",
    },
    Filter {
        says: "enough free storage",
        explain: |facts, pod, _| open_claims(facts, pod),
        remedy: "Request less storage, or free storage on the node.",
    },
    Filter {
        says: "unbound immediate PersistentVolumeClaims",
        explain: |facts, pod, _| open_claims(facts, pod),
        remedy: "Check the claim: karve why pvc/NAME",
    },
    Filter {
        says: "persistentvolumeclaim",
        explain: |_, _, _| Vec::new(),
        remedy: "Create the PersistentVolumeClaim, or correct spec.volumes.",
    },
    Filter {
        says: "max volume count",
        explain: |_, _, _| {
            vec!["The nodes have reached the maximum number of attached volumes of their CSI driver.".to_owned()]
        },
        remedy: "Delete pods with volumes, or add a node.",
    },
];

/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: …`
pub fn no_node_fits(facts: &Facts, pod: &Value) -> Vec<Finding> {
    let Some(condition) = pod
        .condition_is("PodScheduled", "False")
        .filter(|condition| condition.str("reason") == "Unschedulable")
    else {
        return Vec::new();
    };
    let message = condition.str("message");
    let told = ENDS
        .iter()
        .fold(message, |told, end| told.split(end).next().unwrap_or_default());
    let (nodes, reasons) = told.split_once("nodes are available: ").unwrap_or(("", told));
    let total = nodes.trim().trim_start_matches("0/").to_owned();
    let mut finding = Finding::broken(
        "unschedulable",
        match total.as_str() {
            "" => format!("No node can run the pod: {told}"),
            "0" => "No node can run the pod: the cluster has no nodes.".to_owned(),
            "1" => "No node can run the pod: 0 of 1 node is suitable.".to_owned(),
            total => format!("No node can run the pod: 0 of {total} nodes are suitable."),
        },
    );
    if total == "0" {
        return vec![finding.next("Add a node (karve join), or check the kubelet's log.")];
    }
    for reason in split_reasons(reasons) {
        if !total.is_empty() {
            finding = finding.detail(format!("{reason}."));
        }
        let Some(filter) = FILTERS.iter().find(|filter| reason.contains(filter.says)) else {
            continue;
        };
        finding = finding.details(
            (filter.explain)(facts, pod, reason)
                .into_iter()
                .map(|line| format!("  {line}")),
        );
        if !finding.remedies.iter().any(|told| told == filter.remedy) {
            finding = finding.next(filter.remedy);
        }
    }
    vec![with_claim_root(facts, pod, finding)]
}

/// Reasons are separated by commas; one that does not start with a number of nodes belongs to the one before.
fn split_reasons(reasons: &str) -> Vec<&str> {
    let reasons = reasons.trim().trim_end_matches('.');
    let mut found: Vec<&str> = Vec::new();
    let mut start = 0;
    for (index, _) in reasons.match_indices(", ") {
        if reasons[index + 2..].starts_with(|char: char| char.is_ascii_digit()) {
            found.push(&reasons[start..index]);
            start = index + 2;
        }
    }
    found.push(&reasons[start..]);
    found
}

fn with_claim_root(facts: &Facts, pod: &Value, finding: Finding) -> Finding {
    let is_about_claims = finding
        .remedies
        .iter()
        .any(|remedy| remedy.contains("pvc/") || remedy.contains("storage"));
    match open_claim_names(facts, pod).first() {
        Some(claim) if is_about_claims => {
            finding.because_of(Reference::new(&PERSISTENT_VOLUME_CLAIM, pod.namespace(), claim))
        }
        _ => finding,
    }
}

pub fn is_gated(_: &Facts, pod: &Value) -> Vec<Finding> {
    let gates: Vec<&str> = pod
        .items("spec.schedulingGates")
        .iter()
        .map(|gate| gate.str("name"))
        .collect();
    if gates.is_empty() {
        return Vec::new();
    }
    let gates = gates.join(", ");
    vec![
        Finding::waiting(
            "scheduling-gated",
            format!("It is not scheduled because of spec.schedulingGates: {gates}."),
        )
        .next(format!(
            "Check the controller that owns {gates}; it must remove the gate."
        )),
    ]
}

pub fn no_scheduler(facts: &Facts, pod: &Value) -> Vec<Finding> {
    let has_gates = !pod.items("spec.schedulingGates").is_empty();
    let is_pending = matches!(pod.str("status.phase"), "Pending" | "");
    let is_untouched = pod.str("spec.nodeName").is_empty() && pod.condition("PodScheduled").is_none();
    let age = facts.age(pod);
    if has_gates || !is_pending || !is_untouched || pod.is_deleting() || age < PATIENCE_SECONDS {
        return Vec::new();
    }
    let name = pod.str("spec.schedulerName");
    let finding = Finding::broken(
        "no-scheduler",
        format!(
            "No scheduler has processed it for {}; its spec.schedulerName is \"{name}\".",
            look::duration(age)
        ),
    );
    vec![match name {
        "default-scheduler" => {
            finding.next("Check that kube-scheduler is running: kubectl -n kube-system get lease kube-scheduler")
        }
        _ => finding.next(format!("Start scheduler \"{name}\", or remove spec.schedulerName.")),
    }]
}

fn pod_limits(facts: &Facts) -> Vec<String> {
    let nodes = facts.list(&NODE).iter().take(MAX_NODES);
    nodes
        .map(|node| {
            format!(
                "Node {} can run {} pods.",
                node.name(),
                node.str("status.allocatable.pods")
            )
        })
        .collect()
}

fn untolerated(facts: &Facts, pod: &Value) -> Vec<String> {
    let tolerations = pod.items("spec.tolerations");
    let mut lines = Vec::new();
    for node in facts.list(&NODE) {
        let taints = node.items("spec.taints").iter().filter(|taint| {
            taint.str("effect") != "PreferNoSchedule"
                && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
        });
        let taints: Vec<String> = taints.map(taint_text).collect();
        if !taints.is_empty() {
            lines.push(format!("Node {} has the taint {}.", node.name(), taints.join(", ")));
        }
    }
    lines.truncate(MAX_NODES);
    lines
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let effect = toleration.str("effect");
    let key = toleration.str("key");
    let same_effect = effect.is_empty() || effect == taint.str("effect");
    let same_key = key.is_empty() || key == taint.str("key");
    let same_value = toleration.str("operator") == "Exists" || toleration.str("value") == taint.str("value");
    same_effect && same_key && same_value
}

/// `key=value:effect`, as kubectl writes it.
pub fn taint_text(taint: &Value) -> String {
    match taint.str("value") {
        "" => format!("{}:{}", taint.str("key"), taint.str("effect")),
        value => format!("{}={value}:{}", taint.str("key"), taint.str("effect")),
    }
}

fn cordoned(facts: &Facts) -> Vec<String> {
    let nodes = facts.list(&NODE).iter().filter(|node| node.yes("spec.unschedulable"));
    let names: Vec<&str> = nodes.map(Look::name).take(MAX_NODES).collect();
    match names.is_empty() {
        true => Vec::new(),
        false => vec![format!("Cordoned nodes: {}.", names.join(", "))],
    }
}

fn unmatched_selector(facts: &Facts, pod: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, wanted) in pod.pairs("spec.nodeSelector") {
        let mut found: Vec<&str> = facts
            .list(&NODE)
            .iter()
            .filter_map(|node| node.at("metadata.labels").get(key)?.as_str())
            .collect();
        found.sort_unstable();
        found.dedup();
        if found.contains(&wanted) {
            continue;
        }
        lines.push(match found.is_empty() {
            true => format!("spec.nodeSelector requires {key}={wanted}, but no node has the label {key}."),
            false => format!(
                "spec.nodeSelector requires {key}={wanted}, but nodes have {key}={}.",
                found.join(", ")
            ),
        });
    }
    let required = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    for term in pod.items(required) {
        for expression in term.items("matchExpressions") {
            let values = expression.texts("values").join(", ");
            let (key, operator) = (expression.str("key"), expression.str("operator"));
            lines.push(
                format!("spec.affinity.nodeAffinity requires {key} {operator} {values}")
                    .trim_end()
                    .to_owned()
                    + ".",
            );
        }
    }
    lines
}

fn host_ports(pod: &Value) -> Vec<String> {
    let containers = pod.items("spec.containers").iter();
    let ports = containers.flat_map(|container| container.items("ports"));
    let ports: Vec<String> = ports
        .filter(|port| port.int("hostPort") != 0)
        .map(|port| format!("{}/{}", port.int("hostPort"), port.str("protocol")))
        .collect();
    vec![format!("The pod requires hostPort {}.", ports.join(", "))]
}

fn spread(pod: &Value) -> Vec<String> {
    let constraints = pod.items("spec.topologySpreadConstraints").iter();
    constraints
        .map(|constraint| {
            format!(
                "topologyKey {} allows a maxSkew of {}.",
                constraint.str("topologyKey"),
                constraint.int("maxSkew")
            )
        })
        .collect()
}

fn open_claim_names<'a>(facts: &'a Facts, pod: &'a Value) -> Vec<&'a str> {
    let claims = pod.items("spec.volumes").iter();
    let claims = claims.map(|volume| volume.str("persistentVolumeClaim.claimName"));
    let is_open = |name: &&str| {
        let claim = facts.find(&PERSISTENT_VOLUME_CLAIM, pod.namespace(), name);
        !name.is_empty() && claim.is_some_and(|claim| claim.str("status.phase") != "Bound")
    };
    claims.filter(is_open).collect()
}

fn open_claims(facts: &Facts, pod: &Value) -> Vec<String> {
    let names = open_claim_names(facts, pod).into_iter();
    names
        .map(|name| format!("PersistentVolumeClaim {name} is not bound."))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn reasons_are_split_where_a_number_of_nodes_begins() {
        let text = "1 Insufficient cpu, 1 Insufficient memory, 2 node(s) had untolerated taint {a: b}, x.";
        let expected = [
            "1 Insufficient cpu",
            "1 Insufficient memory",
            "2 node(s) had untolerated taint {a: b}, x",
        ];
        assert_eq!(super::split_reasons(text), expected);
    }
}
