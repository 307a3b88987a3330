//! Binding a pod to a node: the scheduler's one write.

use std::sync::Arc;

use admission::Operation;
use api::{Error, FieldError, Path, Reason, Value, conditions, kinds};
use http::{Response, StatusCode};
use registry::{Part, Scope, Served};
use serde_json::json;

use crate::body::Body;
use crate::call::{Call, success};
use crate::decode::{self, Expected};
use crate::options;

pub async fn bind(call: &Call<'_>) -> Result<Response<Body>, Error> {
    let options = options::write_options(call.user.clone(), &call.query)?;
    let expected = Expected::named("v1", "Binding", "core/v1.Binding")?;
    let (binding, _) = decode::object(expected, call.headers, &call.body, options.validation)?;
    let pods: &Arc<Served> = call.server.registry.served(&kinds::pod::POD)?;
    let named = if call.info.name.is_empty() {
        binding["metadata"]["name"].as_str().unwrap_or_default()
    } else {
        &call.info.name
    };
    if named != binding["metadata"]["name"].as_str().unwrap_or_default() {
        return Err(Error::bad_request("name in URL does not match name in Binding object"));
    }
    let registry = &call.server.registry;
    let part = Part {
        operation: Operation::Create,
        name: named,
        subresource: &call.info.subresource,
        object: binding.clone(),
        old_object: Value::Null,
    };
    let binding = registry
        .admit_part(&call.served, call.namespace, part, &options)
        .await?;
    check_target(&binding["target"])?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let mut change = |pod: &Value| assign(pod, node, &binding);
    let scope = Scope::Subresource("binding");
    let namespace = call.namespace;
    registry
        .update(pods, namespace, named, scope, &options.after_admission(), &mut change)
        .await?;
    Ok(success(StatusCode::CREATED))
}

/// Upstream does not take a binding for an object, so that what is wrong with it is no reason that clients know.
fn check_target(target: &Value) -> Result<(), Error> {
    let path = Path::new("target");
    let mut problems = Vec::new();
    let kind = target["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        problems.push(FieldError::not_supported(&path.child("kind"), kind, &["Node", "<empty>"]).to_string());
    }
    if target["name"].as_str().unwrap_or_default().is_empty() {
        problems.push(FieldError::required(&path.child("name"), "").to_string());
    }
    match problems.as_slice() {
        [] => Ok(()),
        [one] => Err(Error::new(Reason::Unknown, one.as_str())),
        many => Err(Error::new(Reason::Unknown, format!("[{}]", many.join(", ")))),
    }
}

fn assign(pod: &Value, node: &str, binding: &Value) -> Result<Value, Error> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let refuse = |why: String| Err(Error::conflict(&kinds::pod::POD, name, why));
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let wanted_uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
    if !wanted_uid.is_empty() && wanted_uid != pod["metadata"]["uid"] {
        return refuse(format!(
            "Precondition failed: UID in precondition: {wanted_uid}, UID in object meta: {}",
            pod["metadata"]["uid"].as_str().unwrap_or_default()
        ));
    }
    match pod["spec"]["nodeName"].as_str() {
        None | Some("") => {}
        Some(other) => return refuse(format!("pod {name} is already assigned to node {other:?}")),
    }
    if pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut bound = pod.clone();
    bound["spec"]["nodeName"] = node.into();
    // The nomination was for this: a bound pod has nothing to wait for.
    if let Some(status) = bound["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    for part in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][part].as_object().into_iter().flatten() {
            bound["metadata"][part][key] = value.clone();
        }
    }
    let condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "observedGeneration": pod["metadata"]["generation"],
    });
    let now = schema::time::format(schema::time::now());
    conditions::set_condition(&mut bound, condition, &now);
    Ok(bound)
}
