//! The rules of ownership, one test each. What upstream answers to whole requests is compared in `apiserver`.

use serde_json::json;

use super::*;
use crate::time::Instant;
use crate::{Value, builtin};

const NOW: Instant = Instant {
    seconds: 1_700_000_000,
    nanos: 0,
};

/// A kind with one version.
struct Kind {
    api_version: &'static str,
    kind: &'static str,
}

const CONFIG_MAP: Kind = Kind {
    api_version: "v1",
    kind: "ConfigMap",
};
const POD: Kind = Kind {
    api_version: "v1",
    kind: "Pod",
};

impl Versions for Kind {
    fn node(&self, api_version: &str) -> Option<Node<'_>> {
        builtin().object(api_version, self.kind).map(Node::for_type)
    }

    fn convert(&self, object: &Value, _: &str) -> Option<Value> {
        Some(object.clone())
    }
}

impl Kind {
    fn writer<'a>(&self, manager: &'a str) -> Writer<'a> {
        Writer {
            manager,
            api_version: self.api_version,
            subresource: "",
            filter: Filter::default(),
            now: NOW,
        }
    }

    fn object(&self, rest: Value) -> Value {
        let mut object = json!({ "apiVersion": self.api_version, "kind": self.kind, "metadata": { "name": "a" } });
        for (key, value) in rest.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    }

    fn apply(&self, live: Option<&Value>, manager: &str, rest: Value) -> Result<Value, ApplyError> {
        apply(self, live, &self.object(rest), &self.writer(manager), false)
    }
}

/// The fields of one manager.
fn owned(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut found = entries.filter(|entry| entry["manager"] == manager);
    found.next().map(|entry| entry["fieldsV1"].clone()).unwrap_or_default()
}

#[test]
fn who_creates_owns_what_it_set_and_what_was_defaulted() {
    let mut object = CONFIG_MAP.object(json!({ "data": { "k": "v" } }));
    track(&CONFIG_MAP, None, &mut object, &CONFIG_MAP.writer("creator"));
    assert_eq!(owned(&object, "creator"), json!({ "f:data": { ".": {}, "f:k": {} } }));
}

#[test]
fn a_change_moves_the_field_and_the_time_of_one_entry_only() {
    let mut first = CONFIG_MAP.object(json!({ "data": { "a": "1", "b": "1" } }));
    track(&CONFIG_MAP, None, &mut first, &CONFIG_MAP.writer("one"));
    let mut second = CONFIG_MAP.object(json!({ "data": { "a": "1", "b": "2" } }));
    let later = Writer {
        now: Instant {
            seconds: NOW.seconds + 60,
            nanos: 0,
        },
        ..CONFIG_MAP.writer("two")
    };
    track(&CONFIG_MAP, Some(&first), &mut second, &later);
    assert_eq!(owned(&second, "one"), json!({ "f:data": { ".": {}, "f:a": {} } }));
    assert_eq!(owned(&second, "two"), json!({ "f:data": { "f:b": {} } }));
    let times: Vec<&Value> = second["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["time"])
        .collect();
    assert_eq!(times, ["2023-11-14T22:13:20Z", "2023-11-14T22:14:20Z"]);
}

#[test]
fn appliers_share_what_they_agree_on_and_contend_for_the_rest() {
    let first = CONFIG_MAP.apply(None, "one", json!({ "data": { "k": "v" } })).unwrap();
    let shared = CONFIG_MAP
        .apply(Some(&first), "two", json!({ "data": { "k": "v" } }))
        .unwrap();
    assert_eq!(owned(&shared, "one"), owned(&shared, "two"));
    let error = CONFIG_MAP
        .apply(Some(&shared), "two", json!({ "data": { "k": "w" } }))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"one\": .data.k"
    );
}

#[test]
fn what_an_applier_drops_goes_unless_another_wants_it() {
    let both = json!({ "data": { "k": "v", "mine": "1" } });
    let first = CONFIG_MAP.apply(None, "one", both).unwrap();
    let shared = CONFIG_MAP
        .apply(Some(&first), "two", json!({ "data": { "k": "v" } }))
        .unwrap();
    let dropped = CONFIG_MAP.apply(Some(&shared), "one", json!({})).unwrap();
    assert_eq!(dropped["data"], json!({ "k": "v" }));
    assert_eq!(owned(&dropped, "one"), Value::Null);
}

#[test]
fn items_of_lists_are_owned_by_their_keys_with_defaults() {
    let container = json!({ "name": "c", "ports": [{ "containerPort": 80 }] });
    let applied = POD
        .apply(None, "one", json!({ "spec": { "containers": [container] } }))
        .unwrap();
    let port = json!({ ".": {}, "f:containerPort": {} });
    let expected = json!({ "f:spec": { "f:containers": { "k:{\"name\":\"c\"}": {
        ".": {}, "f:name": {}, "f:ports": { "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": port },
    } } } });
    assert_eq!(owned(&applied, "one"), expected);
}

#[test]
fn applied_items_keep_their_order_and_live_ones_their_neighbours() {
    let names = |list: &[&str]| -> Value {
        let items: Vec<Value> = list.iter().map(|name| json!({ "name": name })).collect();
        json!({ "spec": { "containers": items } })
    };
    let check = |live: &[&str], applied: &[&str], expected: &[&str]| {
        let node = POD.node("v1").unwrap();
        let merged = merge(node, &POD.object(names(live)), &POD.object(names(applied)));
        assert_eq!(merged["spec"]["containers"], names(expected)["spec"]["containers"]);
    };
    check(&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]);
    check(&["a", "x", "b"], &["a", "b"], &["a", "x", "b"]);
    check(&["a"], &["b", "a", "c"], &["b", "a", "c"]);
    check(&[], &["b"], &["b"]);
    check(&["a"], &[], &["a"]);
}

#[test]
fn a_configuration_must_fit_the_schema() {
    let refused = |rest: Value| POD.apply(None, "one", rest).unwrap_err().to_string();
    assert_eq!(
        refused(json!({ "spec": { "containers": [{ "name": "c", "tty": "yes" }], "x": 1 } })),
        "failed to create typed patch object (/a; /v1, Kind=Pod): errors:\n  \
         .spec.containers[name=\"c\"].tty: expected boolean, got &{yes}\n  .spec.x: field not declared in schema"
    );
    assert_eq!(
        refused(json!({ "spec": { "containers": [{ "name": "c" }, { "name": "c" }] } })),
        "failed to create typed patch object (/a; /v1, Kind=Pod): .spec.containers: duplicate entries for key [name=\"c\"]"
    );
}

#[test]
fn schemaless_objects_are_owned_by_key_and_lists_whole() {
    let value = json!({ "a": { "b": [1, 2], "c": null }, "d": {} });
    let set = fields_of(Node::DEDUCED, &value);
    let expected = json!({ "f:a": { ".": {}, "f:b": {}, "f:c": {} }, "f:d": {} });
    assert_eq!(set.write(), expected);
    assert_eq!(Set::read(&expected).unwrap(), set);
}

#[test]
fn a_custom_schema_says_how_its_lists_are_owned() {
    let text = || Tree::Scalar(Scalar::String);
    let item = Tree::Object {
        fields: [("id".to_owned(), text()), ("v".to_owned(), text())].into(),
        rest: None,
        atomic: false,
    };
    let list = Tree::List {
        item: Box::new(item),
        kind: crate::ListType::Map,
        keys: vec![("id".to_owned(), None)],
    };
    let tree = Tree::Object {
        fields: [("list".to_owned(), list)].into(),
        rest: None,
        atomic: false,
    };
    let value = json!({ "list": [{ "id": "x", "v": "1" }] });
    assert_eq!(
        fields_of(Node::custom(&tree), &value).write(),
        json!({ "f:list": { "k:{\"id\":\"x\"}": { ".": {}, "f:id": {}, "f:v": {} } } })
    );
}

#[test]
fn the_oldest_updates_are_merged_when_there_are_too_many() {
    let mut object = CONFIG_MAP.object(json!({ "data": { "k": "v" } }));
    track(&CONFIG_MAP, None, &mut object, &CONFIG_MAP.writer("m00"));
    for at in 1..13 {
        let mut next = object.clone();
        next["data"][format!("k{at:02}")] = "v".into();
        track(
            &CONFIG_MAP,
            Some(&object),
            &mut next,
            &CONFIG_MAP.writer(&format!("m{at:02}")),
        );
        object = next;
    }
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert!(entries.iter().any(|entry| entry["manager"] == "ancient-changes"));
}

#[test]
fn cleared_managers_stay_cleared_until_the_next_apply() {
    let mut object = CONFIG_MAP.object(json!({ "data": { "k": "v" } }));
    track(&CONFIG_MAP, None, &mut object, &CONFIG_MAP.writer("one"));
    let mut cleared = object.clone();
    cleared["metadata"]["managedFields"] = json!([{}]);
    track(&CONFIG_MAP, Some(&object), &mut cleared, &CONFIG_MAP.writer("one"));
    assert_eq!(cleared["metadata"].get("managedFields"), None);
    let mut changed = cleared.clone();
    changed["data"]["k"] = "w".into();
    track(&CONFIG_MAP, Some(&cleared), &mut changed, &CONFIG_MAP.writer("one"));
    assert_eq!(changed["metadata"].get("managedFields"), None);
    let applied = CONFIG_MAP
        .apply(Some(&changed), "two", json!({ "data": { "x": "y" } }))
        .unwrap();
    assert_eq!(
        owned(&applied, "before-first-apply"),
        json!({ "f:data": { ".": {}, "f:k": {} } })
    );
}

#[test]
fn fields_that_cannot_be_read_are_refused_without_harm() {
    for bad in [
        json!({ "x": {} }),
        json!({ "k:{": {} }),
        json!({ "f:a": 1 }),
        json!([]),
        json!({ "i:x": {} }),
    ] {
        assert!(Set::read(&bad).is_err(), "{bad}");
    }
    // Later versions may know more kinds of steps.
    assert!(Set::read(&json!({ "z:later": {} })).unwrap().is_empty());
}

/// What this thread has used, however busy the machine is.
fn seconds_of_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
    nanoseconds / 1_000_000_000
}

/// As many items as a body of 3 MiB can have, met in another order than they are in.
#[test]
fn very_long_lists_are_merged() {
    let spec = |names: &mut dyn Iterator<Item = usize>| {
        let variables: Value = names
            .map(|at| json!({ "name": format!("n{at}"), "value": "v" }))
            .collect();
        json!({ "spec": { "containers": [{ "name": "c", "env": variables }] } })
    };
    let count = 60_000;
    let begun = seconds_of_cpu();
    let live = POD.apply(None, "a", spec(&mut (0..count))).unwrap();
    let merged = POD
        .apply(Some(&live), "b", spec(&mut (count / 2..3 * count / 2).rev()))
        .unwrap();
    let taken = seconds_of_cpu() - begun;
    assert!(taken < 40, "{taken} s");
    let variables = merged["spec"]["containers"][0]["env"].as_array().unwrap();
    assert_eq!(variables.len(), 3 * count / 2);
}
