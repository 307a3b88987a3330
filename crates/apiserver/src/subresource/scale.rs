//! Scale: the number of replicas of a workload, in one shape for all of them.

use admission::Operation;
use api::selector::Selector;
use api::{Error, FieldError, LabelSelector, Path, Reason, Resource, Value};
use http::{Response, StatusCode};
use registry::remarks::warn;
use registry::{Part, Scope, Tracking, WriteOptions};
use serde::Deserialize;
use serde_json::json;

use crate::body::Body;
use crate::call::{Call, named};
use crate::decode::{self, Expected};
use crate::negotiate;
use crate::patch_type::{PatchType, invalid_patch};
use crate::patching::check_form;
use crate::respond;

/// The scale as messages name it.
static SCALE: Resource = Resource::namespaced("autoscaling", "v1", "Scale", "", "");

pub async fn run(call: &Call<'_>) -> Result<Response<Body>, Error> {
    let (namespace, name) = (call.namespace, &call.info.name);
    let registry = &call.server.registry;
    if call.info.verb == "get" {
        let parent = registry.get(&call.served, namespace, name).await?.value(&call.served)?;
        return answer(call, &parent);
    }
    let mut options = call.write_options()?;
    let expected = Expected::named("autoscaling/v1", "Scale", "autoscaling/v1.Scale")?;
    let written = match call.info.verb {
        "update" => Some(decode::object(expected, call.headers, &call.body, options.validation)?.0),
        _ => None,
    };
    if let Some(written) = &written {
        named(written, name)?;
    }
    let config = match (&written, call.info.verb) {
        (None, "patch") if call.patch_type()? == PatchType::Apply => {
            let config = parent_configuration(call, call.configuration(options.validation)?.value)?;
            let by = std::mem::replace(&mut options.tracking, Tracking::Done);
            Some((
                config,
                WriteOptions {
                    tracking: by,
                    ..options.clone()
                },
            ))
        }
        _ => None,
    };
    let wanted = |parent: &Value| {
        if let Some((config, options)) = &config {
            return applied(call, parent, config, options);
        }
        let scale = match &written {
            Some(written) => written.clone(),
            None => patched(call, &scale_of(call, parent))?,
        };
        apply(call, parent, &scale)
    };
    write(call, &options, written.as_ref(), &wanted).await
}

/// Admission sees the scale, before and after, and may change it; the workload is written as it was then.
async fn write(
    call: &Call<'_>,
    options: &WriteOptions,
    written: Option<&Value>,
    wanted: &(dyn Fn(&Value) -> Result<Value, Error> + Sync),
) -> Result<Response<Body>, Error> {
    let (namespace, name) = (call.namespace, &call.info.name);
    let registry = &call.server.registry;
    let mut turns = MAX_TURNS;
    loop {
        turns -= 1;
        let parent = registry.get(&call.served, namespace, name).await?.value(&call.served)?;
        let mut changed = wanted(&parent)?;
        let asked = written.cloned().unwrap_or_else(|| scale_of(call, &changed));
        let part = Part {
            operation: Operation::Update,
            name,
            subresource: &call.info.subresource,
            object: asked.clone(),
            old_object: scale_of(call, &parent),
        };
        let admitted = registry.admit_part(&call.served, call.namespace, part, options).await?;
        if admitted["spec"]["replicas"] != asked["spec"]["replicas"] {
            set_replicas(call, &mut changed, replicas(&admitted)?);
        }
        let revision = parent["metadata"]["resourceVersion"].clone();
        let unconditional = is_any(&changed["metadata"]["resourceVersion"])
            || (written.is_none() && changed["metadata"]["resourceVersion"] == revision);
        if unconditional {
            changed["metadata"]["resourceVersion"] = revision;
        }
        let scope = Scope::Subresource("scale");
        let mut change = |_: &Value| Ok(changed.clone());
        let admitted = options.after_admission();
        let stored = registry
            .update(&call.served, namespace, name, scope, &admitted, &mut change)
            .await;
        match stored {
            Err(error) if unconditional && turns > 0 && error.reason == Reason::Conflict => {}
            stored => return answer(call, &stored?.value(&call.served)?),
        }
    }
}

/// How often a scale without a revision is tried on a workload that keeps changing.
const MAX_TURNS: usize = 16;

fn is_any(revision: &Value) -> bool {
    matches!(revision.as_str(), None | Some("" | "0"))
}

/// What a configuration of the scale means for the workload itself.
fn parent_configuration(call: &Call<'_>, scale: Value) -> Result<Value, Error> {
    if scale["kind"] != "Scale" || scale["apiVersion"] != "autoscaling/v1" {
        let text = |field: &str| scale[field].as_str().unwrap_or_default().to_owned();
        let found = format!("{}, Kind={}", text("apiVersion"), text("kind"));
        return Err(Error::bad_request(format!("invalid object type: {found}")));
    }
    let mut config = json!({
        "apiVersion": call.served.api_version(), "kind": call.served.resource.kind,
        "metadata": { "name": call.info.name },
    });
    if let Some(replicas) = scale["spec"].get("replicas") {
        config["spec"]["replicas"] = replicas.clone();
    }
    Ok(config)
}

/// The workload with a scale applied to it. To the client, its managers are those of the scale.
fn applied(call: &Call<'_>, parent: &Value, config: &Value, options: &WriteOptions) -> Result<Value, Error> {
    let force = call.query.flag("force");
    let scope = Scope::Subresource("scale");
    let applied = registry::apply(&call.served, Some(parent), config, scope, options.manager(), force);
    applied.map_err(|mut error| {
        let (own, scale) = (format!(" using {}", call.served.api_version()), " using autoscaling/v1");
        error.message = error.message.replace(&own, scale);
        for cause in &mut error.details().causes {
            cause.message = cause.message.replace(&own, scale);
        }
        error
    })
}

fn patched(call: &Call<'_>, scale: &Value) -> Result<Value, Error> {
    let patch: Value = serde_json::from_slice(&call.body)
        .map_err(|error| Error::bad_request(format!("error decoding patch: {error}")))?;
    let kind = PatchType::from_headers(call.headers)?;
    check_form(kind, &patch)?;
    let mut patched = match kind {
        PatchType::Json => schema::json_patch(scale, &patch).map_err(|error| Error::bad_request(error.to_string()))?,
        PatchType::Merge | PatchType::Strategic | PatchType::Apply => schema::merge_patch(scale, &patch),
    };
    let shown = patched.to_string();
    let expected = Expected::named("autoscaling/v1", "Scale", "autoscaling/v1.Scale")?;
    let normal = expected.form.normalize(&mut patched);
    warn(normal.map_err(|error| invalid_patch(shown, &error.to_string()))?);
    Ok(patched)
}

fn apply(call: &Call<'_>, parent: &Value, scale: &Value) -> Result<Value, Error> {
    let mut changed = parent.clone();
    set_replicas(call, &mut changed, replicas(scale)?);
    changed["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"].clone();
    Ok(changed)
}

fn replicas(scale: &Value) -> Result<i64, Error> {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas >= 0 {
        return Ok(replicas);
    }
    let path = Path::new("spec").child("replicas");
    let problem = FieldError::invalid(&path, replicas, "must be greater than or equal to 0");
    let name = scale["metadata"]["name"].as_str().unwrap_or_default();
    Err(Error::invalid(&SCALE, name, vec![problem]))
}

fn set_replicas(call: &Call<'_>, parent: &mut Value, replicas: i64) {
    match custom_paths(call) {
        Some(paths) => paths.spec_replicas.set(parent, replicas.into()),
        None => parent["spec"]["replicas"] = replicas.into(),
    }
}

fn answer(call: &Call<'_>, parent: &Value) -> Result<Response<Body>, Error> {
    let encoding = negotiate::wanted(call.headers, &call.query, false)?.encoding;
    let ty = schema::builtin().named("autoscaling/v1.Scale");
    let encoded = respond::encode(&scale_of(call, parent), ty, encoding)?;
    Ok(respond::bytes(StatusCode::OK, encoding.media_type(), encoded))
}

/// Where a custom resource keeps what the scale shows.
fn custom_paths<'c>(call: &'c Call<'_>) -> Option<&'c api::custom::ScalePaths> {
    call.served.custom.as_ref()?.version().scale.as_ref()
}

/// What the scale shows: the wanted and the actual replicas, and the selector.
fn scaled(call: &Call<'_>, parent: &Value) -> (i64, i64, String) {
    let Some(paths) = custom_paths(call) else {
        let replicas = |part: &str| parent[part]["replicas"].as_i64().unwrap_or(0);
        return (
            replicas("spec"),
            replicas("status"),
            selector_text(&parent["spec"]["selector"]),
        );
    };
    let replicas = |path: &api::custom::SimplePath| path.get(parent).and_then(Value::as_i64).unwrap_or(0);
    let selector = paths.selector.as_ref().and_then(|path| path.get(parent)?.as_str());
    let selector = selector.unwrap_or_default().to_owned();
    (
        replicas(&paths.spec_replicas),
        replicas(&paths.status_replicas),
        selector,
    )
}

fn scale_of(call: &Call<'_>, parent: &Value) -> Value {
    let metadata = &parent["metadata"];
    let (wanted, actual, selector) = scaled(call, parent);
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {},
        "status": { "replicas": actual },
    });
    if wanted != 0 {
        scale["spec"]["replicas"] = wanted.into();
    }
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// A selector as the query string would have it; replication controllers select by a plain map.
fn selector_text(selector: &Value) -> String {
    let is_plain = selector
        .as_object()
        .is_some_and(|map| map.values().all(Value::is_string));
    let selector = match is_plain {
        true => LabelSelector::deserialize(&json!({ "matchLabels": selector })),
        false => LabelSelector::deserialize(selector),
    };
    selector
        .map(|selector| Selector::from(&selector).to_string())
        .unwrap_or_default()
}
