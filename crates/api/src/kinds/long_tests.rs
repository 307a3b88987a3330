//! Objects as long as a request's body may be, whose lists name and repeat one another as often as they can. Each item is
//! looked up in a set that is built once, so that no list is walked once per item of another.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{Fields, Value, validate_metadata, validate_metadata_update};

/// The longest body of a request.
const BYTES: usize = 3 << 20;
/// What a body may take of a processor in a slow build; a walk over the list per item takes minutes.
const LONGEST: Duration = Duration::from_secs(8);

/// The time that this thread had a processor, so that a busy machine does not look like a slow check.
fn busy() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks: Vec<u64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse().unwrap())
        .collect();
    Duration::from_millis(ticks.iter().sum::<u64>() * 10)
}

/// Runs every check of a kind on an object that `shape` makes of so many items that it is as long as can be, as a new
/// one and as a change of itself.
fn check(group: &str, version: &str, plural: &str, shape: impl Fn(usize) -> Value) {
    let resource = find(group, version, plural).unwrap();
    let few = 1000;
    let count = BYTES * few / shape(few).to_string().len() * 7 / 10;
    let mut object = shape(count);
    let length = object.to_string().len();
    assert!((BYTES / 2..=BYTES).contains(&length), "{plural} of {length} bytes");
    let begun = busy();
    object.set("kind", resource.kind);
    object.ensure("metadata").set("name", "one");
    resource.rules.default(&mut object);
    let mut new = object.clone();
    resource.rules.prepare_update(&mut new, &object);
    resource.rules.prepare_status_update(&mut new, &object);
    let old = new.clone();
    let found = [
        validate_metadata(resource, &new),
        validate_metadata_update(resource, &new, &old),
        resource.rules.validate(&new),
        resource.rules.validate_update(&new, &old),
        resource.rules.validate_status_update(&new, &old),
        resource
            .rules
            .validate_subresource_update("ephemeralcontainers", &new, &old),
    ];
    let told = resource.rules.warnings(&new).len();
    resource.rules.prepare_create(&mut object);
    let took = busy() - begun;
    let problems: usize = found.iter().map(Vec::len).sum();
    assert!(
        took <= LONGEST,
        "{count} items of {plural} took {took:?} ({problems} problems, {told} warnings)"
    );
}

/// So many items, each made of its number.
fn many(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"].set(field, value.clone());
    }
    pod
}

#[test]
fn mounts_and_devices_of_one_container() {
    check("", "v1", "pods", |count| {
        let mounts = many(
            count,
            |at| json!({"name": format!("v{at}"), "mountPath": format!("/{at}")}),
        );
        let devices = many(
            count,
            |at| json!({"name": format!("d{at}"), "devicePath": format!("/d{at}")}),
        );
        pod(json!({"containers": [{"name": "c", "image": "i", "volumeMounts": mounts, "volumeDevices": devices}]}))
    });
}

#[test]
fn claims_of_a_pod_and_of_its_containers() {
    check("", "v1", "pods", |count| {
        let claims = many(count, |at| json!({"name": format!("c{at}")}));
        let of_container = |at: usize| json!({"name": format!("c{at}"), "resources": {"claims": [{"name": "other"}]}});
        pod(json!({"resourceClaims": claims, "containers": many(count, of_container)}))
    });
}

#[test]
fn ephemeral_containers_and_profiles_of_containers() {
    check("", "v1", "pods", |count| {
        let ephemeral = |at: usize| json!({"name": format!("e{at}"), "targetContainerName": "none"});
        let mut pod = pod(json!({
            "containers": many(count, |at| json!({"name": format!("c{at}")})),
            "ephemeralContainers": many(count, ephemeral),
        }));
        let annotations = pod.ensure("metadata").ensure("annotations");
        for at in 0..count {
            let key = format!("container.apparmor.security.beta.kubernetes.io/n{at}");
            annotations.set(&key, "unconfined");
        }
        pod
    });
}

#[test]
fn keys_of_terms() {
    check("", "v1", "pods", |count| {
        let keys = |letter: &str| many(count, |at| format!("{letter}{at}").into());
        let expressions = many(count, |at| json!({"key": format!("m{at}"), "operator": "Exists"}));
        let term = json!({
            "topologyKey": "zone", "matchLabelKeys": keys("m"), "mismatchLabelKeys": keys("x"),
            "labelSelector": {"matchExpressions": expressions},
        });
        let mut pod = pod(json!({
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        }));
        let labels = pod.ensure("metadata").ensure("labels");
        for at in 0..count {
            labels.set(&format!("m{at}"), "v");
        }
        pod
    });
}

#[test]
fn constraints_tolerations_and_gates() {
    check("", "v1", "pods", |count| {
        let constraint =
            |at: usize| json!({"topologyKey": format!("k{at}"), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"});
        pod(json!({
            "topologySpreadConstraints": many(count, constraint),
            "tolerations": many(count, |at| json!({"key": format!("k{at}"), "operator": "Exists"})),
            "schedulingGates": many(count, |at| json!({"name": format!("g{at}")})),
        }))
    });
}

#[test]
fn ports_that_all_meet() {
    for own_host_port in [false, true] {
        check("", "v1", "pods", |count| {
            let port = |at: usize| match own_host_port {
                true => json!({"containerPort": 80, "protocol": "TCP", "hostPort": at + 1, "name": format!("p{at}")}),
                false => json!({"containerPort": 80, "protocol": "TCP", "name": format!("p{at}")}),
            };
            pod(json!({"containers": [{"name": "c", "image": "i", "ports": many(count, port)}]}))
        });
    }
}

#[test]
fn resources_of_init_containers() {
    check("", "v1", "pods", |count| {
        let init = |at: usize| {
            let requests = json!({format!("example.com/r{at}"): "1"});
            json!({"name": format!("i{at}"), "restartPolicy": "Always", "resources": {"requests": requests}})
        };
        pod(json!({"initContainers": many(count, init)}))
    });
}

#[test]
fn statuses_of_containers_that_ended() {
    check("", "v1", "pods", |count| {
        let status = |at: usize| json!({"name": format!("c{at}"), "state": {"terminated": {"exitCode": 0}}});
        let mut pod = pod(json!({
            "restartPolicy": "Never",
            "containers": many(count, |at| json!({"name": format!("c{at}")})),
        }));
        pod.ensure("status").set("containerStatuses", many(count, status));
        pod
    });
}

#[test]
fn owners_finalizers_and_managers() {
    check("", "v1", "configmaps", |count| {
        let owner = |at: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{at}"), "uid": "u", "controller": true});
        json!({"metadata": {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": many(count, owner),
            "finalizers": many(count, |at| format!("example.com/f{at}").into()),
            "managedFields": many(count, |at| json!({"manager": format!("m{at}"), "operation": "Update"})),
        }})
    });
}

#[test]
fn taints_and_addresses_of_a_node() {
    check("", "v1", "nodes", |count| {
        let address = |at: usize| json!({"type": "InternalIP", "address": format!("a{at}")});
        json!({
            "spec": {"taints": many(count, |at| json!({"key": format!("k{at}"), "effect": "NoSchedule"}))},
            "status": {"addresses": many(count, address)},
        })
    });
}

#[test]
fn ports_and_families_of_a_service() {
    check("", "v1", "services", |count| {
        let port = |at: usize| json!({"name": format!("p{at}"), "port": at % 65535 + 1, "nodePort": at % 32767 + 1, "protocol": "TCP"});
        json!({"spec": {
            "type": "NodePort", "ports": many(count, port), "ipFamilies": many(count, |at| format!("f{at}").into()),
        }})
    });
}

#[test]
fn volumes_and_claims_of_a_stateful_set() {
    check("apps", "v1", "statefulsets", |count| {
        let volumes = many(count, |at| json!({"name": format!("v{at}"), "emptyDir": {}}));
        let claims = many(count, |at| json!({"metadata": {"name": format!("c{at}")}}));
        json!({"spec": {
            "volumeClaimTemplates": claims,
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}},
        }})
    });
}

#[test]
fn rules_and_indexes_of_a_job() {
    check("batch", "v1", "jobs", |count| {
        let rule = |at: usize| {
            let codes = json!({"containerName": format!("x{at}"), "operator": "In", "values": [1]});
            json!({"action": "Ignore", "onExitCodes": codes})
        };
        let indexes = |odd: usize| {
            let indexes: Vec<String> = (0..count).map(|at| (2 * at + odd).to_string()).collect();
            indexes.join(",")
        };
        let containers = many(count, |at| json!({"name": format!("c{at}")}));
        json!({
            "spec": {
                "completions": 4 * count, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
                "template": {"spec": {"containers": containers}}, "podFailurePolicy": {"rules": many(count, rule)},
            },
            "status": {"completedIndexes": indexes(0), "failedIndexes": indexes(1)},
        })
    });
}

#[test]
fn drivers_of_a_csi_node_and_their_keys() {
    check("storage.k8s.io", "v1", "csinodes", |count| {
        let keys = many(count, |at| format!("k{at}").into());
        let mut drivers = many(count, |at| json!({"name": format!("d{at}"), "nodeID": "n"}));
        drivers[0].set("topologyKeys", keys);
        json!({"spec": {"drivers": drivers}})
    });
}

#[test]
fn lists_of_names() {
    check("storage.k8s.io", "v1", "csidrivers", |count| {
        let requests = many(count, |at| json!({"audience": format!("a{at}")}));
        json!({"spec": {"tokenRequests": requests}})
    });
    check(
        "",
        "v1",
        "limitranges",
        |count| json!({"spec": {"limits": many(count, |at| json!({"type": format!("example.com/t{at}")}))}}),
    );
    check(
        "resource.k8s.io",
        "v1",
        "resourceslices",
        |count| json!({"spec": {"devices": many(count, |at| json!({"name": format!("d{at}")}))}}),
    );
}

#[test]
fn requests_and_devices_of_a_claim() {
    check("resource.k8s.io", "v1", "resourceclaims", |count| {
        let request = |at: usize| json!({"name": format!("r{at}"), "exactly": {"deviceClassName": "c"}});
        let names = many(count, |at| format!("x{at}").into());
        let device = |at: usize| json!({"driver": "d.example.com", "pool": "p", "device": format!("d{at}")});
        json!({
            "spec": {"devices": {
                "requests": many(count, request),
                "constraints": [{"matchAttribute": "d.example.com/a", "requests": names}],
            }},
            "status": {"devices": many(count, device), "allocation": {"devices": {"results": many(count, device)}}},
        })
    });
}

#[test]
fn webhooks_their_rules_and_paths() {
    let configurations = "validatingwebhookconfigurations";
    check(
        "admissionregistration.k8s.io",
        "v1",
        configurations,
        |count| json!({"webhooks": many(count, |at| json!({"name": format!("w{at}.example.com")}))}),
    );
    check("admissionregistration.k8s.io", "v1", configurations, |count| {
        let rule = json!({
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": many(count, |at| match at % 3 {
                0 => format!("a{at}/*").into(),
                1 => format!("*/p{at}").into(),
                _ => format!("a{at}/p{at}").into(),
            }),
        });
        json!({"webhooks": [{"name": "w.example.com", "rules": [rule]}]})
    });
    check("admissionregistration.k8s.io", "v1", configurations, |count| {
        let service = json!({"name": "s", "namespace": "n", "path": "/a/".repeat(count)});
        json!({"webhooks": [{"name": "w.example.com", "clientConfig": {"service": service}}]})
    });
}

#[test]
fn versions_keys_and_formats_of_a_definition() {
    let plural = "customresourcedefinitions";
    check("apiextensions.k8s.io", "v1", plural, |count| {
        json!({
            "spec": {"versions": many(count, |at| json!({"name": format!("v{at}"), "storage": true}))},
            "status": {"storedVersions": many(count, |at| format!("s{at}").into())},
        })
    });
    check("apiextensions.k8s.io", "v1", plural, |count| {
        let keys = many(count, |at| format!("k{at}").into());
        let mut properties = json!({});
        for at in 0..count {
            properties.set(&format!("k{at}"), json!({"type": "string", "format": format!("f{at}")}));
        }
        let items = json!({"type": "object", "required": keys, "properties": properties});
        let list = json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items,
        });
        let schema = json!({"type": "object", "properties": {"spec": list}});
        json!({"spec": {"versions": [{"name": "v1", "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
    });
}

#[test]
fn a_list_of_a_custom_resource_that_is_known_by_keys() {
    let items = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}});
    let list = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": items,
    });
    let schema = json!({"type": "object", "properties": {"spec": list}});
    let definition = crate::custom::Definition::parse(&json!({"spec": {
        "group": "example.com", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "storage": true, "schema": {"openAPIV3Schema": schema}}],
    }}));
    let thing = |value: i64| json!({"spec": many(BYTES / 32, |at| json!({"k": format!("k{at}"), "v": value}))});
    let (new, old) = (thing(1), thing(2));
    let begun = busy();
    assert_eq!(definition.versions[0].validate(&new, Some(&old)), []);
    let took = busy() - begun;
    assert!(took <= LONGEST, "it took {took:?}");
}
