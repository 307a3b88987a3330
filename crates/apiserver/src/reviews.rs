//! Resources that are answered but never stored: reviews of tokens and access, bindings, component statuses.

use api::{Error, Value, Verb};
use auth::{Attributes, Decision, User};
use http::{Response, StatusCode};
use serde_json::json;

use crate::body::Body;
use crate::decode;
use crate::registry::WriteOptions;
use crate::verbs::{Call, method_not_allowed};

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
        ("componentstatuses", "list") => call.presenter()?.list(json!({}), Vec::new()),
        ("componentstatuses", _) => Err(Error::not_found(call.served.resource, &call.info.name)),
        ("bindings", _) => crate::subresource::bind(call).await,
        (plural, "create") => review(call, plural),
        _ => Err(method_not_allowed()),
    }
}

fn review(call: &Call<'_>, plural: &str) -> Result<Response<Body>, Error> {
    let options = WriteOptions::parse(call.user.clone(), &call.query)?;
    let (mut value, _) = decode::object(call.expected()?, call.headers, &call.body, options.validation)?;
    value["status"] = match plural {
        "tokenreviews" => token_review(call, &value["spec"]),
        "selfsubjectreviews" => json!({ "userInfo": user_info(&call.user) }),
        "selfsubjectaccessreviews" => access_review(call, &call.user, &value["spec"]),
        "subjectaccessreviews" => access_review(call, &subject(&value["spec"])?, &value["spec"]),
        "localsubjectaccessreviews" => {
            let namespace = value["spec"]["resourceAttributes"]["namespace"]
                .as_str()
                .unwrap_or_default();
            if namespace != call.info.namespace {
                return Err(Error::bad_request(format!(
                    "spec.resourceAttributes.namespace must match metadata.namespace: {}",
                    call.info.namespace
                )));
            }
            access_review(call, &subject(&value["spec"])?, &value["spec"])
        }
        "selfsubjectrulesreviews" => call.server.gate.rules_of(&call.user, rules_namespace(&value)?),
        other => return Err(Error::internal(format!("{other} has no review"))),
    };
    schema::normalize(call.served.required_type()?, &mut value).map_err(Error::internal)?;
    call.presenter()?.value(StatusCode::CREATED, value)
}

fn rules_namespace(value: &Value) -> Result<&str, Error> {
    let namespace = value["spec"]["namespace"].as_str().unwrap_or_default();
    match namespace.is_empty() {
        true => Err(Error::bad_request("no namespace on request")),
        false => Ok(namespace),
    }
}

fn token_review(call: &Call<'_>, spec: &Value) -> Value {
    let audiences: Vec<String> = strings(&spec["audiences"]);
    let token = spec["token"].as_str().unwrap_or_default();
    match call
        .server
        .gate
        .authenticate_token(&call.server.registry, token, &audiences)
    {
        Ok((user, audiences)) => json!({ "authenticated": true, "user": user_info(&user), "audiences": audiences }),
        Err(error) => json!({ "authenticated": false, "error": error }),
    }
}

fn access_review(call: &Call<'_>, user: &User, spec: &Value) -> Value {
    let decision = call.server.gate.decide(&attributes(user, spec));
    match decision {
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
    }
}

fn subject(spec: &Value) -> Result<User, Error> {
    let name = spec["user"].as_str().unwrap_or_default();
    let groups = strings(&spec["groups"]);
    if name.is_empty() && groups.is_empty() {
        return Err(Error::bad_request(
            "spec.user: Invalid value: \"\": at least one of user or group must be specified",
        ));
    }
    Ok(User {
        name: name.to_owned(),
        groups,
        ..User::default()
    })
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
