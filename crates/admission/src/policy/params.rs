//! The parameters of a binding.

use std::sync::Arc;

use api::selector::Selector;
use api::{Fields, LabelSelector, Resource, Value};

use super::compiled::{Binding, Policy};
use crate::matching::label_of;
use crate::{Attributes, Lookup};

/// The objects with which a policy is evaluated, once for each: one `None` for policies without parameters, and nothing
/// when a binding says that missing parameters do not matter.
pub fn params_of(
    policy: &Policy,
    binding: &Binding,
    attributes: &Attributes,
    lookup: &dyn Lookup,
) -> Result<Vec<Option<Value>>, String> {
    let reference = &binding.params;
    let (Some((group, version, kind)), true) = (&policy.param_kind, reference.is_object()) else {
        return Ok(vec![None]);
    };
    let resource = lookup.find_kind(group, version, kind);
    let resource = resource.ok_or_else(|| {
        let gvk = format!("{group}/{version}, Kind={kind}");
        format!("failed to find resource referenced by paramKind: '{gvk}'")
    })?;
    let namespace = namespace_of(resource, reference, attributes)?;
    let found: Vec<Value> = match reference.text("name") {
        "" => {
            let selector: LabelSelector = serde_json::from_value(reference["selector"].clone()).unwrap_or_default();
            let selector = Selector::from(&selector);
            let mut found = lookup.list(resource, &namespace);
            found.retain(|object| selector.matches_with(label_of(object)));
            found
        }
        name => {
            let found = lookup.get(resource, &namespace, name);
            found.into_iter().map(Arc::unwrap_or_clone).collect()
        }
    };
    match (found.is_empty(), reference.text("parameterNotFoundAction")) {
        (true, "Allow") => Ok(Vec::new()),
        (true, _) => Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()),
        (false, _) => Ok(found.into_iter().map(Some).collect()),
    }
}

/// Parameters stand in the namespace that is named, or else in that of the object.
fn namespace_of(resource: &Resource, reference: &Value, attributes: &Attributes) -> Result<String, String> {
    match (resource.namespaced, reference.text("namespace")) {
        (false, "") => Ok(String::new()),
        (false, _) => Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned()),
        (true, "") if attributes.namespace.is_empty() => {
            Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned())
        }
        (true, "") => Ok(attributes.namespace.clone()),
        (true, namespace) => Ok(namespace.to_owned()),
    }
}
