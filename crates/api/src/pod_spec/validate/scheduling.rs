//! Where a pod may and should run.

use std::collections::{HashMap, HashSet};

use crate::names::{dns1123_label, dns1123_subdomain, label_key, label_value};
use crate::{Fields, Path, Problems, Value, repeats, validate_label_selector};

pub fn validate(spec: &Value, path: &Path, problems: &mut Problems) {
    let affinity = &spec["affinity"];
    let affinity_path = path.child("affinity");
    validate_node_affinity(
        &affinity["nodeAffinity"],
        &affinity_path.child("nodeAffinity"),
        problems,
    );
    for kind in ["podAffinity", "podAntiAffinity"] {
        validate_pod_affinity(&affinity[kind], &affinity_path.child(kind), problems);
    }
    validate_spread(spec, &path.child("topologySpreadConstraints"), problems);
    validate_tolerations(spec.list("tolerations"), &path.child("tolerations"), problems);
}

pub fn validate_tolerations(tolerations: &[Value], path: &Path, problems: &mut Problems) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (toleration.text("key"), toleration.text("operator"));
        let (value, effect) = (toleration.text("value"), toleration.text("effect"));
        if !key.is_empty() {
            problems.form(&path, "key", key, label_key(key));
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            problems.invalid(&path, "operator", operator, detail);
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            problems.invalid(&path, "effect", effect, detail);
        }
        match operator {
            "" | "Equal" => {
                let found = label_value(value);
                if !found.is_empty() {
                    problems.invalid(&path, "operator", value, found.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                problems.invalid(&path, "operator", value, detail);
            }
            "Exists" => {}
            // Those that compare numbers are known, but off.
            "Gt" | "Lt" => {
                let supported = ["Equal", "Exists", "Lt", "Gt"];
                problems.extend([crate::FieldError::not_supported(
                    &path.child("operator"),
                    operator,
                    &supported,
                )]);
            }
            _ => problems.optional_one_of(toleration, &path, "operator", &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            problems.optional_one_of(
                toleration,
                &path,
                "effect",
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            );
        }
    }
}

fn validate_node_affinity(affinity: &Value, path: &Path, problems: &mut Problems) {
    let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
    if required.is_object() {
        let path = path.child("requiredDuringSchedulingIgnoredDuringExecution");
        validate_node_selector(required, &path, problems);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in affinity.list(preferred).iter().enumerate() {
        let path = path.child(preferred).index(index);
        validate_weight(term, &path, problems);
        validate_node_term(&term["preference"], false, &path.child("preference"), problems);
    }
}

/// A node selector, which volumes have as well.
pub fn validate_node_selector(selector: &Value, path: &Path, problems: &mut Problems) {
    let path = path.child("nodeSelectorTerms");
    if selector.list("nodeSelectorTerms").is_empty() {
        problems.required(&path, "", "must have at least one node selector term");
    }
    for (index, term) in selector.list("nodeSelectorTerms").iter().enumerate() {
        validate_node_term(term, true, &path.index(index), problems);
    }
}

/// Values of terms that are only preferred may be anything.
fn validate_node_term(term: &Value, required: bool, path: &Path, problems: &mut Problems) {
    for (index, requirement) in term.list("matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(index);
        validate_node_requirement(requirement, &path, problems);
        let key = requirement.text("key");
        problems.form(&path, "key", key, label_key(key));
        for (index, value) in requirement.list("values").iter().enumerate().filter(|_| required) {
            let value = value.as_str().unwrap_or_default();
            problems.form(&path.child("values").index(index), "", value, label_value(value));
        }
    }
    for (index, requirement) in term.list("matchFields").iter().enumerate() {
        let path = path.child("matchFields").index(index);
        if !matches!(requirement.text("operator"), "In" | "NotIn") {
            let operator = requirement.text("operator");
            problems.invalid(&path, "operator", operator, "not a valid selector operator");
        } else if requirement.list("values").len() != 1 {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            problems.required(&path, "values", detail);
        }
        if requirement.text("key") != "metadata.name" {
            problems.invalid(&path, "key", requirement.text("key"), "not a valid field selector key");
            continue;
        }
        for (index, name) in requirement.list("values").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            let path = path.child("values").index(index);
            problems.form(&path, "", name, dns1123_subdomain(name, false));
        }
    }
}

fn validate_node_requirement(requirement: &Value, path: &Path, problems: &mut Problems) {
    let count = requirement.list("values").len();
    match requirement.text("operator") {
        "In" | "NotIn" if count == 0 => {
            problems.required(path, "values", "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            problems.forbidden(path, "values", detail);
        }
        "Gt" | "Lt" if count != 1 => {
            problems.required(
                path,
                "values",
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            );
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        operator => problems.invalid(path, "operator", operator, "not a valid selector operator"),
    }
}

fn validate_pod_affinity(affinity: &Value, path: &Path, problems: &mut Problems) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in affinity.list(required).iter().enumerate() {
        validate_pod_term(term, &path.child(required).index(index), problems);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in affinity.list(preferred).iter().enumerate() {
        let path = path.child(preferred).index(index);
        validate_weight(term, &path, problems);
        validate_pod_term(&term["podAffinityTerm"], &path.child("podAffinityTerm"), problems);
    }
}

fn validate_pod_term(term: &Value, path: &Path, problems: &mut Problems) {
    for selector in ["labelSelector", "namespaceSelector"] {
        problems.extend(validate_label_selector(&term[selector], &path.child(selector)));
    }
    for name in term.list("namespaces").iter().filter_map(Value::as_str) {
        problems.form(path, "namespace", name, dns1123_label(name, false));
    }
    let key = term.text("topologyKey");
    if key.is_empty() {
        problems.required(path, "topologyKey", "can not be empty");
    }
    problems.form(path, "topologyKey", key, label_key(key));
    validate_label_keys(term, path, problems);
    let other: HashSet<&Value> = term.list("mismatchLabelKeys").iter().collect();
    for (index, name) in term.list("matchLabelKeys").iter().enumerate() {
        if other.contains(name) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            problems.invalid(&path.child("matchLabelKeys").index(index), "", name.clone(), detail);
        }
    }
}

/// Keys whose values are those of the pod itself; a new pod's selector says them already.
fn validate_label_keys(term: &Value, path: &Path, problems: &mut Problems) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = term.list(field);
        if !keys.is_empty() && !term.has("labelSelector") {
            problems.forbidden(path, field, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            let key = key.as_str().unwrap_or_default();
            problems.form(&path.child(field).index(index), "", key, label_key(key));
        }
    }
    validate_merged_keys(term, path, problems);
}

/// A new pod's selector has got each of its keys once; one that comes again was there before.
fn validate_merged_keys(term: &Value, path: &Path, problems: &mut Problems) {
    let selector = &term["labelSelector"];
    let own = term.list("matchLabelKeys").iter().enumerate();
    // Of a key that is named twice, the last place is told.
    let places: HashMap<&str, usize> = own.filter_map(|(place, key)| Some((key.as_str()?, place))).collect();
    let mut seen: HashSet<&str> = selector.entries("matchLabels").map(|(key, _)| key.as_str()).collect();
    for expression in selector.list("matchExpressions") {
        let key = expression.text("key");
        let is_known = !seen.insert(key);
        if let Some(place) = places.get(key).filter(|_| is_known) {
            let detail = "exists in both matchLabelKeys and labelSelector";
            problems.invalid(&path.index(*place), "", key, detail);
        }
    }
}

fn validate_weight(term: &Value, path: &Path, problems: &mut Problems) {
    if !(1..=100).contains(&term.number("weight")) {
        problems.invalid(path, "weight", term.number("weight"), "must be in the range 1-100");
    }
}

fn validate_spread(spec: &Value, path: &Path, problems: &mut Problems) {
    let constraints = spec.list("topologySpreadConstraints");
    let pairs = constraints
        .iter()
        .map(|constraint| (&constraint["topologyKey"], &constraint["whenUnsatisfiable"]));
    // Of two that are the same, the first is told.
    let mut repeated = repeats(pairs.rev());
    repeated.reverse();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let key = constraint.text("topologyKey");
        if constraint.number("maxSkew") <= 0 {
            problems.invalid(
                &path,
                "maxSkew",
                constraint.number("maxSkew"),
                "must be greater than zero",
            );
        }
        if key.is_empty() {
            problems.required(&path, "topologyKey", "can not be empty");
        }
        let choices = ["DoNotSchedule", "ScheduleAnyway"];
        if constraint.text("whenUnsatisfiable").is_empty() {
            problems.extend([crate::FieldError::not_supported(
                &path.child("whenUnsatisfiable"),
                "",
                &choices,
            )]);
        } else {
            problems.optional_one_of(constraint, &path, "whenUnsatisfiable", &choices);
        }
        if repeated[index] {
            let pair = format!("{{{key}, {}}}", constraint.text("whenUnsatisfiable"));
            problems.duplicate(&path, "{topologyKey, whenUnsatisfiable}", pair);
        }
        if let Some(domains) = constraint["minDomains"].as_i64() {
            if domains <= 0 {
                problems.invalid(&path, "minDomains", domains, "must be greater than zero");
            }
            if constraint.text("whenUnsatisfiable") != "DoNotSchedule" {
                let detail = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    constraint.text("whenUnsatisfiable")
                );
                problems.invalid(&path, "minDomains", domains, detail);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            problems.optional_one_of(constraint, &path, field, &["Honor", "Ignore"]);
        }
        problems.extend(validate_label_selector(
            &constraint["labelSelector"],
            &path.child("labelSelector"),
        ));
        validate_label_keys(constraint, &path, problems);
    }
}
