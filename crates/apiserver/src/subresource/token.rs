//! Tokens for service accounts.

use admission::Lookup;
use api::{Error, Value, kinds};
use auth::authenticate::{Bound, TokenSpec};
use http::{Response, StatusCode};
use serde_json::json;

use crate::body::Body;
use crate::decode::{self, Expected};
use crate::negotiate;
use crate::registry::WriteOptions;
use crate::respond;
use crate::verbs::Call;

/// Upstream's default and limits.
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;

pub async fn run(call: &Call<'_>) -> Result<Response<Body>, Error> {
    let options = WriteOptions::parse(call.user.clone(), &call.query)?;
    let expected = Expected::named(
        "authentication.k8s.io/v1",
        "TokenRequest",
        "authentication/v1.TokenRequest",
    )?;
    let (mut request, _) = decode::object(expected, call.headers, &call.body, options.validation)?;
    let (namespace, name) = (&call.info.namespace, &call.info.name);
    let account = call
        .server
        .registry
        .get(&call.served, namespace, name)
        .await?
        .value(&call.served)?;
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    if seconds < MIN_SECONDS {
        return Err(invalid(&request, "may not specify a duration less than 10 minutes"));
    }
    if seconds > MAX_SECONDS {
        return Err(invalid(&request, "may not specify a duration larger than 2^32 seconds"));
    }
    let bound = bound_object(call, &request["spec"]["boundObjectRef"])?;
    let bound_to = |kind: &str| {
        bound
            .iter()
            .find(|bound| bound.kind == kind)
            .map(BoundObject::reference)
    };
    let asked: Vec<String> = texts(&request["spec"]["audiences"]);
    let audiences = if asked.is_empty() {
        call.server.gate.audiences()
    } else {
        asked
    };
    let token = call.server.gate.issue_token(&TokenSpec {
        namespace,
        name,
        uid: account["metadata"]["uid"].as_str().unwrap_or_default(),
        audiences: &audiences,
        expiration_seconds: seconds,
        pod: bound_to("Pod"),
        secret: bound_to("Secret"),
        node: bound_to("Node"),
        warn_after_seconds: None,
    })?;
    let expires = schema::time::Instant {
        seconds: token.expires_at,
        nanos: 0,
    };
    request["spec"]["expirationSeconds"] = seconds.into();
    request["spec"]["audiences"] = json!(audiences);
    request["metadata"] = json!({
        "name": name, "namespace": namespace, "creationTimestamp": schema::time::format(schema::time::now()),
    });
    request["status"] = json!({ "token": token.token, "expirationTimestamp": schema::time::format(expires) });
    let encoding = negotiate::wanted(call.headers, false)?.encoding;
    let encoded = respond::encode(&request, expected.form.built_in(), encoding)?;
    Ok(respond::bytes(StatusCode::CREATED, encoding.media_type(), encoded))
}

/// An object that a token lives and dies with.
struct BoundObject {
    kind: &'static str,
    name: String,
    uid: String,
}

impl BoundObject {
    fn reference(&self) -> Bound<'_> {
        Bound {
            name: &self.name,
            uid: &self.uid,
        }
    }
}

/// The objects a token is bound to, checked to exist: the one that was asked for, and the node of a pod.
fn bound_object(call: &Call<'_>, reference: &Value) -> Result<Vec<BoundObject>, Error> {
    if !reference.is_object() {
        return Ok(Vec::new());
    }
    let (kind, name, uid) = (
        text(&reference["kind"]),
        text(&reference["name"]),
        text(&reference["uid"]),
    );
    let (kind, resource, namespace) = match kind.as_str() {
        "Pod" => ("Pod", &kinds::pod::POD, call.info.namespace.as_str()),
        "Secret" => ("Secret", &kinds::secret::SECRET, call.info.namespace.as_str()),
        "Node" => ("Node", &kinds::node::NODE, ""),
        _ => {
            return Err(Error::bad_request(format!(
                "cannot bind token to object of type {kind}"
            )));
        }
    };
    let found = call.server.registry.lookup().get(resource, namespace, &name);
    let found = found.ok_or_else(|| Error::not_found(resource, &name))?;
    let found_uid = text(&found["metadata"]["uid"]);
    if !uid.is_empty() && uid != found_uid {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Error::conflict(resource, &name, why));
    }
    let mut bound = vec![BoundObject {
        kind,
        name,
        uid: found_uid,
    }];
    let node_name = text(&found["spec"]["nodeName"]);
    if kind == "Pod"
        && let Some(node) = call.server.registry.lookup().get(&kinds::node::NODE, "", &node_name)
    {
        bound.push(BoundObject {
            kind: "Node",
            name: node_name,
            uid: text(&node["metadata"]["uid"]),
        });
    }
    Ok(bound)
}

fn invalid(request: &Value, why: &str) -> Error {
    let path = api::Path::new("spec").child("expirationSeconds");
    let problem = api::FieldError::invalid(&path, request["spec"]["expirationSeconds"].clone(), why);
    Error::new(
        api::Reason::Invalid,
        format!("TokenRequest.authentication.k8s.io \"\" is invalid: {problem}"),
    )
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}
