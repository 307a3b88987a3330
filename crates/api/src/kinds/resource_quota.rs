//! ResourceQuota: how much a namespace may use.

use crate::pod_spec::resources::read;
use crate::pod_spec::{validate_any_resource, validate_resource_amount};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static RESOURCE_QUOTA: Resource =
    Resource::namespaced("", "v1", "ResourceQuota", "resourcequotas", "resourcequota")
        .short(&["quota"])
        .with_subresources(&[Subresource::STATUS])
        .returning_deleted()
        .with_rules(&ResourceQuotaRules);

struct ResourceQuotaRules;

impl Rules for ResourceQuotaRules {
    fn prepare_create(&self, quota: &mut Value) {
        quota.set("status", json!({}));
    }

    fn validate(&self, quota: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&quota["spec"], Path::new("spec"));
        for (resource, amount) in &read(spec, "hard") {
            let path = path.child("hard").key(resource);
            validate_any_resource(resource, &path, &mut problems);
            if !resource.contains('/') && !is_quota_resource(resource) {
                problems.invalid(&path, "", resource.as_str(), "must be a standard resource for quota");
            }
            validate_resource_amount(resource, amount, &path, &mut problems);
        }
        let is_known = |scope: &&Value| scope.as_str().is_some_and(|scope| SCOPES.contains(&scope));
        if !spec.list("scopes").iter().all(|scope| is_known(&scope)) {
            problems.invalid(&path, "scopes", spec["scopes"].clone(), "unsupported scope");
        }
        let holds = |scope: &str| spec.list("scopes").iter().any(|held| held == scope);
        for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
            if holds(one) && holds(other) {
                problems.invalid(&path, "scopes", spec["scopes"].clone(), "conflicting scopes");
            }
        }
        validate_scopes(spec, &path, &mut problems);
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for list in ["hard", "used"] {
            for (resource, amount) in &read(&new["status"], list) {
                let path = Path::new("status").child(list).key(resource);
                validate_any_resource(resource, &path, &mut problems);
                if !resource.contains('/') && !is_quota_resource(resource) {
                    problems.invalid(&path, "", resource.as_str(), "must be a standard resource for quota");
                }
                validate_resource_amount(resource, amount, &path, &mut problems);
            }
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(&new["spec"], &old["spec"], &Path::new("spec"), "scopes");
        problems.into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, quota: &Value, now: i64) -> Vec<Value> {
        let status = &quota["status"];
        let used = |resource: &str| status["used"][resource].as_str().unwrap_or("0");
        let shown = |limits: bool| {
            let entries = status
                .entries("hard")
                .filter(|(resource, _)| resource.starts_with("limits.") == limits);
            let texts: Vec<String> = entries
                .map(|(resource, hard)| format!("{resource}: {}/{}", used(resource), hard.as_str().unwrap_or("0")))
                .collect();
            Value::from(texts.join(", "))
        };
        vec![print::name(quota), shown(false), shown(true), print::age(quota, now)]
    }
}

/// Scopes pick pods, of which only what they ask for can be summed up.
fn validate_scopes(spec: &Value, path: &Path, problems: &mut Problems) {
    let resources = spec.entries("hard").map(|(resource, _)| resource);
    let resources: Vec<&String> = resources.filter(|resource| is_quota_resource(resource)).collect();
    let mut fits = true;
    for scope in spec.list("scopes").iter().filter_map(Value::as_str) {
        fits &= resources.iter().all(|resource| is_scoped(scope, resource));
    }
    if !fits {
        problems.invalid(
            path,
            "scopes",
            spec["scopes"].clone(),
            "unsupported scope applied to resource",
        );
    }
    let path = path.child("scopeSelector").child("matchExpressions");
    for requirement in spec["scopeSelector"].list("matchExpressions") {
        let (scope, operator) = (requirement.text("scopeName"), requirement.text("operator"));
        let count = requirement.list("values").len();
        if !SCOPES.contains(&scope) {
            problems.invalid(&path, "scopeName", scope, "unsupported scope");
        }
        if !resources.iter().all(|resource| is_scoped(scope, resource)) {
            let detail = "unsupported scope applied to resource";
            problems.invalid(&path, "scopeName", scope, detail);
        }
        let alone = !matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if alone && SCOPES.contains(&scope) && operator != "Exists" {
            let detail = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            problems.invalid(&path, "operator", operator, detail);
        }
        match operator {
            "In" | "NotIn" if count == 0 => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                problems.required(&path, "values", detail);
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                problems.invalid(&path, "values", requirement["values"].clone(), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => problems.invalid(&path, "operator", operator, "not a valid selector operator"),
        }
    }
}

fn is_scoped(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "NotBestEffort" | "Terminating" | "NotTerminating" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            let name = resource
                .strip_prefix("requests.")
                .or(resource.strip_prefix("limits."))
                .unwrap_or(resource);
            matches!(name, "pods" | "cpu" | "memory") && resource != "limits.pods"
        }
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// Amounts that can be summed up over a namespace. `count/…` and the like have a domain and are not looked at here.
fn is_quota_resource(resource: &str) -> bool {
    let of_kind = [
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
        "requests.storage",
    ];
    let name = resource
        .strip_prefix("requests.")
        .or(resource.strip_prefix("limits."))
        .unwrap_or(resource);
    of_kind.contains(&resource)
        || matches!(name, "cpu" | "memory" | "ephemeral-storage")
        || name.starts_with("hugepages-")
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Request", "Requests and counts that are used, of those allowed."),
    print::text("Limit", "Limits that are used, of those allowed."),
    AGE,
];
