//! Policies and bindings as they are used: expressions compiled, rules parsed.

use api::expressions::{admission_environment, policy_environment};
use api::{Fields, Value};
use cel::{Environment, Program};

use crate::conditions::Conditions;
use crate::matching::Criteria;

pub struct Policy {
    pub name: String,
    pub criteria: Criteria,
    pub conditions: Conditions,
    pub ignores_failures: bool,
    /// The group, version and kind of its parameters.
    pub param_kind: Option<(String, String, String)>,
    pub variables: Vec<(String, Program)>,
    pub validations: Vec<Validation>,
    pub annotations: Vec<(String, Result<Program, String>)>,
    pub mutations: Vec<Mutation>,
    pub reinvoke_if_needed: bool,
    /// What keeps the whole policy from being used.
    pub broken: Option<String>,
}

pub struct Validation {
    pub expression: String,
    pub program: Result<Program, String>,
    pub message: String,
    pub message_program: Option<Program>,
    pub reason: String,
}

pub struct Mutation {
    pub expression: String,
    pub kind: MutationKind,
    pub program: Result<Program, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutationKind {
    ApplyConfiguration,
    JsonPatch,
}

pub struct Binding {
    pub name: String,
    pub policy: String,
    pub criteria: Option<Criteria>,
    pub params: Value,
    pub actions: Vec<String>,
}

impl Policy {
    pub fn compile(policy: &Value) -> Policy {
        let spec = &policy["spec"];
        let param_kind = spec["paramKind"].is_object().then(|| {
            let kind = &spec["paramKind"];
            let (group, version) = match kind.text("apiVersion").split_once('/') {
                Some((group, version)) => (group, version),
                None => ("", kind.text("apiVersion")),
            };
            (group.to_owned(), version.to_owned(), kind.text("kind").to_owned())
        });
        let base = admission_environment(param_kind.is_some());
        let environment = policy_environment(param_kind.is_some());
        let (variables, broken) = variables(spec, &environment);
        let compile = |source: &str| Program::compile(source, &environment).map_err(|error| error.to_string());
        let validations = spec.list("validations").iter().map(|validation| Validation {
            expression: validation.text("expression").to_owned(),
            program: compile(validation.text("expression")),
            message: validation.text("message").to_owned(),
            message_program: match validation.text("messageExpression") {
                "" => None,
                source => compile(source).ok(),
            },
            reason: validation.text("reason").to_owned(),
        });
        let annotations = spec.list("auditAnnotations").iter();
        Policy {
            name: policy["metadata"].text("name").to_owned(),
            criteria: Criteria::parse(&spec["matchConstraints"], "resourceRules"),
            conditions: Conditions::parse_in(spec.list("matchConditions"), &base),
            ignores_failures: spec.text("failurePolicy") == "Ignore",
            validations: validations.collect(),
            annotations: annotations
                .map(|annotation| {
                    (
                        annotation.text("key").to_owned(),
                        compile(annotation.text("valueExpression")),
                    )
                })
                .collect(),
            mutations: mutations(spec, &environment),
            reinvoke_if_needed: spec.text("reinvocationPolicy") == "IfNeeded",
            param_kind,
            variables,
            broken,
        }
    }
}

/// The variables in order: each may use those before it.
fn variables(spec: &Value, environment: &Environment) -> (Vec<(String, Program)>, Option<String>) {
    let mut compiled: Vec<(String, Program)> = Vec::new();
    let mut broken = None;
    for variable in spec.list("variables") {
        let name = variable.text("name").to_owned();
        match Program::compile(variable.text("expression"), environment) {
            Ok(program) => compiled.push((name, program)),
            Err(error) if broken.is_none() => broken = Some(format!("variable '{name}' compilation error: {error}")),
            Err(_) => {}
        }
    }
    (compiled, broken)
}

fn mutations(spec: &Value, environment: &Environment) -> Vec<Mutation> {
    let environment = environment.clone().with_structs();
    let mutations = spec.list("mutations").iter().map(|mutation| {
        let (kind, field) = match mutation.text("patchType") {
            "JSONPatch" => (MutationKind::JsonPatch, "jsonPatch"),
            _ => (MutationKind::ApplyConfiguration, "applyConfiguration"),
        };
        let expression = mutation[field].text("expression").to_owned();
        let program = Program::compile(&expression, &environment).map_err(|error| error.to_string());
        Mutation {
            expression,
            kind,
            program,
        }
    });
    mutations.collect()
}

impl Binding {
    pub fn parse(binding: &Value) -> Binding {
        let spec = &binding["spec"];
        let matching = &spec["matchResources"];
        let actions = spec.list("validationActions").iter().filter_map(Value::as_str);
        Binding {
            name: binding["metadata"].text("name").to_owned(),
            policy: spec.text("policyName").to_owned(),
            criteria: matching.is_object().then(|| Criteria::parse(matching, "resourceRules")),
            params: spec["paramRef"].clone(),
            actions: actions.map(str::to_owned).collect(),
        }
    }
}
