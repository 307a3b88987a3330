//! ValidatingAdmissionPolicyBinding: where a policy holds, and with which settings.

use crate::admission_match::{default_match_resources, validate_match_resources};
use crate::names::{dns1123_subdomain, path_segment};
use crate::print::{self, AGE, NAME};
use crate::{
    Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Value, repeats, validate_label_selector,
};

pub static VALIDATING_ADMISSION_POLICY_BINDING: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicybinding",
)
.in_categories(&["api-extensions"])
.requiring_revision()
.with_unqualified_finalizers()
.with_rules(&ValidatingAdmissionPolicyBindingRules);

struct ValidatingAdmissionPolicyBindingRules;

impl Rules for ValidatingAdmissionPolicyBindingRules {
    fn default(&self, binding: &mut Value) {
        default_binding(binding);
    }

    fn validate(&self, binding: &Value) -> Vec<FieldError> {
        let mut problems = validate_binding(binding);
        let (spec, path) = (&binding["spec"], Path::new("spec").child("validationActions"));
        let actions: Vec<&str> = spec
            .list("validationActions")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        if actions.is_empty() {
            problems.required(&path, "", "at least one validation action is required");
        }
        let repeated = repeats(&actions);
        for (index, action) in actions.iter().enumerate() {
            if !ACTIONS.contains(action) {
                problems.extend([FieldError::not_supported(&path.index(index), *action, &ACTIONS)]);
            }
            if repeated[index] {
                problems.duplicate(&path.index(index), "", *action);
            }
        }
        if actions.contains(&"Deny") && actions.contains(&"Warn") {
            let detail = "must not contain both Deny and Warn (repeating the same validation failure information in \
                          the API response and headers serves no purpose)";
            problems.invalid(&path, "", spec["validationActions"].clone(), detail);
        }
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, binding: &Value, now: i64) -> Vec<Value> {
        cells(binding, now)
    }
}

pub(super) fn default_binding(binding: &mut Value) {
    if let Some(resources) = binding
        .child_mut("spec")
        .and_then(|spec| spec.child_mut("matchResources"))
    {
        default_match_resources(resources);
    }
}

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// What is wrong with a binding of either kind.
pub(super) fn validate_binding(binding: &Value) -> Problems {
    let mut problems = Problems::default();
    let (spec, path) = (&binding["spec"], Path::new("spec"));
    if problems.needs(spec, &path, "policyName") {
        let name = spec.text("policyName");
        problems.form(&path, "policyName", name, dns1123_subdomain(name, false));
    }
    if spec["paramRef"].is_object() {
        validate_reference(&spec["paramRef"], &path.child("paramRef"), &mut problems);
    }
    if spec["matchResources"].is_object() {
        validate_match_resources(&spec["matchResources"], &path.child("matchResources"), &mut problems);
    }
    problems
}

/// Parameters are found by name or by labels, and a binding says what holds when there are none.
fn validate_reference(reference: &Value, path: &Path, problems: &mut Problems) {
    let (name, selects) = (reference.text("name"), reference.has("selector"));
    problems.form(path, "name", name, path_segment(name, false));
    if selects {
        problems.extend(validate_label_selector(&reference["selector"], &path.child("selector")));
    }
    match (name.is_empty(), selects) {
        (true, false) => problems.required(path, "", "one of name or selector must be specified"),
        (false, true) => {
            for field in ["name", "selector"] {
                problems.forbidden(path, field, "name and selector are mutually exclusive");
            }
        }
        _ => {}
    }
    problems.one_of(reference, path, "parameterNotFoundAction", &["Deny", "Allow"]);
}

pub(super) fn cells(binding: &Value, now: i64) -> Vec<Value> {
    let spec = &binding["spec"];
    let reference = &spec["paramRef"];
    let parameters = match (reference.text("namespace"), reference.text("name")) {
        (_, "") if reference.has("selector") => print::selector(&reference["selector"]),
        (_, "") => "<unset>".into(),
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    };
    vec![
        print::name(binding),
        spec.text("policyName").into(),
        parameters,
        print::age(binding, now),
    ]
}

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    print::text("PolicyName", "The policy."),
    print::text("ParamRef", "The object with its settings."),
    AGE,
];

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(spec: Value, expect: Expect) {
        let found = ValidatingAdmissionPolicyBindingRules.validate(&json!({"spec": spec}));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        expect.assert_eq(&found.join("\n"));
    }

    #[test]
    fn a_binding_names_a_policy_and_what_follows() {
        check(
            json!({"policyName": "p", "validationActions": ["Deny", "Audit"]}),
            expect![""],
        );
        check(
            json!({"validationActions": ["Deny", "Deny", "Odd"]}),
            expect![[r#"
                spec.policyName: Required value
                spec.validationActions[1]: Duplicate value: "Deny"
                spec.validationActions[2]: Unsupported value: "Odd": supported values: "Audit", "Deny", "Warn""#]],
        );
    }

    #[test]
    fn parameters_are_found_by_name_or_by_labels() {
        let with = |reference: Value| json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": reference});
        check(
            with(json!({"name": "a", "parameterNotFoundAction": "Deny"})),
            expect![""],
        );
        check(
            with(json!({"name": "a/b", "selector": {}})),
            expect![[r#"
                spec.paramRef.name: Invalid value: "a/b": may not contain '/'
                spec.paramRef.name: Forbidden: name and selector are mutually exclusive
                spec.paramRef.selector: Forbidden: name and selector are mutually exclusive
                spec.paramRef.parameterNotFoundAction: Required value"#]],
        );
    }
}
