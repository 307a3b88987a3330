//! ResourceSlice: the devices of a pool, on a node or reachable from some.

use crate::devices::{EFFECTS, too_many, validate_driver, validate_pool_name, validate_qualified_name};
use crate::names::{dns1123_label, dns1123_subdomain, label_key, label_value};
use crate::pod_spec::validate_node_selector;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Value, repeats};

pub static RESOURCE_SLICE: Resource = Resource::cluster(
    "resource.k8s.io",
    "v1",
    "ResourceSlice",
    "resourceslices",
    "resourceslice",
)
.returning_deleted()
.with_rules(&ResourceSliceRules);

struct ResourceSliceRules;

impl Rules for ResourceSliceRules {
    fn default(&self, slice: &mut Value) {
        for device in slice.ensure("spec").list_mut("devices") {
            if let Some(Value::Object(mappings)) = device.get_mut("nodeAllocatableResourceMappings") {
                for mapping in mappings.values_mut() {
                    mapping.fill("allocationMultiplier", "1");
                }
            }
        }
    }

    fn validate(&self, slice: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&slice["spec"], Path::new("spec"));
        validate_driver(spec.text("driver"), &path.child("driver"), &mut problems);
        validate_pool(&spec["pool"], &path.child("pool"), &mut problems);
        validate_reach(spec, &path, &mut problems);
        if !spec.list("sharedCounters").is_empty() && !spec.list("devices").is_empty() {
            let detail = "only one of `sharedCounters` or `devices` is allowed";
            problems.invalid(&path, "", "", detail);
        }
        validate_counters(spec, "sharedCounters", "name", &path, &mut problems);
        let path = path.child("devices");
        too_many(spec.list("devices"), MAX_DEVICES, &path, &mut problems);
        let repeated = repeats(spec.list("devices").iter().map(|device| device.text("name")));
        for (index, device) in spec.list("devices").iter().enumerate() {
            let path = path.index(index);
            validate_device(device, &path, &mut problems);
            validate_device_reach(device, spec.flag("perDeviceNodeSelection"), &path, &mut problems);
            if repeated[index] {
                problems.duplicate(&path, "", device.text("name"));
            }
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (new, old, path) = (&new["spec"], &old["spec"], Path::new("spec"));
        problems.immutable(&new["pool"], &old["pool"], &path.child("pool"), "name");
        for field in ["driver", "nodeName"] {
            problems.immutable(new, old, &path, field);
        }
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn field(&self, slice: &Value, path: &str) -> Option<String> {
        match path {
            "spec.nodeName" => Some(slice["spec"].text("nodeName").to_owned()),
            "spec.driver" => Some(slice["spec"].text("driver").to_owned()),
            _ => None,
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, slice: &Value, now: i64) -> Vec<Value> {
        let spec = &slice["spec"];
        vec![
            print::name(slice),
            spec.text("nodeName").into(),
            spec.text("driver").into(),
            spec["pool"].text("name").into(),
            print::age(slice, now),
        ]
    }
}

/// How many devices a slice may have; those with taints or counters even fewer.
const MAX_DEVICES: usize = 128;
const MAX_ATTRIBUTES: usize = 32;
/// How long the text of an attribute may be.
const MAX_TEXT_BYTES: usize = 64;

/// A pool of devices may be published in several slices.
fn validate_pool(pool: &Value, path: &Path, problems: &mut Problems) {
    validate_pool_name(pool.text("name"), &path.child("name"), problems);
    let count = pool.number("resourceSliceCount");
    if count <= 0 {
        problems.invalid(path, "resourceSliceCount", count, "must be greater than zero");
    }
    let generation = pool.number("generation");
    if generation < 0 {
        problems.invalid(path, "generation", generation, "must be greater than or equal to zero");
    }
}

/// From which nodes the devices can be used is said in exactly one way.
fn validate_reach(spec: &Value, path: &Path, problems: &mut Problems) {
    let mut ways = Vec::new();
    match spec["nodeName"].as_str() {
        None => {}
        Some("") => {
            let detail = "must be either unset or set to a non-empty string";
            problems.invalid(path, "nodeName", "", detail);
        }
        Some(name) => {
            ways.push("`nodeName`");
            problems.form(path, "nodeName", name, dns1123_subdomain(name, false));
        }
    }
    if spec.has("nodeSelector") {
        ways.push("`nodeSelector`");
        let (selector, path) = (&spec["nodeSelector"], path.child("nodeSelector"));
        validate_node_selector(selector, &path, problems);
        if selector.list("nodeSelectorTerms").len() != 1 {
            let detail = "must have exactly one node selector term";
            problems.invalid(
                &path,
                "nodeSelectorTerms",
                selector["nodeSelectorTerms"].clone(),
                detail,
            );
        }
    }
    for (field, shown) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        match spec[field].as_bool() {
            Some(true) => ways.push(shown),
            Some(false) => problems.invalid(path, field, false, "must be either unset or set to true"),
            None => {}
        }
    }
    let wanted = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match ways.len() {
        0 => problems.required(path, "", wanted),
        1 => {}
        _ => {
            let detail = format!("{wanted}, but multiple fields are set");
            problems.invalid(path, "", format!("{{{}}}", ways.join(", ")), detail);
        }
    }
}

/// The same said by each device for itself, where the slice leaves it to them.
fn validate_device_reach(device: &Value, by_device: bool, path: &Path, problems: &mut Problems) {
    if !by_device {
        let is_set = ["nodeName", "nodeSelector", "allNodes"]
            .iter()
            .any(|way| device.has(way));
        if is_set {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                          true in the ResourceSlice spec";
            problems.invalid(path, "", Value::Null, detail);
        }
        return;
    }
    let ways = ways_to_device(device, path, problems);
    let detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is \
                  set to true in the ResourceSlice spec";
    match ways.len() {
        0 => problems.required(path, "", detail),
        1 => {}
        _ => problems.invalid(path, "", format!("{{{}}}", ways.join(", ")), detail),
    }
}

/// The ways in which a device says from which nodes it can be used.
fn ways_to_device(device: &Value, path: &Path, problems: &mut Problems) -> Vec<&'static str> {
    let mut ways = Vec::new();
    match device["nodeName"].as_str() {
        None => {}
        Some("") => problems.invalid(path, "nodeName", "", "must not be empty"),
        Some(name) => {
            ways.push("`nodeName`");
            problems.form(path, "nodeName", name, dns1123_subdomain(name, false));
        }
    }
    if device.has("nodeSelector") {
        ways.push("`nodeSelector`");
        validate_node_selector(&device["nodeSelector"], &path.child("nodeSelector"), problems);
    }
    match device["allNodes"].as_bool() {
        None => {}
        Some(true) => ways.push("`allNodes`"),
        Some(false) => problems.invalid(path, "allNodes", false, "must be either unset or set to true"),
    }
    ways
}

/// Sets of counters, those of the pool and what a device takes of them.
fn validate_counters(part: &Value, list: &str, name: &str, path: &Path, problems: &mut Problems) {
    let sets = part.list(list);
    let repeated = repeats(sets.iter().map(|set| set.text(name)));
    for (index, set) in sets.iter().enumerate() {
        let path = path.child(list).index(index);
        let text = set.text(name);
        problems.form(&path, name, text, dns1123_label(text, false));
        if set.entries("counters").next().is_none() {
            problems.required(&path, "counters", "");
        }
        for (counter, _) in set.entries("counters") {
            problems.form(&path, "counters", counter.as_str(), dns1123_label(counter, false));
        }
        if repeated[index] {
            problems.duplicate(&path, "", text);
        }
    }
}

fn validate_device(device: &Value, path: &Path, problems: &mut Problems) {
    let name = device.text("name");
    problems.form(path, "name", name, dns1123_label(name, false));
    let count = device.entries("attributes").count() + device.entries("capacity").count();
    if count > MAX_ATTRIBUTES {
        let detail = format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}");
        problems.invalid(path, "", count, detail);
    }
    for (key, attribute) in device.entries("attributes") {
        validate_qualified_name(key, &path.child("attributes"), problems);
        let path = path.child("attributes").key(key);
        let set = ["bool", "int", "string", "version"]
            .into_iter()
            .filter(|kind| attribute.has(kind));
        match set.count() {
            0 => problems.invalid(&path, "", "", "exactly one value must be specified"),
            1 => {}
            _ => problems.invalid(&path, "", attribute.clone(), "exactly one value must be specified"),
        }
        let version = attribute.text("version");
        if !version.is_empty() && !cel::is_version(version) {
            let detail = "must be a string compatible with semver.org spec 2.0.0";
            problems.invalid(&path, "version", version, detail);
        }
        for field in ["string", "version"] {
            if attribute.text(field).len() > MAX_TEXT_BYTES {
                problems.extend([FieldError::too_long(&path.child(field), MAX_TEXT_BYTES)]);
            }
        }
    }
    validate_counters(device, "consumesCounters", "counterSet", path, problems);
    for (index, taint) in device.list("taints").iter().enumerate() {
        let path = path.child("taints").index(index);
        let (key, value) = (taint.text("key"), taint.text("value"));
        problems.form(&path, "key", key, label_key(key));
        problems.form(&path, "value", value, label_value(value));
        problems.one_of(taint, &path, "effect", &EFFECTS);
    }
    for (key, capacity) in device.entries("capacity") {
        validate_qualified_name(key, &path.child("capacity"), problems);
        let policy = &capacity["requestPolicy"];
        if policy.has("validValues") && policy.has("validRange") {
            let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the \
                          same time";
            problems.forbidden(&path.child("capacity").key(key), "requestPolicy", detail);
        }
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Node", "The node that has the devices."),
    print::text("Driver", "The driver that serves them."),
    print::text("Pool", "The pool they belong to."),
    AGE,
];

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(spec: Value, expect: Expect) {
        let found = ResourceSliceRules.validate(&json!({"spec": spec}));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        expect.assert_eq(&found.join("\n"));
    }

    #[test]
    fn a_slice_belongs_to_a_pool_and_is_reached_in_one_way() {
        let pool = json!({"name": "p", "resourceSliceCount": 1});
        check(
            json!({"driver": "example.com", "pool": pool, "nodeName": "one"}),
            expect![""],
        );
        check(
            json!({"driver": "example.com", "pool": pool, "nodeName": "one", "allNodes": true}),
            expect![[
                r#"spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set"#
            ]],
        );
        check(
            json!({}),
            expect![[r#"
                spec.driver: Required value
                spec.pool.name: Required value
                spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero
                spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"#]],
        );
    }

    #[test]
    fn devices_have_names_of_their_own_and_attributes_one_value() {
        let device = json!({"name": "d", "attributes": {"a": {}}});
        let pool = json!({"name": "p", "resourceSliceCount": 1});
        check(
            json!({"driver": "example.com", "pool": pool, "nodeName": "one", "devices": [device, {"name": "d"}]}),
            expect![[r#"
                spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified
                spec.devices[1]: Duplicate value: "d""#]],
        );
    }
}
