//! Nothing is created in a namespace that does not exist or is on its way out, and some namespaces stay.

use api::kinds::namespace::NAMESPACE;
use api::{Cause, Error, Fields};
use async_trait::async_trait;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct NamespaceLifecycle;

/// The namespaces that the system itself lives in.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

#[async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        match attributes.operation {
            Operation::Delete => attributes.is(&NAMESPACE, ""),
            Operation::Create | Operation::Update | Operation::Connect => {
                // An access review must not tell whether a namespace exists.
                !attributes.namespace.is_empty()
                    && !attributes.concerns(&NAMESPACE)
                    && attributes.resource.group != "authorization.k8s.io"
            }
        }
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        if attributes.operation == Operation::Delete {
            return match IMMORTAL.contains(&attributes.name.as_str()) {
                true => Err(attributes.forbidden("this namespace may not be deleted")),
                false => Ok(()),
            };
        }
        let name = attributes.namespace.as_str();
        let Some(namespace) = lookup.get(&NAMESPACE, "", name) else {
            return Err(Error::not_found(&NAMESPACE, name));
        };
        if attributes.operation == Operation::Create && namespace["status"].text("phase") == "Terminating" {
            let why = format!("unable to create new content in namespace {name} because it is being terminated");
            let mut error = attributes.forbidden(why);
            error.details().causes.push(Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {name} is being terminated"),
                field: "metadata.namespace".to_owned(),
            });
            return Err(error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use api::kinds::config_map::CONFIG_MAP;
    use expect_test::expect;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Cluster, create, run};

    #[test]
    fn a_namespace_must_exist_and_stay() {
        let namespace = |name: &str, phase: &str| {
            (
                &NAMESPACE,
                json!({"metadata": {"name": name}, "status": {"phase": phase}}),
            )
        };
        let cluster = Cluster(vec![namespace("default", "Active"), namespace("old", "Terminating")]);
        let map = |namespace: &str| create(&CONFIG_MAP, json!({"metadata": {"name": "m", "namespace": namespace}}));
        let refusal = |attributes| run(&NamespaceLifecycle, attributes, &cluster).unwrap_err();
        assert!(run(&NamespaceLifecycle, map("default"), &cluster).is_ok());
        expect![[r#"namespaces "none" not found"#]].assert_eq(&refusal(map("none")));
        expect![[r#"configmaps "m" is forbidden: unable to create new content in namespace old because it is being terminated"#]]
            .assert_eq(&refusal(map("old")));
    }

    #[test]
    fn the_systems_own_namespaces_are_not_deleted() {
        let delete = |name: &str| Attributes {
            operation: Operation::Delete,
            name: name.to_owned(),
            ..create(&NAMESPACE, Value::Null)
        };
        let refused = run(&NamespaceLifecycle, delete("kube-system"), &Cluster::default()).unwrap_err();
        expect![[r#"namespaces "kube-system" is forbidden: this namespace may not be deleted"#]].assert_eq(&refused);
        assert!(run(&NamespaceLifecycle, delete("team"), &Cluster::default()).is_ok());
    }
}
