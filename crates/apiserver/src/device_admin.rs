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
    use serde_json::json;

    use super::*;

    #[test]
    fn only_requests_that_ask_for_it_are_looked_at() {
        let devices = json!({"requests": [
            {"name": "a", "exactly": {"deviceClassName": "c"}},
            {"name": "b", "exactly": {"deviceClassName": "c", "adminAccess": true}},
        ]});
        let found: Vec<String> = administered(&devices, &Path::new("d"))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, ["d.requests[1].adminAccess"]);
    }
}
