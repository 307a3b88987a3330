//! How long the engine's steps take, beside plain `serde_json`: `cargo run --release -p schema --example speed`.
//! With a word of a step's name and a number, only that step is run, that many times: for tools that count instructions.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use schema::Value;
use schema::ownership::{self, Filter, Node, Versions, Writer};
use serde_json::json;

/// The allocator of the binary, because most of the time goes to allocation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BUDGET: Duration = Duration::from_millis(300);

/// Prints the time of one call, taken as the best of many batches.
fn measure(name: &str, size: usize, mut step: impl FnMut()) {
    let mut arguments = std::env::args().skip(1);
    if let (Some(wanted), Some(times)) = (arguments.next(), arguments.next()) {
        if name.contains(&wanted) {
            (0..times.parse().unwrap_or(1)).for_each(|_: u32| step());
        }
        return;
    }
    let started = Instant::now();
    let mut best = Duration::MAX;
    while started.elapsed() < BUDGET {
        let batch = Instant::now();
        for _ in 0..100 {
            step();
        }
        best = best.min(batch.elapsed() / 100);
    }
    println!("{name:<44} {size:>6} bytes {:>9.2} µs", best.as_secs_f64() * 1e6);
}

fn main() {
    let started = Instant::now();
    let schema = schema::builtin();
    let loaded = started.elapsed().as_secs_f64() * 1e6;
    println!("{:<44} {loaded:>22.2} µs", "reading the fact table");
    for object in [config_map(), pod()] {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let Some(ty) = schema.object(api_version, &kind) else {
            continue;
        };
        let input = schema::encode_json(&object);
        let Ok(decoded) = schema::decode_json(ty, &input) else {
            continue;
        };
        let value = decoded.value;
        let stored = Bytes::from(schema::encode_json(&value));
        let Ok(message) = schema::encode_protobuf(ty, &value) else {
            continue;
        };
        measure(&format!("{kind}: serde_json to Value"), input.len(), || {
            black_box(serde_json::from_slice::<Value>(black_box(&input)).ok());
        });
        measure(&format!("{kind}: decode_json"), input.len(), || {
            black_box(schema::decode_json(ty, black_box(&input)).ok());
        });
        measure(&format!("{kind}: normalize"), input.len(), || {
            let mut copy = value.clone();
            black_box(schema::normalize(ty, &mut copy).ok());
        });
        measure(&format!("{kind}: clone"), input.len(), || {
            black_box(value.clone());
        });
        measure(&format!("{kind}: serde_json to bytes"), stored.len(), || {
            black_box(serde_json::to_vec(black_box(&value)).ok());
        });
        measure(&format!("{kind}: encode_json"), stored.len(), || {
            black_box(schema::encode_json(black_box(&value)));
        });
        measure(&format!("{kind}: splice_resource_version"), stored.len(), || {
            black_box(schema::splice_resource_version(black_box(&stored), 123_456));
        });
        measure(&format!("{kind}: encode_protobuf"), message.len(), || {
            black_box(schema::encode_protobuf(ty, black_box(&value)).ok());
        });
        measure(&format!("{kind}: decode_protobuf"), message.len(), || {
            black_box(schema::decode_protobuf(ty, black_box(&message)).ok());
        });
        let patch = json!({"metadata": {"labels": {"app": "b"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        measure(&format!("{kind}: strategic_merge_patch"), input.len(), || {
            black_box(schema::strategic_merge_patch(ty, black_box(&value), &patch).ok());
        });
        measure_tracking(&value);
    }
}

/// What noting the owners costs, the copy of the object included.
fn measure_tracking(value: &Value) {
    let kind = value["kind"].as_str().unwrap_or_default();
    let mut fresh = value.clone();
    fresh["metadata"]["managedFields"].take();
    let mut stored = fresh.clone();
    ownership::track(&Core(kind), None, &mut stored, &WRITER);
    measure(&format!("{kind}: copy and track a create"), 0, || {
        let mut new = fresh.clone();
        ownership::track(&Core(kind), None, &mut new, &WRITER);
        black_box(new);
    });
    let mut changed = stored.clone();
    changed["metadata"]["labels"]["app"] = "b".into();
    measure(&format!("{kind}: copy and track an update"), 0, || {
        let mut new = changed.clone();
        ownership::track(&Core(kind), Some(&stored), &mut new, &WRITER);
        black_box(new);
    });
}

/// A kind of the core group.
struct Core<'a>(&'a str);

impl Versions for Core<'_> {
    fn node(&self, api_version: &str) -> Option<Node<'_>> {
        schema::builtin().object(api_version, self.0).map(Node::for_type)
    }

    fn convert(&self, object: &Value, _: &str) -> Option<Value> {
        Some(object.clone())
    }
}

const WRITER: Writer<'static> = Writer {
    manager: "speed",
    api_version: "v1",
    subresource: "",
    filter: Filter {
        only: None,
        without: &[&["status"]],
    },
    now: schema::time::Instant {
        seconds: 1_700_000_000,
        nanos: 0,
    },
};

fn metadata() -> Value {
    json!({
        "name": "example-5d8f7b9c6-x2x4z", "namespace": "default", "uid": "0a8e4c1e-5f5b-4a33-a2a6-0f2b1e3d4c5b",
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "example", "pod-template-hash": "5d8f7b9c6"},
        "managedFields": [{
            "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:app": {}}}},
        }],
    })
}

fn config_map() -> Value {
    let data: serde_json::Map<_, _> = (0..8)
        .map(|i| (format!("key-{i}"), json!("value ".repeat(10))))
        .collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(), "data": data})
}

fn pod() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example/team/app:1.2.3", "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/app", "--listen=:8080", "--log-level=info"],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "env": [{"name": "A", "value": "1"}, {"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}],
            "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        })
    };
    let status = |name: &str| {
        json!({
            "name": name, "ready": true, "restartCount": 0, "started": true, "image": "registry.example/team/app:1.2.3",
            "imageID": "registry.example/team/app@sha256:5d8f7b9c65d8f7b9c65d8f7b9c65d8f7b9c65d8f7b9c65d8f7b9c65d8f7b9c6",
            "containerID": "karve://0123456789abcdef", "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}, "lastState": {},
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata(),
        "spec": {
            "containers": [container("app"), container("sidecar")], "nodeName": "node-1", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30, "securityContext": {},
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ]}}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}], "hostIP": "192.0.2.1", "qosClass": "Burstable",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z", "lastProbeTime": null},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastProbeTime": null},
            ],
            "containerStatuses": [status("app"), status("sidecar")],
        },
    })
}
