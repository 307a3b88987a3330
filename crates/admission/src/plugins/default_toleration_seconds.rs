//! A pod stays for five minutes on a node that is not ready or cannot be reached, unless it says otherwise.

use api::kinds::pod::POD;
use api::{Error, Fields};
use async_trait::async_trait;
use serde_json::json;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct DefaultTolerationSeconds;

const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.is(&POD, "")
    }

    async fn mutate(&self, attributes: &mut Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        let spec = attributes.object.ensure("spec");
        let mut tolerations = spec.list("tolerations").to_vec();
        let given = tolerations.clone();
        for key in TAINTS {
            let tolerated = given.iter().any(|toleration| {
                ["", key].contains(&toleration.text("key")) && ["", "NoExecute"].contains(&toleration.text("effect"))
            });
            if !tolerated {
                tolerations.push(json!({
                    "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
                }));
            }
        }
        if tolerations.len() > given.len() {
            spec.set("tolerations", tolerations);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::{Cluster, create, pod, run};

    #[test]
    fn what_is_not_tolerated_is_tolerated_for_a_while() {
        let spec = json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]});
        let admitted = run(&DefaultTolerationSeconds, create(&POD, pod(spec)), &Cluster::default()).unwrap();
        expect![[r#"[{"key":"node.kubernetes.io/not-ready","operator":"Exists"},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}]"#]]
            .assert_eq(&admitted["spec"]["tolerations"].to_string());
    }
}
