//! Tokens for service accounts.

use admission::{Lookup, Operation};
use api::{Error, FieldError, Path, Resource, Value, kinds};
use auth::authenticate::{Bound, TokenSpec};
use http::{Response, StatusCode};
use registry::Part;
use schema::TypeRef;
use schema::ownership::{self, Filter, Node, Versions, Writer};
use serde_json::json;

use crate::body::Body;
use crate::call::Call;
use crate::decode::{self, Expected};
use crate::negotiate;
use crate::respond;

/// Upstream's default and limits.
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;

const API_VERSION: &str = "authentication.k8s.io/v1";
static TOKEN_REQUEST: Resource = Resource::namespaced("authentication.k8s.io", "v1", "TokenRequest", "", "");

pub async fn run(call: &Call<'_>) -> Result<Response<Body>, Error> {
    let options = call.write_options()?;
    let expected = Expected::named(API_VERSION, "TokenRequest", "authentication/v1.TokenRequest")?;
    let (request, _) = decode::object(expected, call.headers, &call.body, options.validation)?;
    let (namespace, name) = (call.namespace, &call.info.name);
    let account = call
        .server
        .registry
        .get(&call.served, namespace, name)
        .await?
        .value(&call.served)?;
    check_identity(call, &request)?;
    let part = Part {
        operation: Operation::Create,
        name,
        subresource: &call.info.subresource,
        object: request,
        old_object: Value::Null,
    };
    let mut request = call
        .server
        .registry
        .admit_part(&call.served, namespace, part, &options)
        .await?;
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    if seconds < MIN_SECONDS {
        return Err(invalid(&request, "may not specify a duration less than 10 minutes"));
    }
    if seconds > MAX_SECONDS {
        return Err(invalid(&request, "may not specify a duration larger than 2^32 seconds"));
    }
    request["spec"]["expirationSeconds"] = seconds.into();
    track(&mut request, expected.form.built_in(), options.manager());
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
    request["spec"]["audiences"] = json!(audiences);
    let managers = request["metadata"]["managedFields"].take();
    request["metadata"] = json!({
        "name": name, "namespace": namespace, "creationTimestamp": schema::time::format(schema::time::now()),
        "uid": clock::uid(),
    });
    if managers.is_array() {
        request["metadata"]["managedFields"] = managers;
    }
    // Whoever only tries leaves with nothing that works.
    let shown = if options.dry_run { "" } else { &token.token };
    request["status"] = json!({ "token": shown, "expirationTimestamp": schema::time::format(expires) });
    let encoding = negotiate::wanted(call.headers, &call.query, false)?.encoding;
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
        "Pod" => ("Pod", &kinds::pod::POD, call.namespace),
        "Secret" => ("Secret", &kinds::secret::SECRET, call.namespace),
        "Node" => ("Node", &kinds::node::NODE, ""),
        _ => {
            return Err(Error::bad_request(format!(
                "cannot bind token to object of type {}, Kind={kind}",
                grouped(&text(&reference["apiVersion"]))
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

/// A group and version as upstream prints them, the core group's included.
fn grouped(api_version: &str) -> String {
    match api_version.contains('/') {
        true => api_version.to_owned(),
        false => format!("/{api_version}"),
    }
}

fn invalid(request: &Value, why: &str) -> Error {
    let path = Path::new("spec").child("expirationSeconds");
    let problem = FieldError::invalid(&path, request["spec"]["expirationSeconds"].clone(), why);
    Error::invalid(&TOKEN_REQUEST, "", vec![problem])
}

/// A request that names anything names the account that it is made to.
fn check_identity(call: &Call<'_>, request: &Value) -> Result<(), Error> {
    let metadata = &request["metadata"];
    let checks = [("name", call.info.name.as_str()), ("namespace", call.namespace)];
    for (field, wanted) in checks {
        let found = text(&metadata[field]);
        if !found.is_empty() && found != *wanted {
            let why = format!("must match the service account {field} if specified");
            let problem = FieldError::invalid(&Path::new("metadata").child(field), found, why);
            return Err(Error::invalid(&TOKEN_REQUEST, &call.info.name, vec![problem]));
        }
    }
    Ok(())
}

/// Requests for tokens as a kind that has owners of its fields, although none is ever stored.
struct Requests(TypeRef<'static>);

impl Versions for Requests {
    fn node(&self, _: &str) -> Option<Node<'_>> {
        Some(Node::for_type(self.0))
    }

    fn convert(&self, object: &Value, _: &str) -> Option<Value> {
        Some(object.clone())
    }
}

fn track(request: &mut Value, ty: Option<TypeRef<'static>>, manager: &str) {
    let Some(ty) = ty else { return };
    let writer = Writer {
        manager,
        api_version: API_VERSION,
        subresource: "token",
        filter: Filter::default(),
        now: schema::time::now(),
    };
    ownership::track(&Requests(ty), None, request, &writer);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}
