//! Devices that others use are open only to claims in namespaces that their owner marked for it.
//!
//! Not one of the plugins that can be switched off: without it, everybody who may write claims could look into
//! everybody's devices.

use admission::{Attributes, Lookup, Operation, Plugin};
use api::kinds::namespace::NAMESPACE;
use api::kinds::resource_claim::RESOURCE_CLAIM;
use api::kinds::resource_claim_template::RESOURCE_CLAIM_TEMPLATE;
use api::{Error, FieldError, Fields, Path, Value};
use async_trait::async_trait;

/// The label by which a namespace is marked.
const LABEL: &str = "resource.kubernetes.io/admin-access";

pub struct DeviceAdminAccess;

#[async_trait]
impl Plugin for DeviceAdminAccess {
    fn name(&self) -> &'static str {
        "DeviceAdminAccess"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create
            && (attributes.is(&RESOURCE_CLAIM, "") || attributes.is(&RESOURCE_CLAIM_TEMPLATE, ""))
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let (spec, path) = match attributes.is(&RESOURCE_CLAIM, "") {
            true => (&attributes.object["spec"], Path::new("spec")),
            false => (&attributes.object["spec"]["spec"], Path::new("spec").child("spec")),
        };
        let wanted = administered(&spec["devices"], &path.child("devices"));
        if wanted.is_empty() {
            return Ok(());
        }
        let namespace = lookup.get(&NAMESPACE, "", &attributes.namespace);
        if namespace.is_some_and(|namespace| namespace["metadata"]["labels"].text(LABEL) == "true") {
            return Ok(());
        }
        let detail = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
        let problems = wanted.iter().map(|path| FieldError::forbidden(path, detail.as_str()));
        Err(Error::invalid(
            attributes.resource,
            &attributes.name,
            problems.collect(),
        ))
    }
}

/// The requests that ask for it. Upstream names the place it had before there were alternatives.
fn administered(devices: &Value, path: &Path) -> Vec<Path> {
    let requests = devices.list("requests").iter().enumerate();
    requests
        .filter(|(_, request)| request["exactly"].flag("adminAccess"))
        .map(|(index, _)| path.child("requests").index(index).child("adminAccess"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::Resource;
    use auth::User;
    use expect_test::expect;
    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;

    /// A cluster with one namespace.
    struct OneNamespace(Value);

    impl Lookup for OneNamespace {
        fn get(&self, _: &'static Resource, _: &str, _: &str) -> Option<Arc<Value>> {
            Some(Arc::new(self.0.clone()))
        }

        fn list(&self, _: &'static Resource, _: &str) -> Vec<Value> {
            vec![self.0.clone()]
        }
    }

    fn check(labels: Value, requests: Value) -> String {
        let attributes = Attributes {
            user: User::system("jane", &[]),
            operation: Operation::Create,
            resource: &RESOURCE_CLAIM,
            subresource: String::new(),
            namespace: "default".to_owned(),
            name: "mine".to_owned(),
            object: json!({"spec": {"devices": {"requests": requests}}}),
            old_object: Value::Null,
            dry_run: false,
            options: Value::Null,
            remarks: Arc::default(),
            reinvocation: admission::Reinvocation::default(),
        };
        let namespace = OneNamespace(json!({"metadata": {"labels": labels}}));
        let checked = DeviceAdminAccess.validate(&attributes, &namespace).now_or_never();
        let checked = checked.expect("it does not wait");
        checked.err().map(|error| error.message).unwrap_or_default()
    }

    #[test]
    fn others_devices_are_open_only_in_namespaces_marked_for_it() {
        let plain = json!({"name": "a", "exactly": {"deviceClassName": "c"}});
        let admin = json!({"name": "b", "exactly": {"deviceClassName": "c", "adminAccess": true}});
        assert_eq!(check(json!({}), json!([plain])), "");
        assert_eq!(check(json!({LABEL: "true"}), json!([plain, admin])), "");
        expect![[
            r#"ResourceClaim.resource.k8s.io "mine" is invalid: spec.devices.requests[1].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"#
        ]]
        .assert_eq(&check(json!({}), json!([plain, admin])));
    }
}
