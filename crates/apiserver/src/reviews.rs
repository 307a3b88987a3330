//! Resources that are answered but never stored: reviews of tokens and access, bindings, component statuses.

use std::collections::BTreeMap;

use api::{Error, Fields, Path, Problems, Resource, Value, Verb};
use auth::authorize::review;
use auth::{Attributes, Decision, User};
use http::{Response, StatusCode};
use registry::remarks::warn;
use registry::{Scope, check_namespace};
use serde_json::json;

use crate::body::Body;
use crate::call::Call;
use crate::errors::method_not_allowed;
use crate::{component_status, decode};

/// Upstream does not say which review is wrong.
static SOME_REVIEW: Resource = Resource::cluster("authorization.k8s.io", "v1", "", "", "");

pub async fn run(call: &Call<'_>, verb: &str) -> Result<Response<Body>, Error> {
    if !call
        .served
        .resource
        .verbs
        .iter()
        .any(|allowed: &Verb| allowed.as_str() == verb)
    {
        return Err(method_not_allowed());
    }
    match (call.served.resource.plural, verb) {
        ("componentstatuses", verb) => component_status::run(call, verb).await,
        ("bindings", _) => crate::subresource::bind(call).await,
        (plural, "create") => answer_review(call, plural).await,
        _ => Err(method_not_allowed()),
    }
}

async fn answer_review(call: &Call<'_>, plural: &str) -> Result<Response<Body>, Error> {
    let options = call.write_options()?;
    let (mut value, unknown) = decode::object(call.expected()?, call.headers, &call.body, options.validation)?;
    warn(unknown);
    check_namespace(&mut value, call.served.resource, call.namespace)?;
    if plural.ends_with("accessreviews") {
        check_access(plural, &value)?;
    }
    registry::track(&call.served, None, &mut value, Scope::Main, &options);
    value["status"] = match plural {
        "tokenreviews" => token_review(call, &value["spec"]).await?,
        "selfsubjectreviews" => {
            value["metadata"]["creationTimestamp"] = schema::time::format(schema::time::now()).into();
            json!({ "userInfo": user_info(&call.user) })
        }
        "selfsubjectaccessreviews" => access_review(call, &call.user, &value["spec"]).await,
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            access_review(call, &subject(&value["spec"]), &value["spec"]).await
        }
        "selfsubjectrulesreviews" => call.server.gate.rules_of(&call.user, rules_namespace(&value)?),
        other => return Err(Error::internal(format!("{other} has no review"))),
    };
    schema::normalize(call.served.required_type()?, &mut value).map_err(Error::internal)?;
    call.presenter()?.value(StatusCode::CREATED, value)
}

/// A review that asks nothing, or two things, or about nobody.
fn check_access(plural: &str, review: &Value) -> Result<(), Error> {
    let mut problems = Problems::default();
    let (spec, path) = (&review["spec"], Path::new("spec"));
    let (resource, other) = ("resourceAttributes", "nonResourceAttributes");
    match (spec.has(resource), spec.has(other)) {
        (true, true) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            problems.invalid(&path, other, spec[other].clone(), detail);
        }
        (false, false) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            problems.invalid(&path, resource, Value::Null, detail);
        }
        _ => {}
    }
    if plural != "selfsubjectaccessreviews" && spec.text("user").is_empty() && spec.list("groups").is_empty() {
        let detail = "at least one of user or group must be specified";
        problems.invalid(&path, "user", "", detail);
    }
    let local = plural == "localsubjectaccessreviews";
    let is_own = |field: &String| field == "managedFields" || (local && field == "namespace");
    if review.entries("metadata").any(|(field, _)| !is_own(field)) {
        let detail = match local {
            true => "must be empty except for namespace",
            false => "must be empty",
        };
        problems.invalid(&Path::new("metadata"), "", review["metadata"].clone(), detail);
    }
    if local {
        let (namespace, own) = (spec[resource].text("namespace"), review["metadata"].text("namespace"));
        if spec.has(resource) && namespace != own {
            let path = path.child(resource);
            problems.invalid(&path, "namespace", namespace, "must match metadata.namespace");
        }
        if spec.has(other) {
            let detail = "disallowed on this kind of request";
            problems.invalid(&path, other, spec[other].clone(), detail);
        }
    }
    for selector in ["fieldSelector", "labelSelector"] {
        let place = path.child(resource).child(selector);
        check_selector(&spec[resource][selector], &place, &mut problems);
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::invalid(&SOME_REVIEW, "", problems.into_vec())),
    }
}

/// A selector that a list would have: as text or as requirements, not both and not neither.
fn check_selector(selector: &Value, path: &Path, problems: &mut Problems) {
    if !selector.is_object() {
        return;
    }
    let raw = selector.text("rawSelector");
    let requirements = selector.list("requirements");
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        problems.invalid(path, "rawSelector", raw, detail);
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {path} is specified, requirements or rawSelector is required");
        problems.required(path, "requirements", &detail);
    }
    for (index, requirement) in requirements.iter().enumerate() {
        let path = path.child("requirements").index(index);
        if requirement.text("key").is_empty() {
            problems.required(&path, "key", "must be specified");
        }
        let given = !requirement.list("values").is_empty();
        match requirement.text("operator") {
            "In" | "NotIn" if !given => {
                problems.required(&path, "values", "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if given => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                problems.forbidden(&path, "values", detail);
            }
            _ => {}
        }
    }
}

fn rules_namespace(value: &Value) -> Result<&str, Error> {
    let namespace = value["spec"]["namespace"].as_str().unwrap_or_default();
    match namespace.is_empty() {
        true => Err(Error::bad_request("no namespace on request")),
        false => Ok(namespace),
    }
}

async fn token_review(call: &Call<'_>, spec: &Value) -> Result<Value, Error> {
    let audiences: Vec<String> = strings(&spec["audiences"]);
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        let message = "token is required for TokenReview in authentication";
        return Err(Error::bad_request(message));
    }
    let wanted = (!audiences.is_empty()).then_some(audiences.as_slice());
    let (gate, registry) = (&call.server.gate, &call.server.registry);
    let review = match gate.authenticate_token(registry, token, wanted).await {
        Ok((user, audiences)) => json!({ "authenticated": true, "user": user_info(&user), "audiences": audiences }),
        Err(error) => json!({ "authenticated": false, "error": error }),
    };
    Ok(review)
}

async fn access_review(call: &Call<'_>, user: &User, spec: &Value) -> Value {
    let resource = &spec["resourceAttributes"];
    let fields = review::selector(&resource["fieldSelector"], true);
    let labels = review::selector(&resource["labelSelector"], false);
    let mut attributes = attributes(user, spec);
    (attributes.field_selector, attributes.label_selector) = (fields.as_ref(), labels.as_ref());
    match call.server.gate.decide(&call.server.registry, &attributes).await {
        Decision::Allow(reason) => json!({ "allowed": true, "reason": reason }),
        Decision::Deny(reason) => json!({ "allowed": false, "denied": true, "reason": reason }),
        Decision::NoOpinion(reason) => json!({ "allowed": false, "reason": reason }),
    }
}

fn attributes<'a>(user: &'a User, spec: &'a Value) -> Attributes<'a> {
    let resource = &spec["resourceAttributes"];
    let is_resource = resource.is_object();
    let from = if is_resource {
        resource
    } else {
        &spec["nonResourceAttributes"]
    };
    let text = |field: &str| from[field].as_str().unwrap_or_default();
    Attributes {
        user,
        verb: text("verb"),
        is_resource,
        group: text("group"),
        version: text("version"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        path: text("path"),
        field_selector: None,
        label_selector: None,
    }
}

fn subject(spec: &Value) -> User {
    User {
        name: spec.text("user").to_owned(),
        uid: spec.text("uid").to_owned(),
        groups: strings(&spec["groups"]),
        extra: extra(&spec["extra"]),
    }
}

fn extra(extra: &Value) -> BTreeMap<String, Vec<String>> {
    let entries = extra.as_object().into_iter().flatten();
    entries.map(|(key, values)| (key.clone(), strings(values))).collect()
}

fn user_info(user: &User) -> Value {
    json!({ "username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra })
}

fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
