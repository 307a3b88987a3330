//! SubjectAccessReviews as a webhook is asked them and as it answers, and the conditions under which it is asked.

use std::collections::HashSet;

use api::selector::{Requirement, Selector};
use api::{FieldError, Path, Problems};
use cel::{Activation, Budget, Environment, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, Program, Type};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Attributes, Decision};

/// The most conditions of one webhook.
const MAX_CONDITIONS: usize = 64;

#[derive(Deserialize)]
struct Answer {
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    allowed: bool,
    denied: bool,
    reason: String,
    evaluation_error: String,
}

/// What is asked, without the envelope: the same for conditions, for webhooks of either version and for the cache.
pub fn spec(attributes: &Attributes) -> Value {
    let user = attributes.user;
    let mut spec = json!({"user": user.name});
    set(&mut spec, "uid", user.uid.as_str().into());
    set(&mut spec, "groups", user.groups.clone().into());
    set(&mut spec, "extra", json!(user.extra));
    let mut about = json!({"verb": attributes.verb});
    if !attributes.is_resource {
        set(&mut about, "path", attributes.path.into());
        spec["nonResourceAttributes"] = about;
        return spec;
    }
    for (field, value) in [
        ("namespace", attributes.namespace),
        ("group", attributes.group),
        ("version", attributes.version),
        ("resource", attributes.resource),
        ("subresource", attributes.subresource),
        ("name", attributes.name),
    ] {
        set(&mut about, field, value.into());
    }
    for (field, selector) in [
        ("fieldSelector", attributes.field_selector),
        ("labelSelector", attributes.label_selector),
    ] {
        if let Some(requirements) = selector.map(requirements).filter(|found| !found.is_empty()) {
            about[field] = json!({ "requirements": requirements });
        }
    }
    spec["resourceAttributes"] = about;
    spec
}

/// Leaves out what is empty, as Go's encoder does.
fn set(object: &mut Value, field: &str, value: Value) {
    let is_empty = match &value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    if !is_empty {
        object[field] = value;
    }
}

fn requirements(selector: &Selector) -> Vec<Value> {
    let entry = |key: &str, operator: &str, values: &[String]| {
        let mut entry = json!({"key": key, "operator": operator});
        set(&mut entry, "values", values.into());
        entry
    };
    let one = std::slice::from_ref::<String>;
    let entries = selector
        .requirements
        .iter()
        .filter_map(|requirement| match requirement {
            Requirement::Equals(key, value) => Some(entry(key, "In", one(value))),
            Requirement::NotEquals(key, value) => Some(entry(key, "NotIn", one(value))),
            Requirement::In(key, values) => Some(entry(key, "In", values)),
            Requirement::NotIn(key, values) => Some(entry(key, "NotIn", values)),
            Requirement::Exists(key) => Some(entry(key, "Exists", &[])),
            Requirement::Absent(key) => Some(entry(key, "DoesNotExist", &[])),
            // They have no form there. Without them more is asked for, never less.
            Requirement::GreaterThan(..) | Requirement::LessThan(..) => None,
        });
    entries.collect()
}

/// The whole question, in `authorization.k8s.io/v1` or `v1beta1`.
pub fn question(version: &str, mut spec: Value) -> Value {
    // The old version has another name for it.
    if version == "v1beta1"
        && let Some(groups) = spec
            .as_object_mut()
            .and_then(|spec: &mut Map<String, Value>| spec.remove("groups"))
    {
        spec["group"] = groups;
    }
    json!({
        "apiVersion": format!("authorization.k8s.io/{version}"), "kind": "SubjectAccessReview",
        "metadata": {}, "spec": spec,
    })
}

/// Reads an answer. One that contradicts itself is no answer.
pub fn answer(body: &[u8]) -> Result<Decision, String> {
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| format!("the answer is not a SubjectAccessReview: {error}"))?;
    let status = answer.status.ok_or("the answer has no status")?;
    match (status.allowed, status.denied) {
        (true, true) => Err("webhook subject access review returned both allow and deny response".to_owned()),
        (true, false) => Ok(Decision::Allow(status.reason)),
        (false, true) => Ok(Decision::Deny(status.reason)),
        (false, false) if !status.evaluation_error.is_empty() && status.reason.is_empty() => {
            Ok(Decision::NoOpinion(status.evaluation_error))
        }
        (false, false) => Ok(Decision::NoOpinion(status.reason)),
    }
}

/// The selector that a review describes. What cannot be read is left out: more is asked for then, never less.
pub fn selector(described: &Value, is_of_fields: bool) -> Option<Selector> {
    if let Some(raw) = described["rawSelector"].as_str().filter(|raw| !raw.is_empty()) {
        return match is_of_fields {
            true => api::selector::parse_fields(raw).ok(),
            false => api::selector::parse_labels(raw).ok(),
        };
    }
    let requirements = described["requirements"].as_array()?.iter().filter_map(|requirement| {
        let key = requirement["key"].as_str()?.to_owned();
        let values = requirement["values"].as_array().into_iter().flatten();
        let values: Vec<String> = values.filter_map(Value::as_str).map(str::to_owned).collect();
        match (requirement["operator"].as_str()?, values.as_slice()) {
            ("In", [value]) if is_of_fields => Some(Requirement::Equals(key, value.clone())),
            ("NotIn", [value]) if is_of_fields => Some(Requirement::NotEquals(key, value.clone())),
            _ if is_of_fields => None,
            ("In", [_, ..]) => Some(Requirement::In(key, values)),
            ("NotIn", [_, ..]) => Some(Requirement::NotIn(key, values)),
            ("Exists", []) => Some(Requirement::Exists(key)),
            ("DoesNotExist", []) => Some(Requirement::Absent(key)),
            _ => None,
        }
    });
    let requirements: Vec<Requirement> = requirements.collect();
    (!requirements.is_empty()).then_some(Selector { requirements })
}

/// Expressions over a review; a webhook is asked only when all of them hold.
#[derive(Debug, Default)]
pub struct Conditions(Vec<(String, Program)>);

impl Conditions {
    pub fn compile(expressions: &[String], path: &Path, problems: &mut Problems) -> Conditions {
        let place = path.child("matchConditions");
        if expressions.len() > MAX_CONDITIONS {
            problems.extend([FieldError::too_many(&place, expressions.len(), MAX_CONDITIONS)]);
            return Conditions::default();
        }
        let environment = environment();
        let mut seen = HashSet::new();
        let mut compiled = Vec::new();
        for (index, expression) in expressions.iter().enumerate() {
            let place = place.index(index);
            if expression.trim().is_empty() {
                problems.required(&place, "expression", "");
            } else if !seen.insert(expression) {
                problems.duplicate(&place, "expression", expression.as_str());
            } else {
                match Program::compile(expression, &environment) {
                    Ok(program) if *program.result_type() == Type::Bool => compiled.push((expression.clone(), program)),
                    Ok(_) => problems.invalid(&place, "expression", expression.as_str(), "must evaluate to bool"),
                    Err(error) => {
                        let detail = format!("compilation failed: {error}");
                        problems.invalid(&place, "expression", expression.as_str(), detail);
                    }
                }
            }
        }
        Conditions(compiled)
    }

    /// Whether a webhook is to be asked. One condition that does not hold decides, whatever the others come to.
    pub fn hold(&self, spec: &Value) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let mut budget = Budget::new(MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT);
        let request = Request(cel::Value::from_json(&completed(spec)));
        let mut failures = Vec::new();
        for (expression, program) in &self.0 {
            match program.evaluate(&request, &mut budget) {
                Ok(value) if value.is_true() => {}
                Ok(_) => return Ok(false),
                Err(error) => failures.push(format!(
                    "cel evaluation error: expression '{expression}' resulted in error: {error}"
                )),
            }
        }
        match failures.is_empty() {
            true => Ok(true),
            false => Err(failures.join(", ")),
        }
    }
}

/// Expressions find every text, be it empty; what is not there are whole parts.
fn completed(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let mut complete = |part: &str, defaults: Value| {
        let target = match part {
            "" => Some(&mut spec),
            part => spec.get_mut(part),
        };
        if let (Some(Value::Object(target)), Value::Object(defaults)) = (target, defaults) {
            for (field, default) in defaults {
                target.entry(field).or_insert(default);
            }
        }
    };
    complete("", json!({"user": "", "uid": "", "groups": [], "extra": {}}));
    let texts = json!({
        "namespace": "", "verb": "", "group": "", "version": "", "resource": "", "subresource": "", "name": "",
    });
    complete("resourceAttributes", texts);
    complete("nonResourceAttributes", json!({"path": "", "verb": ""}));
    spec
}

struct Request(cel::Value);

impl Activation for Request {
    fn variable(&self, name: &str) -> Option<cel::Value> {
        (name == "request").then(|| self.0.clone())
    }
}

fn environment() -> Environment {
    let requirement = Type::object(
        "kubernetes.SelectorRequirement",
        [
            ("key", Type::String),
            ("operator", Type::String),
            ("values", Type::list(Type::String)),
        ],
    );
    let selector = Type::object(
        "kubernetes.SelectorAttributes",
        [("requirements", Type::list(requirement))],
    );
    let resource = Type::object(
        "kubernetes.ResourceAttributes",
        [
            ("namespace", Type::String),
            ("verb", Type::String),
            ("group", Type::String),
            ("version", Type::String),
            ("resource", Type::String),
            ("subresource", Type::String),
            ("name", Type::String),
            ("fieldSelector", selector.clone()),
            ("labelSelector", selector),
        ],
    );
    let path = Type::object(
        "kubernetes.NonResourceAttributes",
        [("path", Type::String), ("verb", Type::String)],
    );
    let request = Type::object(
        "kubernetes.SubjectAccessReviewSpec",
        [
            ("user", Type::String),
            ("uid", Type::String),
            ("groups", Type::list(Type::String)),
            ("extra", Type::map(Type::String, Type::list(Type::String))),
            ("resourceAttributes", resource),
            ("nonResourceAttributes", path),
        ],
    );
    Environment::default().with("request", request)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::User;

    #[test]
    fn a_question_says_who_what_and_how_narrowed() {
        let mut jane = User::new("jane", &["dev"]);
        jane.extra.insert("k".to_owned(), vec!["v".to_owned()]);
        let fields = api::selector::parse_fields("spec.nodeName=one").expect("a selector");
        let labels = api::selector::parse_labels("app in (a,b),!old").expect("a selector");
        let mut list = Attributes::resource(&jane, "list", "", "pods").named("team", "");
        (list.field_selector, list.label_selector) = (Some(&fields), Some(&labels));
        expect![[r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","metadata":{},"spec":{"extra":{"k":["v"]},"groups":["dev"],"resourceAttributes":{"fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["one"]}]},"labelSelector":{"requirements":[{"key":"app","operator":"In","values":["a","b"]},{"key":"old","operator":"DoesNotExist"}]},"namespace":"team","resource":"pods","verb":"list"},"user":"jane"}}"#]]
            .assert_eq(&question("v1", spec(&list)).to_string());
        let asked = &spec(&list)["resourceAttributes"];
        assert_eq!(selector(&asked["fieldSelector"], true), Some(fields));
        assert_eq!(selector(&asked["labelSelector"], false), Some(labels));
        let path = question("v1beta1", spec(&Attributes::path(&jane, "get", "/metrics")));
        assert_eq!(path["spec"]["group"], json!(["dev"]));
        assert_eq!(
            path["spec"]["nonResourceAttributes"],
            json!({"verb": "get", "path": "/metrics"})
        );
    }

    #[test]
    fn only_a_clear_answer_allows() {
        let read = |status: Value| answer(json!({ "status": status }).to_string().as_bytes());
        assert_eq!(
            read(json!({"allowed": true, "reason": "r"})),
            Ok(Decision::Allow("r".to_owned()))
        );
        assert_eq!(read(json!({"denied": true})), Ok(Decision::Deny(String::new())));
        assert_eq!(read(json!({})), Ok(Decision::NoOpinion(String::new())));
        assert!(read(json!({"allowed": true, "denied": true})).is_err());
        assert!(read(json!({"allowed": "true"})).is_err());
        assert!(answer(b"{}").is_err());
        assert!(answer(b"").is_err());
    }

    #[test]
    fn conditions_say_when_a_webhook_is_asked() {
        let jane = User::new("jane", &["dev"]);
        let review = spec(&Attributes::resource(&jane, "get", "", "secrets").named("team", "s"));
        let hold = |expressions: &[&str]| {
            let expressions: Vec<String> = expressions.iter().map(|one| (*one).to_owned()).collect();
            let mut problems = Problems::default();
            let conditions = Conditions::compile(&expressions, &Path::default(), &mut problems);
            let problems: Vec<String> = problems.into_vec().iter().map(ToString::to_string).collect();
            assert!(problems.is_empty(), "{problems:?}");
            conditions.hold(&review)
        };
        assert_eq!(hold(&[]), Ok(true));
        assert_eq!(
            hold(&[
                "has(request.resourceAttributes)",
                "request.resourceAttributes.namespace == 'team'"
            ]),
            Ok(true)
        );
        assert_eq!(hold(&["!('dev' in request.groups)"]), Ok(false));
        assert_eq!(
            hold(&["request.resourceAttributes.subresource == '' && request.uid == ''"]),
            Ok(true)
        );
        assert!(hold(&["request.nonResourceAttributes.path == '/'"]).is_err());
        assert_eq!(hold(&["request.nonResourceAttributes.path == '/'", "false"]), Ok(false));
        let mut problems = Problems::default();
        let wrong = [
            "request.user".to_owned(),
            " ".to_owned(),
            "request.usr == ''".to_owned(),
        ];
        Conditions::compile(&wrong, &Path::default(), &mut problems);
        assert_eq!(problems.len(), 3);
    }
}
