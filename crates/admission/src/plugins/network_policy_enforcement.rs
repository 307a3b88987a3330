//! Warns whoever writes a NetworkPolicy that does not hold on every node. Without it a policy that nothing enforces looks
//! like one that protects.

use api::kinds::network_policy::{ENFORCED_ON_NODE, NETWORK_POLICY};
use api::kinds::node::NODE;
use api::{Error, Value};
use async_trait::async_trait;

use crate::{Attributes, Lookup, Operation, Plugin};

/// Nodes that a warning names.
const MAX_NAMED: usize = 3;

pub struct NetworkPolicyEnforcement;

#[async_trait]
impl Plugin for NetworkPolicyEnforcement {
    fn name(&self) -> &'static str {
        "NetworkPolicyEnforcement"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.is(&NETWORK_POLICY, "")
            && match attributes.operation {
                Operation::Create => true,
                Operation::Update => attributes.object["spec"] != attributes.old_object["spec"],
                _ => false,
            }
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        if let Some(warning) = warning(&lookup.list(&NODE, "")) {
            attributes.remarks.warn(warning);
        }
        Ok(())
    }
}

/// None where no node is known not to enforce policies. Karve's kubelets say whether theirs does; of a node whose kubelet says
/// nothing, such as upstream's, nobody here can know.
fn warning(nodes: &[Value]) -> Option<String> {
    let is_open = |node: &&Value| {
        let said = &node["metadata"]["annotations"][ENFORCED_ON_NODE];
        !said.is_null() && said != "true"
    };
    let open: Vec<&str> = nodes
        .iter()
        .filter(is_open)
        .filter_map(|node| node["metadata"]["name"].as_str())
        .collect();
    let more = open.len().saturating_sub(MAX_NAMED);
    let mut names = open.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    if more > 0 {
        names += &format!(" and {more} more");
    }
    let scope = match open.len() {
        0 => return None,
        count if count == nodes.len() => "any node".to_owned(),
        count => format!("{count} of {} nodes ({names})", nodes.len()),
    };
    Some(format!(
        "Karve does not enforce NetworkPolicies on {scope}: pods there are isolated only if the network plugin of the \
         container runtime enforces this policy"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, run, update};

    fn node(name: &str, enforced: Value) -> (&'static api::Resource, Value) {
        let annotations = json!({ENFORCED_ON_NODE: enforced});
        (&NODE, json!({"metadata": {"name": name, "annotations": annotations}}))
    }

    fn policy(selector: &str) -> Value {
        json!({"metadata": {"name": "deny", "namespace": "shop"}, "spec": {"podSelector": {"matchLabels": {"app": selector}}}})
    }

    fn warnings(request: Attributes, nodes: &[(&'static api::Resource, Value)]) -> Vec<String> {
        let remarks = request.remarks.clone();
        run(&NetworkPolicyEnforcement, request, &Cluster(nodes.to_vec())).unwrap();
        remarks.warnings()
    }

    #[test]
    fn a_policy_that_some_nodes_do_not_enforce_is_warned_about() {
        let ask = |nodes: &[(&'static api::Resource, Value)]| warnings(create(&NETWORK_POLICY, policy("web")), nodes);
        assert!(ask(&[]).is_empty());
        assert!(ask(&[node("a", json!("true"))]).is_empty());
        let rest = "pods there are isolated only if the network plugin of the container runtime enforces this policy";
        for other in [json!("false"), json!("TRUE"), json!(true)] {
            let text = format!("Karve does not enforce NetworkPolicies on any node: {rest}");
            assert_eq!(ask(&[node("a", other.clone())]), [text]);
            let text = format!("Karve does not enforce NetworkPolicies on 1 of 2 nodes (b): {rest}");
            assert_eq!(ask(&[node("a", json!("true")), node("b", other)]), [text]);
        }
        let mut many: Vec<_> = ["b", "c", "d", "e", "f"].map(|name| node(name, json!("false"))).into();
        many.push(node("a", json!("true")));
        assert!(ask(&many)[0].contains("on 5 of 6 nodes (b, c, d and 2 more):"));
    }

    #[test]
    fn of_other_kubelets_nodes_nothing_is_claimed() {
        let nodes = [
            node("theirs", Value::Null),
            (&NODE, json!({"metadata": {"name": "bare"}})),
        ];
        assert!(warnings(create(&NETWORK_POLICY, policy("web")), &nodes).is_empty());
        let mut mixed = nodes.to_vec();
        mixed.push(node("ours", json!("false")));
        assert!(warnings(create(&NETWORK_POLICY, policy("web")), &mixed)[0].contains("on 1 of 3 nodes (ours):"));
    }

    #[test]
    fn only_what_changes_the_policy_is_warned_about() {
        let nodes = [node("a", json!("false"))];
        let same = update(&NETWORK_POLICY, policy("web"), policy("web"));
        assert!(warnings(same, &nodes).is_empty());
        let changed = update(&NETWORK_POLICY, policy("web"), policy("db"));
        assert_eq!(warnings(changed, &nodes).len(), 1);
    }
}
