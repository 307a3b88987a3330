//! Requests for devices, as claims, templates of claims and classes make them.

use std::collections::HashSet;

use cel::{Environment, Type};

use crate::expressions::type_of;
use crate::names::{c_identifier, dns1123_label, dns1123_subdomain, interface_address, label_key, label_value};
use crate::pod_spec::validate_node_selector;
use crate::workload::validate_condition;
use crate::{FieldError, Fields, Path, Problems, Value, repeats};

/// How many requests, constraints and configurations a claim may have, each.
const MAX_PARTS: usize = 32;
/// How many ways of serving one request there may be.
const MAX_ALTERNATIVES: usize = 8;
const MAX_SELECTORS: usize = 32;
const MAX_TOLERATIONS: usize = 16;
/// How long the names of attributes and of drivers may be, in bytes.
const MAX_IDENTIFIER_BYTES: usize = 32;
const MAX_DRIVER_BYTES: usize = 63;

/// What expressions know of a device.
fn environment() -> Environment {
    let by_domain = |of: Type| Type::map(Type::String, Type::map(Type::String, of));
    let device = Type::object(
        "kubernetes.DRADevice",
        [
            ("driver", Type::String),
            ("attributes", by_domain(Type::Dyn)),
            ("capacity", by_domain(Type::parse("quantity"))),
            ("allowMultipleAllocations", Type::Bool),
        ],
    );
    Environment::default().with("device", device)
}

/// The `devices` of a claim.
pub fn validate_claim(devices: &Value, path: &Path, problems: &mut Problems) {
    for list in ["requests", "constraints", "config"] {
        too_many(devices.list(list), MAX_PARTS, &path.child(list), problems);
    }
    let names = request_names(devices);
    let repeated = repeats(devices.list("requests").iter().map(|request| request.text("name")));
    for (index, request) in devices.list("requests").iter().enumerate() {
        let path = path.child("requests").index(index);
        validate_request(request, &path, problems);
        let name = request.text("name");
        if repeated[index] {
            problems.duplicate(&path, "", name);
        }
    }
    for (index, constraint) in devices.list("constraints").iter().enumerate() {
        let path = path.child("constraints").index(index);
        validate_references(constraint, &names, &path, problems);
        validate_constraint(constraint, &path, problems);
    }
    for (index, config) in devices.list("config").iter().enumerate() {
        let path = path.child("config").index(index);
        validate_references(config, &names, &path, problems);
        validate_config(config, &path, problems);
    }
}

/// The selectors and configurations of a class.
pub fn validate_class(spec: &Value, path: &Path, problems: &mut Problems) {
    validate_selectors(spec, path, problems);
    too_many(spec.list("config"), MAX_PARTS, &path.child("config"), problems);
    for (index, config) in spec.list("config").iter().enumerate() {
        validate_config(config, &path.child("config").index(index), problems);
    }
    if let Some(name) = spec["extendedResourceName"].as_str()
        && !is_extended_resource(name)
    {
        problems.invalid(
            path,
            "extendedResourceName",
            name,
            "must be a valid extended resource name",
        );
    }
}

/// Whether a resource is neither one of Kubernetes' own nor one that a quota could take for another.
fn is_extended_resource(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native && !name.starts_with("requests.") && label_key(&format!("requests.{name}")).is_empty()
}

/// The names that constraints and configurations can refer to.
fn request_names(devices: &Value) -> HashSet<String> {
    let mut names = HashSet::new();
    for request in devices.list("requests") {
        let name = request.text("name");
        names.insert(name.to_owned());
        let alternatives = request.list("firstAvailable").iter();
        names.extend(alternatives.map(|alternative| format!("{name}/{}", alternative.text("name"))));
    }
    names
}

fn validate_request(request: &Value, path: &Path, problems: &mut Problems) {
    let name = request.text("name");
    problems.form(path, "name", name, dns1123_label(name, false));
    let alternatives = request.list("firstAvailable");
    match (request.has("exactly"), alternatives.is_empty()) {
        (false, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required";
            problems.required(path, "", detail);
        }
        (true, false) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            problems.invalid(path, "", Value::Null, detail);
        }
        _ => {}
    }
    if request.has("exactly") {
        validate_wish(&request["exactly"], &path.child("exactly"), problems);
    }
    let path = path.child("firstAvailable");
    too_many(alternatives, MAX_ALTERNATIVES, &path, problems);
    let repeated = repeats(alternatives.iter().map(|alternative| alternative.text("name")));
    for (index, alternative) in alternatives.iter().enumerate() {
        let path = path.index(index);
        let name = alternative.text("name");
        problems.form(&path, "name", name, dns1123_label(name, false));
        if repeated[index] {
            problems.duplicate(&path, "", name);
        }
        validate_wish(alternative, &path, problems);
    }
}

/// Which devices a request wants, and how many.
fn validate_wish(wish: &Value, path: &Path, problems: &mut Problems) {
    if problems.needs(wish, path, "deviceClassName") {
        let class = wish.text("deviceClassName");
        problems.form(path, "deviceClassName", class, dns1123_subdomain(class, false));
    }
    validate_selectors(wish, path, problems);
    let count = wish.number("count");
    match wish.text("allocationMode") {
        "All" if count != 0 => {
            problems.invalid(
                path,
                "count",
                count,
                "must not be specified when allocationMode is 'All'",
            );
        }
        "ExactCount" if count <= 0 => problems.invalid(path, "count", count, "must be greater than zero"),
        "All" | "ExactCount" => {}
        _ => problems.optional_one_of(wish, path, "allocationMode", &["All", "ExactCount"]),
    }
    validate_tolerations(wish.list("tolerations"), &path.child("tolerations"), problems);
}

fn validate_tolerations(tolerations: &[Value], path: &Path, problems: &mut Problems) {
    too_many(tolerations, MAX_TOLERATIONS, path, problems);
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, value) = (toleration.text("key"), toleration.text("value"));
        if !key.is_empty() {
            problems.form(&path, "key", key, label_key(key));
        }
        match toleration.text("operator") {
            "Exists" if !value.is_empty() => {
                problems.invalid(&path, "value", value, "must be empty for operator `Exists`");
            }
            "Exists" => {}
            "Equal" => problems.form(&path, "value", value, label_value(value)),
            _ => problems.one_of(toleration, &path, "operator", &["Equal", "Exists"]),
        }
        if !toleration.text("effect").is_empty() {
            problems.optional_one_of(toleration, &path, "effect", &EFFECTS);
        }
    }
}

/// What a taint does to claims that do not tolerate it.
pub const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

fn validate_selectors(wish: &Value, path: &Path, problems: &mut Problems) {
    let (selectors, path) = (wish.list("selectors"), path.child("selectors"));
    too_many(selectors, MAX_SELECTORS, &path, problems);
    if selectors.is_empty() {
        return;
    }
    let environment = environment();
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index);
        match selector["cel"].is_object() {
            false => problems.required(&path, "cel", ""),
            true => validate_selector(&selector["cel"], &environment, &path.child("cel"), problems),
        }
    }
}

fn validate_selector(selector: &Value, environment: &Environment, path: &Path, problems: &mut Problems) {
    match type_of(selector, path, "expression", environment, problems) {
        None | Some(Type::Bool | Type::Dyn) => {}
        Some(found) => {
            let detail = format!("must evaluate to bool or the unknown type, not {found}");
            problems.invalid(path, "expression", selector.text("expression"), detail);
        }
    }
}

/// The status of a claim: which devices it has, and for whom.
pub fn validate_status(claim: &Value, path: &Path, problems: &mut Problems) {
    let status = &claim["status"];
    let names = request_names(&claim["spec"]["devices"]);
    let results = path.child("allocation").child("devices").child("results");
    let found = status["allocation"]["devices"].list("results");
    too_many(found, MAX_PARTS, &results, problems);
    for (index, result) in found.iter().enumerate() {
        let path = results.index(index);
        validate_reference(result.text("request"), &names, &path.child("request"), problems);
        validate_driver(result.text("driver"), &path.child("driver"), problems);
        validate_pool_name(result.text("pool"), &path.child("pool"), problems);
        let device = result.text("device");
        problems.form(&path, "device", device, dns1123_label(device, false));
    }
    validate_allocation(&status["allocation"], &names, &path.child("allocation"), problems);
    validate_devices(status, &path.child("devices"), problems);
    let (users, path) = (status.list("reservedFor"), path.child("reservedFor"));
    too_many(users, MAX_USERS, &path, problems);
    let repeated = repeats(users.iter().map(|user| &user["uid"]));
    for (index, user) in users.iter().enumerate() {
        let path = path.index(index);
        for field in ["resource", "name", "uid"] {
            problems.needs(user, &path, field);
        }
        if repeated[index] {
            problems.duplicate(&path, "", user.text("uid"));
        }
    }
    if !users.is_empty() && !status.has("allocation") {
        problems.forbidden(&path, "", "may not be specified when `allocated` is not set");
    }
}

/// What an allocation says beside the devices themselves.
fn validate_allocation(allocation: &Value, names: &HashSet<String>, path: &Path, problems: &mut Problems) {
    if allocation.has("nodeSelector") {
        validate_node_selector(&allocation["nodeSelector"], &path.child("nodeSelector"), problems);
    }
    let path = path.child("devices").child("config");
    for (index, config) in allocation["devices"].list("config").iter().enumerate() {
        let path = path.index(index);
        problems.one_of(config, &path, "source", &["FromClaim", "FromClass"]);
        validate_references(config, names, &path, problems);
        validate_config(config, &path, problems);
    }
}

/// What drivers tell of the devices that are allocated, and of no others.
fn validate_devices(status: &Value, path: &Path, problems: &mut Problems) {
    fn identity(device: &Value) -> [&Value; 3] {
        ["driver", "pool", "device"].map(|field| &device[field])
    }
    let results = status["allocation"]["devices"].list("results").iter();
    let allocated: HashSet<[&Value; 3]> = results.map(identity).collect();
    for (index, device) in status.list("devices").iter().enumerate() {
        let path = path.index(index);
        if !allocated.contains(&identity(device)) {
            problems.invalid(&path, "", device.clone(), "must be an allocated device in the claim");
        }
        for (index, condition) in device.list("conditions").iter().enumerate() {
            let path = path.child("conditions").index(index);
            let mut condition = condition.clone();
            if condition.text("type").is_empty() {
                problems.form(&path, "type", "", label_key(""));
                condition.set("type", "unnamed");
            }
            validate_condition(&condition, &path, problems);
        }
        let place = path.child("networkData").child("ips");
        for (index, text) in device["networkData"].list("ips").iter().enumerate() {
            let text = text.as_str().unwrap_or_default();
            problems.form(&place.index(index), "", text, interface_address(text));
        }
    }
}

/// How many may use the devices of one claim.
const MAX_USERS: usize = 256;
const MAX_POOL_BYTES: usize = 253;

pub fn validate_pool_name(name: &str, path: &Path, problems: &mut Problems) {
    if name.is_empty() {
        return problems.required(path, "", "");
    }
    if name.len() > MAX_POOL_BYTES {
        problems.extend([FieldError::too_long(path, MAX_POOL_BYTES)]);
    }
    for part in name.split('/') {
        problems.form(path, "", part, dns1123_subdomain(part, false));
    }
}

fn validate_reference(request: &str, names: &HashSet<String>, path: &Path, problems: &mut Problems) {
    for name in request.splitn(2, '/') {
        problems.form(path, "", request, dns1123_label(name, false));
    }
    if !names.contains(request) || request.is_empty() {
        let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated \
                      by '/'";
        problems.invalid(path, "", request, detail);
    }
}

fn validate_references(part: &Value, names: &HashSet<String>, path: &Path, problems: &mut Problems) {
    let requests: Vec<&str> = part.list("requests").iter().filter_map(Value::as_str).collect();
    let path = path.child("requests");
    too_many(part.list("requests"), MAX_PARTS, &path, problems);
    let repeated = repeats(&requests);
    for (index, request) in requests.iter().enumerate() {
        let place = path.index(index);
        validate_reference(request, names, &place, problems);
        if repeated[index] {
            problems.duplicate(&place, "", *request);
        }
    }
}

fn validate_constraint(constraint: &Value, path: &Path, problems: &mut Problems) {
    let kinds = ["matchAttribute", "distinctAttribute"];
    let set: Vec<&str> = kinds.into_iter().filter(|kind| constraint.has(kind)).collect();
    // Whatever the words, upstream lets both pass.
    if set.is_empty() {
        let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are \
                      set";
        problems.required(path, "", detail);
    }
    for field in set {
        validate_full_name(constraint.text(field), &path.child(field), problems);
    }
}

fn validate_config(config: &Value, path: &Path, problems: &mut Problems) {
    let opaque = &config["opaque"];
    if !opaque.is_object() {
        return problems.required(path, "opaque", "");
    }
    let path = path.child("opaque");
    validate_driver(opaque.text("driver"), &path.child("driver"), problems);
    match &opaque["parameters"] {
        Value::Null => problems.required(&path, "parameters", ""),
        Value::Object(_) => {}
        _ => problems.invalid(&path, "parameters", "<value omitted>", "must be a valid JSON object"),
    }
}

/// The name of a driver, which is a domain.
pub fn validate_driver(name: &str, path: &Path, problems: &mut Problems) {
    if name.is_empty() {
        return problems.required(path, "", "");
    }
    if name.len() > MAX_DRIVER_BYTES {
        problems.extend([FieldError::too_long(path, MAX_DRIVER_BYTES)]);
    }
    problems.form(path, "", name, dns1123_subdomain(name, false));
}

/// The name of an attribute or capacity, with the domain of whoever defined it or without. Upstream looks no further where
/// there are more slashes.
pub fn validate_qualified_name(name: &str, path: &Path, problems: &mut Problems) {
    let (domain, rest) = match name.split('/').collect::<Vec<_>>()[..] {
        [name] => return validate_identifier(name, path, problems),
        [domain, rest] => (domain, rest),
        _ => return,
    };
    match domain {
        "" => problems.invalid(path, "", "", "the domain must not be empty"),
        domain => validate_driver(domain, path, problems),
    }
    match rest {
        "" => problems.invalid(path, "", "", "the name must not be empty"),
        rest => validate_identifier(rest, path, problems),
    }
}

fn validate_full_name(name: &str, path: &Path, problems: &mut Problems) {
    validate_qualified_name(name, path, problems);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        problems.invalid(path, "", name, detail);
    }
}

fn validate_identifier(name: &str, path: &Path, problems: &mut Problems) {
    if name.len() > MAX_IDENTIFIER_BYTES {
        problems.extend([FieldError::too_long(path, MAX_IDENTIFIER_BYTES)]);
    }
    problems.form(path, "", name, c_identifier(name));
}

pub fn too_many(items: &[Value], most: usize, path: &Path, problems: &mut Problems) {
    if items.len() > most {
        problems.extend([FieldError::too_many(path, items.len(), most)]);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(devices: Value, expect: Expect) {
        let mut problems = Problems::default();
        validate_claim(&devices, &Path::new("d"), &mut problems);
        let found: Vec<String> = problems.into_vec().iter().map(ToString::to_string).collect();
        expect.assert_eq(&found.join("\n"));
    }

    fn request(name: &str) -> Value {
        json!({"name": name, "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}})
    }

    #[test]
    fn a_request_is_for_some_devices_of_a_class() {
        check(json!({"requests": [request("r")]}), expect![""]);
        check(
            json!({"requests": [request("r"), request("r"), {"name": "s"}, {"name": "t", "exactly": {"allocationMode": "All", "count": 2}}]}),
            expect![[r#"
                d.requests[1]: Duplicate value: "r"
                d.requests[2]: Required value: exactly one of `exactly` or `firstAvailable` is required
                d.requests[3].exactly.deviceClassName: Required value
                d.requests[3].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"#]],
        );
    }

    #[test]
    fn constraints_are_about_requests_and_an_attribute() {
        let with = |constraint: Value| json!({"requests": [request("r")], "constraints": [constraint]});
        check(
            with(json!({"requests": ["r"], "matchAttribute": "example.com/a"})),
            expect![""],
        );
        check(
            with(json!({"requests": ["r", "r", "s"], "matchAttribute": "a"})),
            expect![[r#"
                d.constraints[0].requests[1]: Duplicate value: "r"
                d.constraints[0].requests[2]: Invalid value: "s": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
                d.constraints[0].matchAttribute: Invalid value: "a": a fully qualified name must be a domain and a name separated by a slash"#]],
        );
    }

    #[test]
    fn selectors_are_expressions_about_a_device() {
        let mut problems = Problems::default();
        let spec = json!({"selectors": [
            {"cel": {"expression": "device.driver == 'x' && device.attributes['x'].model == 'y'"}},
            {"cel": {"expression": "device.odd"}},
            {},
        ]});
        validate_class(&spec, &Path::new("spec"), &mut problems);
        let found: Vec<String> = problems.into_vec().into_iter().map(|problem| problem.field).collect();
        assert_eq!(found, ["spec.selectors[1].cel.expression", "spec.selectors[2].cel"]);
    }

    #[test]
    fn only_devices_that_are_allocated_can_be_reserved() {
        let mut problems = Problems::default();
        let user = json!({"resource": "pods", "name": "p", "uid": "1"});
        let result = json!({"request": "s", "driver": "example.com", "pool": "p", "device": "d"});
        let spec = json!({"devices": {"requests": [request("r")]}});
        let claim = json!({"spec": spec, "status": {"reservedFor": [user, user]}});
        validate_status(&claim, &Path::new("status"), &mut problems);
        let allocation = json!({"devices": {"results": [result]}});
        let claim = json!({"spec": spec, "status": {"allocation": allocation}});
        validate_status(&claim, &Path::new("status"), &mut problems);
        let found: Vec<String> = problems.into_vec().iter().map(ToString::to_string).collect();
        expect![[r#"
            status.reservedFor[1]: Duplicate value: "1"
            status.reservedFor: Forbidden: may not be specified when `allocated` is not set
            status.allocation.devices.results[0].request: Invalid value: "s": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"#]]
        .assert_eq(&found.join("\n"));
    }
}
