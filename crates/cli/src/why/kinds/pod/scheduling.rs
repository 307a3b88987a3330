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
        remedy: "Lower the requests of the pod, free a node by scaling something down, or add a node.",
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
        remedy: "Let the node take pods again: kubectl uncordon NODE",
    },
    Filter {
        says: "node affinity/selector",
        explain: |facts, pod, _| unmatched_selector(facts, pod),
        remedy: "Change spec.nodeSelector or spec.affinity, or label a node: kubectl label node NODE KEY=VALUE",
    },
    Filter {
        says: "requested node name",
        explain: |_, pod, _| vec![format!("The pod asks for the node \"{}\".", pod.str("spec.nodeName"))],
        remedy: "Correct spec.nodeName.",
    },
    Filter {
        says: "free ports",
        explain: |_, pod, _| host_ports(pod),
        remedy: "Use a Service instead of hostPort, or fewer replicas than there are nodes.",
    },
    Filter {
        says: "anti-affinity rules",
        explain: |_, _, _| vec!["Pods that already run keep this one away by podAntiAffinity.".to_owned()],
        remedy: "Add nodes, use fewer replicas, or make the rule preferredDuringSchedulingIgnoredDuringExecution.",
    },
    Filter {
        says: "pod affinity rules",
        explain: |_, _, _| {
            vec!["No node runs the pods that spec.affinity.podAffinity wants beside this one.".to_owned()]
        },
        remedy: "Check the labelSelector of the rule, or start the other pods first.",
    },
    Filter {
        says: "topology spread constraints",
        explain: |_, pod, _| spread(pod),
        remedy: "Label the nodes with the topology key, raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway.",
    },
    Filter {
        says: "volume node affinity",
        explain: |_, _, _| vec!["A volume of the pod can only be used on other nodes.".to_owned()],
        remedy: "Make room on the node that has the volume: kubectl describe pv",
    },
    Filter {
        says: "PersistentVolume's node affinity",
        explain: |_, _, _| vec!["A volume of the pod can only be used on other nodes.".to_owned()],
        remedy: "Make room on the node that has the volume: kubectl describe pv",
    },
    Filter {
        says: "available persistent volumes to bind",
        explain: |facts, pod, _| open_claims(facts, pod),
        remedy: "Create a PersistentVolume that fits the claim, or use a StorageClass with a provisioner.",
    },
    Filter {
        says: "enough free storage",
        explain: |facts, pod, _| open_claims(facts, pod),
        remedy: "Ask for less storage, or free some on the node.",
    },
    Filter {
        says: "unbound immediate PersistentVolumeClaims",
        explain: |facts, pod, _| open_claims(facts, pod),
        remedy: "Ask why of the claim: karve why pvc/NAME",
    },
    Filter {
        says: "persistentvolumeclaim",
        explain: |_, _, _| Vec::new(),
        remedy: "Create the PersistentVolumeClaim, or correct spec.volumes.",
    },
    Filter {
        says: "max volume count",
        explain: |_, _, _| vec!["The nodes have as many volumes attached as their driver allows.".to_owned()],
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
            "" => format!("The scheduler finds no node: {told}"),
            "0" => "The scheduler finds no node, because the cluster has none.".to_owned(),
            "1" => "The scheduler finds no node: the only one does not fit.".to_owned(),
            total => format!("The scheduler finds no node: none of {total} fits."),
        },
    );
    if total == "0" {
        return vec![finding.next("Start a node: karve join, or check the kubelet: kubectl get nodes")];
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
            format!("It is held back from scheduling by spec.schedulingGates: {gates}."),
        )
        .next(format!(
            "Whoever set {gates} has to remove it; look at the controller of that name."
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
            "No scheduler has looked at it for {}; it asks for the scheduler \"{name}\".",
            look::duration(age)
        ),
    );
    vec![match name {
        "default-scheduler" => {
            finding.next("The scheduler is down: look at its log and at its Lease kube-scheduler in kube-system.")
        }
        _ => finding.next(format!(
            "Start a scheduler named \"{name}\", or remove spec.schedulerName."
        )),
    }]
}

fn pod_limits(facts: &Facts) -> Vec<String> {
    let nodes = facts.list(&NODE).iter().take(MAX_NODES);
    nodes
        .map(|node| format!("{} may run {} pods.", node.name(), node.str("status.allocatable.pods")))
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
            lines.push(format!("{} has the taint {}.", node.name(), taints.join(", ")));
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
        false => vec![format!("Cordoned: {}.", names.join(", "))],
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
            true => format!("spec.nodeSelector wants {key}={wanted}, and no node has a label {key}."),
            false => format!(
                "spec.nodeSelector wants {key}={wanted}, and nodes have {key}={}.",
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
                format!("spec.affinity.nodeAffinity wants {key} {operator} {values}")
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
    vec![format!(
        "The pod wants the ports {} of its node for itself.",
        ports.join(", ")
    )]
}

fn spread(pod: &Value) -> Vec<String> {
    let constraints = pod.items("spec.topologySpreadConstraints").iter();
    constraints
        .map(|constraint| {
            format!(
                "Over {}, the numbers of pods may differ by at most {}.",
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
    names.map(|name| format!("The claim {name} is not bound.")).collect()
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
