//! Validating policies: refuse, warn or note.

use api::{Cause, Error};
use cel::{Budget, PER_CALL_LIMIT, RUNTIME_BUDGET};
use serde_json::{Value, json};

use super::compiled::{Binding, Policy, Validation};
use super::params::params_of;
use crate::conditions::Verdict;
use crate::expressions::RequestVariables;
use crate::settings::Settings;
use crate::{Attributes, Lookup};

/// The longest message that an expression may give.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// One validation that does not hold.
struct Failure {
    message: String,
    reason: String,
    index: usize,
}

pub fn run(
    policies: &[(Policy, Vec<Binding>)],
    attributes: &Attributes,
    lookup: &dyn Lookup,
    settings: &Settings,
) -> Result<(), Error> {
    let mut denied = None;
    let mut noted = Vec::new();
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
            let params = match params_of(policy, binding, attributes, lookup) {
                Ok(params) => params,
                Err(_) if policy.ignores_failures => continue,
                Err(why) => {
                    let failure = Failure {
                        message: format!("failed to configure binding: {why}"),
                        reason: String::new(),
                        index: 0,
                    };
                    denied.get_or_insert((policy, binding, failure));
                    continue;
                }
            };
            for params in params {
                let facts =
                    RequestVariables::new(attributes, resource, lookup, &settings.authorizer, &policy.variables);
                let facts = match &params {
                    Some(params) => facts.with_params(params),
                    None => facts.with_params(&Value::Null),
                };
                for failure in failures(policy, &facts, attributes) {
                    note(policy, binding, &failure, attributes, &mut noted);
                    if binding.actions.iter().any(|action| action == "Deny") {
                        denied.get_or_insert((policy, binding, failure));
                    }
                }
            }
        }
    }
    if !noted.is_empty() {
        let key = "validation.policy.admission.k8s.io/validation_failure";
        attributes.remarks.annotate(key, Value::Array(noted).to_string());
    }
    match denied {
        None => Ok(()),
        Some((policy, binding, failure)) => Err(refusal(policy, binding, failure, attributes)),
    }
}

/// What a policy finds wrong, unless its conditions say that it does not look.
fn failures(policy: &Policy, facts: &RequestVariables, attributes: &Attributes) -> Vec<Failure> {
    let error = |message: String| match policy.ignores_failures {
        true => Vec::new(),
        false => vec![Failure {
            message,
            reason: String::new(),
            index: 0,
        }],
    };
    match policy.conditions.evaluate(facts) {
        Verdict::NotMet => return Vec::new(),
        Verdict::Failed(why) => return error(why),
        Verdict::Met => {}
    }
    if let Some(why) = &policy.broken {
        return error(why.clone());
    }
    let mut budget = Budget::new(RUNTIME_BUDGET, PER_CALL_LIMIT);
    let mut failures = Vec::new();
    for (index, validation) in policy.validations.iter().enumerate() {
        let failed = match &validation.program {
            Err(problem) => Err(format!("compilation error: {problem}")),
            Ok(program) => program.evaluate(facts, &mut budget).map_err(|error| error.to_string()),
        };
        let message = match failed {
            Ok(value) if value.is_true() => continue,
            Ok(_) => message(validation, facts, &mut budget),
            Err(_) if policy.ignores_failures => continue,
            Err(why) => format!("expression '{}' resulted in error: {why}", validation.expression),
        };
        failures.push(Failure {
            message,
            reason: validation.reason.clone(),
            index,
        });
    }
    annotate(policy, facts, attributes, &mut budget);
    failures
}

fn message(validation: &Validation, facts: &RequestVariables, budget: &mut Budget) -> String {
    let said = validation.message_program.as_ref().and_then(|program| {
        let value = program.evaluate(facts, budget).ok()?;
        let text = value.as_text()?.trim().to_owned();
        (!text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE_BYTES).then_some(text)
    });
    said.unwrap_or_else(|| match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.expression),
        message => message.to_owned(),
    })
}

/// Notes what the policy's own annotations say; null says nothing.
fn annotate(policy: &Policy, facts: &RequestVariables, attributes: &Attributes, budget: &mut Budget) {
    for (key, program) in &policy.annotations {
        let Ok(program) = program else { continue };
        if let Ok(value) = program.evaluate(facts, budget)
            && let Some(text) = value.as_text().filter(|text| !text.trim().is_empty())
        {
            attributes.remarks.annotate(format!("{}/{key}", policy.name), text);
        }
    }
}

/// Carries out the actions that do not refuse.
fn note(policy: &Policy, binding: &Binding, failure: &Failure, attributes: &Attributes, noted: &mut Vec<Value>) {
    let acts = |wanted: &str| binding.actions.iter().any(|action| action == wanted);
    if acts("Warn") {
        let (policy, binding) = (&policy.name, &binding.name);
        let message = &failure.message;
        let text =
            format!("Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}");
        attributes.remarks.warn(text);
    }
    if acts("Audit") {
        noted.push(json!({
            "message": failure.message, "policy": policy.name, "binding": binding.name,
            "expressionIndex": failure.index, "validationActions": binding.actions,
        }));
    }
}

fn refusal(policy: &Policy, binding: &Binding, failure: Failure, attributes: &Attributes) -> Error {
    let message = format!(
        "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {}",
        policy.name, binding.name, failure.message
    );
    let (reason, code) = match failure.reason.as_str() {
        "Forbidden" => ("Forbidden", 403),
        "Unauthorized" => ("Unauthorized", 401),
        "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
        _ => ("Invalid", 422),
    };
    let mut error = attributes.forbidden(&message);
    error.details().causes.push(Cause {
        reason: String::new(),
        message,
        field: String::new(),
    });
    error.elsewhere = Some((code, reason.to_owned()));
    error
}
