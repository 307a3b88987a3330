//! FlowSchema: which requests share a priority level.

mod rules;

use crate::names::dns1123_subdomain;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value, conditions};
use serde_json::json;

pub static FLOW_SCHEMA: Resource = Resource::cluster(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "FlowSchema",
    "flowschemas",
    "flowschema",
)
.with_subresources(&[Subresource::STATUS])
.resetting_on_status_update(&[&["spec"], &["metadata"]])
.with_rules(&FlowSchemaRules);

struct FlowSchemaRules;

/// Those with smaller numbers are asked first.
const MATCHING_PRECEDENCE: i64 = 1000;

impl Rules for FlowSchemaRules {
    fn default(&self, schema: &mut Value) {
        schema
            .ensure("spec")
            .fill_zero("matchingPrecedence", MATCHING_PRECEDENCE);
    }

    fn prepare_create(&self, schema: &mut Value) {
        schema.set("status", json!({}));
    }

    fn validate(&self, schema: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&schema["spec"], Path::new("spec"));
        validate_precedence(schema, &path, &mut problems);
        let name = schema["metadata"].text("name");
        if mandatory(name).is_some_and(|fixed| fixed != *spec) {
            let detail = format!("spec of '{name}' must equal the fixed value");
            problems.invalid(&path, "", spec.clone(), detail);
        }
        let place = path.child("priorityLevelConfiguration");
        match spec["priorityLevelConfiguration"].text("name") {
            "" => problems.required(&place, "name", "must reference a priority level"),
            name => problems.form(&place, "name", name, dns1123_subdomain(name, false)),
        }
        let method = &spec["distinguisherMethod"];
        if method.is_object() && !["ByNamespace", "ByUser"].contains(&method.text("type")) {
            let place = path.child("distinguisherMethod").child("type");
            let types = &["ByNamespace", "ByUser"];
            problems.extend([FieldError::not_supported(&place, method.clone(), types)]);
        }
        for (index, rule) in spec.list("rules").iter().enumerate() {
            rules::validate(rule, &path.child("rules").index(index), &mut problems);
        }
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        conditions::validate_types(&new["status"], &Path::new("status"), &mut problems);
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    /// Schemas are shown in the order in which they are asked.
    fn table_order(&self, schema: &Value) -> i64 {
        schema["spec"].number("matchingPrecedence")
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, schema: &Value, now: i64) -> Vec<Value> {
        let spec = &schema["spec"];
        let dangling = conditions::condition(schema, "Dangling");
        vec![
            print::name(schema),
            spec["priorityLevelConfiguration"].text("name").into(),
            spec.number("matchingPrecedence").into(),
            print::or_none(spec["distinguisherMethod"].text("type")),
            print::age(schema, now),
            dangling.map_or("?", |condition| condition.text("status")).into(),
        ]
    }
}

/// The schemas without which some requests would have no level: administrators', and everybody's that no other takes.
fn mandatory(name: &str) -> Option<Value> {
    let groups: &[&str] = match name {
        "exempt" => &["system:masters"],
        "catch-all" => &["system:unauthenticated", "system:authenticated"],
        _ => return None,
    };
    let group = |name: &&str| json!({"kind": "Group", "group": {"name": name}});
    let mut spec = json!({
        "matchingPrecedence": if name == "exempt" { 1 } else { LAST_PRECEDENCE },
        "priorityLevelConfiguration": {"name": name},
        "rules": [{
            "subjects": groups.iter().map(group).collect::<Vec<Value>>(),
            "resourceRules": [{
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
            }],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }],
    });
    if name == "catch-all" {
        spec["distinguisherMethod"] = json!({"type": "ByUser"});
    }
    Some(spec)
}

/// The first turn belongs to the server's own schema.
fn validate_precedence(schema: &Value, path: &Path, problems: &mut Problems) {
    let precedence = schema["spec"].number("matchingPrecedence");
    let detail = match precedence {
        ..=0 => "must be a positive value",
        1 if schema["metadata"].text("name") != "exempt" => {
            "only the schema named 'exempt' may have matchingPrecedence 1"
        }
        LAST_PRECEDENCE.. if precedence > LAST_PRECEDENCE => "must not be greater than 10000",
        _ => return,
    };
    problems.invalid(path, "matchingPrecedence", precedence, detail);
}

const LAST_PRECEDENCE: i64 = 10000;

const COLUMNS: &[Column] = &[
    NAME,
    print::text("PriorityLevel", "The priority level of its requests."),
    print::text("MatchingPrecedence", "Its turn among the schemas."),
    print::text("DistinguisherMethod", "How flows are told apart."),
    AGE,
    print::text("MissingPL", "Whether its priority level does not exist."),
];
