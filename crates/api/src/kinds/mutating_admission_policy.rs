//! MutatingAdmissionPolicy: rules that may change objects, in CEL.

use super::validating_admission_policy::{default_policy, validate_policy};
use crate::expressions::{expression_is_there, policy_environment, type_of};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Value};
use cel::{Environment, Type};

pub static MUTATING_ADMISSION_POLICY: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingAdmissionPolicy",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicy",
)
.in_categories(&["api-extensions"])
.requiring_revision()
.with_unqualified_finalizers()
.with_rules(&MutatingAdmissionPolicyRules);

struct MutatingAdmissionPolicyRules;

impl Rules for MutatingAdmissionPolicyRules {
    fn default(&self, policy: &mut Value) {
        default_policy(policy.ensure("spec"));
    }

    fn validate(&self, policy: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &policy["spec"];
        let path = Path::new("spec");
        validate_policy(spec, &path, &mut problems);
        let environment = policy_environment(spec.has("paramKind")).with_structs();
        if spec.list("mutations").is_empty() {
            problems.required(&path, "mutations", "mutations must contain at least one item");
        }
        for (index, mutation) in spec.list("mutations").iter().enumerate() {
            let path = path.child("mutations").index(index);
            validate_mutation(mutation, &path, &environment, &mut problems);
        }
        validate_operations(
            &spec["matchConstraints"],
            &path.child("matchConstraints"),
            &mut problems,
        );
        problems.one_of(spec, &path, "reinvocationPolicy", &["IfNeeded", "Never"]);
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, policy: &Value, now: i64) -> Vec<Value> {
        let spec = &policy["spec"];
        let kind = &spec["paramKind"];
        let parameters = match kind.is_object() {
            true => format!("{}/{}", kind.text("apiVersion"), kind.text("kind")),
            false => "<unset>".to_owned(),
        };
        vec![
            print::name(policy),
            spec.list("mutations").len().into(),
            parameters.into(),
            print::age(policy, now),
        ]
    }
}

fn validate_mutation(mutation: &Value, path: &Path, environment: &Environment, problems: &mut Problems) {
    let (field, other) = match mutation.text("patchType") {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        _ => return problems.one_of(mutation, path, "patchType", &["ApplyConfiguration", "JSONPatch"]),
    };
    let (kind, inner) = (mutation.text("patchType"), &mutation[field]);
    if mutation.has(other) {
        let detail = format!("must not be specified when patchType is {kind}");
        problems.invalid(path, other, mutation[other].clone(), detail);
    }
    if !inner.is_object() {
        return problems.required(path, field, &format!("must be specified when patchType is {kind}"));
    }
    let path = path.child(field);
    if !expression_is_there(inner, &path, "expression", "", problems) {
        return;
    }
    // What expressions make of nothing has no type until it runs.
    let (wanted, shown) = match kind {
        "JSONPatch" => (Type::list(Type::Dyn), "list(JSONPatch)"),
        _ => (Type::Dyn, "Object"),
    };
    let found = type_of(inner, &path, "expression", environment, problems);
    if let Some(found) = found.filter(|found| *found != wanted && *found != Type::Dyn) {
        let detail = format!("must evaluate to {shown} but got {found}");
        problems.invalid(&path, "expression", inner.text("expression"), detail);
    }
}

/// What is deleted cannot be changed. Upstream finds this without saying in which rule.
pub(super) fn validate_operations(constraints: &Value, path: &Path, problems: &mut Problems) {
    let supported = ["*", "CONNECT", "CREATE", "UPDATE"];
    let operations = constraints
        .list("resourceRules")
        .iter()
        .flat_map(|rule| rule.list("operations"));
    for operation in operations.filter_map(Value::as_str) {
        if !supported.contains(&operation) {
            let place = path.child("resourceRules").child("operations");
            problems.extend([FieldError::not_supported(&place, operation, &supported)]);
        }
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::integer("Mutations", "How many rules it has."),
    print::text("ParamKind", "The kind of object with its settings."),
    AGE,
];

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mutation_has_the_patch_of_its_type_and_never_meets_a_deletion() {
        let rules =
            json!([{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
        let policy = json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": rules}, "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch"}, {"patchType": "ApplyConfiguration", "applyConfiguration": {}}],
        }});
        let found = MutatingAdmissionPolicyRules.validate(&policy);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        expect![[r#"
            spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch
            spec.mutations[1].applyConfiguration.expression: Required value
            spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE""#]]
        .assert_eq(&found.join("\n"));
    }
}
