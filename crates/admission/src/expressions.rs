//! What expressions of webhooks and policies see of a request.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::kinds::namespace::NAMESPACE;
use api::{Fields, Resource};
use auth::authorize::Decision;
use auth::{Authorizer, User};
use cel::{Activation, Authorize, Budget, Check, EvalError, Outcome, Program, Value};
use serde_json::json;

use crate::{Attributes, Lookup};

/// Values of the variables for one request. Variables of a policy are computed when they are first asked for.
pub struct RequestVariables<'a> {
    values: BTreeMap<&'static str, Value>,
    authorizer: Arc<UserAuthorizer>,
    request_check: Check,
    variables: &'a [(String, Program)],
    computed: RefCell<BTreeMap<String, Result<Value, EvalError>>>,
}

impl<'a> RequestVariables<'a> {
    /// `resource` is the version in which the policy or webhook wants to see the objects.
    pub fn new(
        attributes: &Attributes,
        resource: &Resource,
        lookup: &dyn Lookup,
        authorizer: &Arc<dyn Authorizer>,
        variables: &'a [(String, Program)],
    ) -> RequestVariables<'a> {
        let converted = |object: &api::Value| {
            let mut object = object.clone();
            if !object.is_null() && !std::ptr::eq(resource, attributes.resource) && attributes.body().is_none() {
                api::convert(&mut object, &resource.api_version());
            }
            Value::from_json(&object)
        };
        let namespace = match attributes.concerns(&NAMESPACE) || attributes.namespace.is_empty() {
            true => None,
            false => lookup.get(&NAMESPACE, "", &attributes.namespace),
        };
        let values = BTreeMap::from([
            ("object", converted(&attributes.object)),
            ("oldObject", converted(&attributes.old_object)),
            ("request", Value::from_json(&request(attributes, resource))),
            (
                "namespaceObject",
                namespace.as_deref().map_or(Value::Null, Value::from_json),
            ),
        ]);
        let authorizer = UserAuthorizer {
            user: attributes.user.clone(),
            authorizer: authorizer.clone(),
        };
        RequestVariables {
            values,
            authorizer: Arc::new(authorizer),
            request_check: Check {
                group: attributes.resource.group.to_owned(),
                resource: attributes.resource.plural.to_owned(),
                subresource: attributes.subresource.clone(),
                namespace: attributes.namespace.clone(),
                name: attributes.object_name().to_owned(),
                ..Check::default()
            },
            variables,
            computed: RefCell::default(),
        }
    }

    pub fn with_params(mut self, params: &api::Value) -> RequestVariables<'a> {
        self.values.insert("params", Value::from_json(params));
        self
    }
}

impl Activation for RequestVariables<'_> {
    fn variable(&self, name: &str) -> Option<Value> {
        match name {
            "authorizer" => Some(Value::authorizer(self.authorizer.clone())),
            name => self.values.get(name).cloned(),
        }
    }

    fn lazy_field(&self, name: &str, field: &str, budget: &mut Budget) -> Option<Result<Value, EvalError>> {
        match (name, field) {
            ("authorizer", "requestResource") => Some(Ok(Value::request_resource(
                self.authorizer.clone(),
                self.request_check.clone(),
            ))),
            ("variables", field) => {
                if let Some(known) = self.computed.borrow().get(field) {
                    return Some(known.clone());
                }
                let (_, program) = self.variables.iter().find(|(name, _)| name == field)?;
                let computed = program.evaluate(self, budget);
                self.computed.borrow_mut().insert(field.to_owned(), computed.clone());
                Some(computed)
            }
            _ => None,
        }
    }
}

fn request(attributes: &Attributes, resource: &Resource) -> api::Value {
    let kind = |resource: &Resource| {
        let body = resource
            .subresource(&attributes.subresource)
            .and_then(|found| found.body);
        let (group, version, kind) = body.unwrap_or((resource.group, resource.version, resource.kind));
        json!({"group": group, "version": version, "kind": kind})
    };
    let named = |resource: &Resource| json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let mut request = json!({
        "kind": kind(resource), "resource": named(resource), "subResource": attributes.subresource,
        "requestKind": kind(attributes.resource), "requestResource": named(attributes.resource),
        "requestSubResource": attributes.subresource, "name": attributes.object_name(),
        "namespace": attributes.namespace, "operation": attributes.operation.as_str(),
        "userInfo": user_info(attributes), "dryRun": attributes.dry_run,
    });
    if !attributes.options.is_null() {
        request.set("options", attributes.options.clone());
    }
    request
}

/// Answers the questions of an expression for the user who makes the request.
struct UserAuthorizer {
    user: User,
    authorizer: Arc<dyn Authorizer>,
}

impl Authorize for UserAuthorizer {
    fn authorize(&self, check: &Check) -> Outcome {
        let account = check.service_account.as_ref().map(|(namespace, name)| {
            let all = format!("system:serviceaccounts:{namespace}");
            let groups = ["system:serviceaccounts", all.as_str(), "system:authenticated"];
            User::new(format!("system:serviceaccount:{namespace}:{name}"), &groups)
        });
        let attributes = auth::authorize::Attributes {
            user: account.as_ref().unwrap_or(&self.user),
            verb: &check.verb,
            group: &check.group,
            version: "*",
            resource: &check.resource,
            subresource: &check.subresource,
            namespace: &check.namespace,
            name: &check.name,
            path: &check.path,
            is_resource: check.path.is_empty(),
            field_selector: None,
            label_selector: None,
        };
        let (allowed, reason) = match self.authorizer.authorize(&attributes) {
            Decision::Allow(reason) => (true, reason),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => (false, reason),
        };
        Outcome {
            allowed,
            reason,
            error: None,
        }
    }
}

/// Who makes the request, as reviews and policies see it.
pub fn user_info(attributes: &Attributes) -> serde_json::Value {
    let user = &attributes.user;
    let mut info = serde_json::Map::new();
    for (field, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            info.insert(field.to_owned(), text.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".to_owned(), json!(user.extra));
    }
    info.into()
}
