//! `matchConditions`: expressions that decide whether a webhook or policy looks at a request.

use api::expressions::admission_environment;
use api::{Fields, Resource, Value};
use cel::{Activation, Budget, Environment, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, Program};

use crate::expressions::RequestVariables;
use crate::settings::Settings;
use crate::{Attributes, Lookup};

#[derive(Default)]
pub struct Conditions(Vec<Condition>);

struct Condition {
    name: String,
    program: Result<Program, String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Met,
    /// The name of a condition that does not hold.
    NotMet,
    Failed(String),
}

impl Conditions {
    pub fn parse(conditions: &[Value]) -> Conditions {
        Conditions::parse_in(conditions, &admission_environment(false))
    }

    pub fn parse_in(conditions: &[Value], environment: &Environment) -> Conditions {
        let parsed = conditions.iter().map(|condition| Condition {
            name: condition.text("name").to_owned(),
            program: Program::compile(condition.text("expression"), environment).map_err(|error| error.to_string()),
        });
        Conditions(parsed.collect())
    }

    pub fn verdict(
        &self,
        attributes: &Attributes,
        resource: &Resource,
        lookup: &dyn Lookup,
        settings: &Settings,
    ) -> Verdict {
        if self.0.is_empty() {
            return Verdict::Met;
        }
        let facts = RequestVariables::new(attributes, resource, lookup, &settings.authorizer, &[]);
        self.evaluate(&facts)
    }

    /// One condition that does not hold decides, whatever the others come to.
    pub fn evaluate(&self, facts: &dyn Activation) -> Verdict {
        let mut budget = Budget::new(MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT);
        let mut failures = Vec::new();
        for condition in &self.0 {
            let result = match &condition.program {
                Ok(program) => program.evaluate(facts, &mut budget).map_err(|error| error.to_string()),
                Err(problem) => Err(format!("compilation error: {problem}")),
            };
            match result {
                Ok(value) if value.is_true() => {}
                Ok(_) => return Verdict::NotMet,
                Err(error) => failures.push(format!("match condition {:?} failed: {error}", condition.name)),
            }
        }
        match failures.is_empty() {
            true => Verdict::Met,
            false => Verdict::Failed(failures.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::kinds::config_map::CONFIG_MAP;
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create};

    fn verdict(expression: &str) -> Verdict {
        let map = create(
            &CONFIG_MAP,
            json!({"metadata": {"name": "m", "namespace": "team"}, "data": {"a": "b"}}),
        );
        let settings = Settings {
            authorizer: Arc::new(auth::authorize::AlwaysAllow),
        };
        let conditions = Conditions::parse(&[json!({"name": "c", "expression": expression})]);
        conditions.verdict(&map, &CONFIG_MAP, &Cluster::default(), &settings)
    }

    #[test]
    fn expressions_see_the_request_its_object_and_its_user() {
        for expression in [
            "object.data.a == 'b'",
            "oldObject == null",
            "request.operation == 'CREATE' && request.resource.resource == 'configmaps'",
            "request.userInfo.username == 'jane' && 'system:authenticated' in request.userInfo.groups",
            "authorizer.group('').resource('configmaps').namespace('team').check('create').allowed()",
            "authorizer.requestResource.check('custom').allowed()",
        ] {
            assert_eq!(verdict(expression), Verdict::Met, "{expression}");
        }
        assert_eq!(verdict("request.name != 'm'"), Verdict::NotMet);
        let failed = "match condition \"c\" failed: no such key: none".to_owned();
        assert_eq!(verdict("object.none == 1"), Verdict::Failed(failed));
    }
}
