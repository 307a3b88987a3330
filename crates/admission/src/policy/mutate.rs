//! Mutating policies: change objects by patches that expressions make.

use api::{Error, Resource, Value};
use cel::{Budget, PER_CALL_LIMIT, RUNTIME_BUDGET};
use serde_json::json;

use super::compiled::{Binding, Mutation, MutationKind, Policy};
use super::params::params_of;
use crate::conditions::Verdict;
use crate::expressions::RequestVariables;
use crate::settings::Settings;
use crate::{Attributes, Lookup};

const PLUGIN: &str = "MutatingAdmissionPolicy";

pub async fn run(
    policies: &[(Policy, Vec<Binding>)],
    attributes: &mut Attributes,
    lookup: &dyn Lookup,
    settings: &Settings,
) -> Result<(), Error> {
    if attributes.object.is_null() {
        return Ok(());
    }
    attributes.reinvocation.begin(PLUGIN, &attributes.object);
    for (policy, bindings) in policies {
        let Some(resource) = policy.criteria.matches(attributes, lookup)? else {
            continue;
        };
        for binding in bindings {
            if let Some(criteria) = &binding.criteria
                && !criteria.matches_binding(attributes, lookup)?
            {
                continue;
            }
            let id = format!("{}/{}", policy.name, binding.name);
            if !attributes.reinvocation.should_call(PLUGIN, &id) {
                continue;
            }
            let before = attributes.object.clone();
            match mutate(policy, binding, resource, attributes, lookup, settings).await {
                Ok(()) => {}
                Err(_) if policy.ignores_failures => attributes.object = before.clone(),
                Err(why) => {
                    let (policy, binding) = (&policy.name, &binding.name);
                    let why = format!("policy '{policy}' with binding '{binding}' denied request: {why}");
                    return Err(attributes.forbidden(why));
                }
            }
            let changed = attributes.object != before;
            attributes
                .reinvocation
                .called(PLUGIN, &id, changed, policy.reinvoke_if_needed);
        }
    }
    attributes.reinvocation.end(PLUGIN, &attributes.object);
    Ok(())
}

async fn mutate(
    policy: &Policy,
    binding: &Binding,
    resource: &'static Resource,
    attributes: &mut Attributes,
    lookup: &dyn Lookup,
    settings: &Settings,
) -> Result<(), String> {
    for params in params_of(policy, binding, attributes, lookup)? {
        let params = params.unwrap_or(Value::Null);
        if let Some(why) = &policy.broken {
            return Err(why.clone());
        }
        for (index, mutation) in policy.mutations.iter().enumerate() {
            // Every mutation sees what those before it have made.
            let patched = {
                let facts =
                    RequestVariables::new(attributes, resource, lookup, &settings.authorizer, &policy.variables);
                let facts = facts.with_params(&params);
                if index == 0 {
                    match policy.conditions.evaluate(&facts) {
                        Verdict::Met => {}
                        Verdict::NotMet => break,
                        Verdict::Failed(why) => return Err(why),
                    }
                }
                let object = shown(attributes, resource);
                let own = (resource.group, resource.version, resource.kind);
                patch(mutation, &facts, attributes.body().unwrap_or(own), &object)?
            };
            let same = std::ptr::eq(resource, attributes.resource) || attributes.body().is_some();
            let mut object = match same {
                true => patched,
                false => lookup
                    .convert(patched, attributes.resource)
                    .await
                    .map_err(|error| error.message)?,
            };
            attributes
                .complete(lookup, &mut object)
                .map_err(|error| error.message)?;
            attributes.object = object;
        }
    }
    Ok(())
}

/// The object in the version that the policy names.
fn shown(attributes: &Attributes, resource: &Resource) -> Value {
    let mut object = attributes.object.clone();
    if !std::ptr::eq(resource, attributes.resource) && attributes.body().is_none() {
        api::convert(&mut object, &resource.api_version());
    }
    object
}

fn patch(mutation: &Mutation, facts: &RequestVariables, kind: Kind, object: &Value) -> Result<Value, String> {
    let program = mutation
        .program
        .as_ref()
        .map_err(|problem| format!("compilation error: {problem}"))?;
    let mut budget = Budget::new(RUNTIME_BUDGET, PER_CALL_LIMIT);
    let made = program.evaluate(facts, &mut budget);
    let made = made.map_err(|error| format!("expression '{}' resulted in error: {error}", mutation.expression))?;
    match mutation.kind {
        MutationKind::JsonPatch => {
            schema::json_patch(object, &made.to_json()).map_err(|error| format!("JSON Patch: {error}"))
        }
        MutationKind::ApplyConfiguration => apply(kind, object, &made.to_json()),
    }
}

/// A group, version and kind.
type Kind = (&'static str, &'static str, &'static str);

/// Merges the fields that an expression gives into the object, lists by their keys.
fn apply((group, version, kind): Kind, object: &Value, configuration: &Value) -> Result<Value, String> {
    let mut configuration = configuration.clone();
    for immutable in ["apiVersion", "kind"] {
        if let Some(fields) = configuration.as_object_mut() {
            fields.remove(immutable);
        }
    }
    if configuration == json!({}) {
        return Ok(object.clone());
    }
    match schema::builtin().kind(group, version, kind) {
        Some(ty) => schema::strategic_merge_patch(ty, object, &configuration).map_err(|error| error.to_string()),
        None => Ok(schema::merge_patch(object, &configuration)),
    }
}
