//! Pods and their claims.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::volumes::{ByKey, Volumes};

fn object<T: DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn put<T: DeserializeOwned + client::WithMetadata>(
    core: &mut Core,
    part: fn(&mut Volumes) -> &mut ByKey<T>,
    change: Change<'_>,
    value: Value,
) {
    let new = object::<T>(value);
    core.storage_changed(
        change,
        |volumes| part(volumes).changed(None, Some(&new)),
        Instant::now(),
    );
}

fn class(core: &mut Core, name: &str, provisioner: &str) {
    let class = json!({
        "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
    });
    put(core, |volumes| &mut volumes.classes, Change::Storage, class);
}

/// A claim, bound where a volume is given.
fn claim(core: &mut Core, name: &str, class: &str, volume: &str) {
    let annotations = match volume {
        "" => json!({}),
        _ => json!({"pv.kubernetes.io/bind-completed": "yes"}),
    };
    let claim = json!({
        "metadata": {"namespace": "default", "name": name, "uid": name, "annotations": annotations},
        "spec": {
            "storageClassName": class, "volumeName": volume, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let key = format!("default/{name}");
    put(core, |volumes| &mut volumes.claims, Change::Claim(&key), claim);
}

fn volume(core: &mut Core, name: &str, class: &str, size: &str, zone: &str) {
    let volume = json!({
        "metadata": {"name": name},
        "spec": {
            "storageClassName": class, "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]},
            ]}},
            "csi": {"driver": "disks", "volumeHandle": name},
        },
        "status": {"phase": "Available"},
    });
    put(core, |volumes| &mut volumes.volumes, Change::Storage, volume);
}

fn using(name: &str, claim: &str) -> String {
    pod(
        name,
        &format!("{{volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]}}"),
    )
}

fn zones() -> Core {
    core(&(zoned("a1", "a") + &zoned("b1", "b")))
}

#[test]
fn a_pod_waits_until_its_claim_is_there_and_bound() {
    let mut core = zones();
    add_pods(&mut core, &using("p", "data"));
    let rest = "no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for \
                scheduling.\n";
    let missing = format!("p: 0/2 nodes are available: persistentvolumeclaim \"data\" not found. {rest}");
    assert_eq!(decisions(&mut core), missing);
    claim(&mut core, "other", "", "");
    assert_eq!(decisions(&mut core), "", "the claim of another pod changes nothing");
    claim(&mut core, "data", "", "");
    let unbound = format!("p: 0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. {rest}");
    assert_eq!(decisions(&mut core), unbound);
    volume(&mut core, "disk", "", "1Gi", "b");
    claim(&mut core, "data", "", "disk");
    assert!(decisions(&mut core).contains("p: → b1\n"));
}

#[test]
fn a_bound_volume_must_be_reachable() {
    let mut core = core(&zoned("a1", "a"));
    volume(&mut core, "disk", "", "1Gi", "b");
    claim(&mut core, "data", "", "disk");
    add_pods(&mut core, &using("p", "data"));
    assert!(
        decisions(&mut core)
            .starts_with("p: 0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity.")
    );
}

#[test]
fn a_waiting_claim_takes_the_smallest_volume_that_will_do_and_nobody_else_does() {
    let mut core = zones();
    class(&mut core, "local", "kubernetes.io/no-provisioner");
    volume(&mut core, "large", "local", "9Gi", "b");
    volume(&mut core, "right", "local", "1Gi", "b");
    volume(&mut core, "small", "local", "1Mi", "b");
    claim(&mut core, "one", "local", "");
    claim(&mut core, "two", "local", "");
    claim(&mut core, "three", "local", "");
    add_pods(
        &mut core,
        &(using("p1", "one") + &using("p2", "two") + &using("p3", "three")),
    );
    let mut taken = Vec::new();
    while let Some(decision) = core.next(Instant::now()) {
        let volumes = decision.volumes.iter().map(|assignment| match assignment {
            Assignment::Bind { volume, .. } => volume.metadata.name.clone(),
            Assignment::Provision { .. } => "made".to_owned(),
        });
        taken.push(match &decision.result {
            Ok(node) => format!("{node} {}", volumes.collect::<String>()),
            Err(failure) => failure.reasons.keys().cloned().collect(),
        });
    }
    let none = "node(s) didn't find available persistent volumes to bind";
    assert_eq!(taken, ["b1 right", "b1 large", none]);
}

#[test]
fn a_class_makes_volumes_where_its_topology_allows() {
    let mut core = zones();
    class(&mut core, "made", "disks");
    claim(&mut core, "data", "made", "");
    add_pods(&mut core, &using("p", "data"));
    let decision = core.next(Instant::now()).unwrap();
    assert_eq!(decision.result.unwrap(), "a1");
    assert!(matches!(decision.volumes[..], [Assignment::Provision { .. }]));
    // A driver that says where it has room is believed.
    let driver = json!({"metadata": {"name": "disks"}, "spec": {"storageCapacity": true}});
    put(&mut core, |volumes| &mut volumes.csi_drivers, Change::Storage, driver);
    claim(&mut core, "more", "made", "");
    add_pods(&mut core, &using("q", "more"));
    assert!(decisions(&mut core).contains("1 node(s) did not have enough free storage"));
}

#[test]
fn a_failed_binding_gives_the_volume_back() {
    let mut core = zones();
    class(&mut core, "local", "kubernetes.io/no-provisioner");
    volume(&mut core, "disk", "local", "1Gi", "a");
    claim(&mut core, "data", "local", "");
    add_pods(&mut core, &using("p", "data"));
    let now = Instant::now();
    let decision = core.next(now).unwrap();
    assert_eq!(core.nodes.volumes.promised_volumes("").len(), 1);
    core.binding_failed(decision.queued, now);
    assert_eq!(core.nodes.volumes.promised_volumes("").len(), 0);
}

#[test]
fn a_claim_for_one_pod_is_used_by_one_pod() {
    let mut core = zones();
    let data = json!({
        "metadata": {"namespace": "default", "name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "disk", "accessModes": ["ReadWriteOncePod"]},
    });
    volume(&mut core, "disk", "", "1Gi", "b");
    put(
        &mut core,
        |volumes| &mut volumes.claims,
        Change::Claim("default/data"),
        data,
    );
    add_pods(&mut core, &(using("first", "data") + &using("second", "data")));
    let text = decisions(&mut core);
    assert!(
        text.starts_with("first: → b1\nsecond: 0/2 nodes are available: "),
        "{text}"
    );
    assert!(
        text.contains("ReadWriteOncePod access mode already in-use by another pod"),
        "{text}"
    );
    let first = Arc::new(Pod::decode(&documents(&using("first", "data"))[0]).unwrap());
    core.pod_changed(Some(&first), None, Instant::now());
    assert_eq!(decisions(&mut core), "second: → b1\n");
}

#[test]
fn zones_of_volumes_and_limits_of_drivers_hold() {
    let mut core = core(&zoned("a1", "a").replace("zone: a", "topology.kubernetes.io/zone: a"));
    let disk = |name: &str, zone: &str| {
        json!({
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
            "spec": {"csi": {"driver": "disks", "volumeHandle": name}},
        })
    };
    for (name, zone) in [("far", "b__c"), ("near", "a__b"), ("near2", "a"), ("near3", "a")] {
        put(
            &mut core,
            |volumes| &mut volumes.volumes,
            Change::Storage,
            disk(name, zone),
        );
        claim(&mut core, name, "", name);
    }
    let limit = json!({
        "metadata": {"name": "a1"}, "spec": {"drivers": [{"name": "disks", "allocatable": {"count": 1}}]},
    });
    put(&mut core, |volumes| &mut volumes.csi_nodes, Change::Storage, limit);
    add_pods(
        &mut core,
        &(using("p1", "far") + &using("p2", "near") + &using("p3", "near2")),
    );
    let text = decisions(&mut core);
    assert!(
        text.contains("p1: 0/1 nodes are available: 1 node(s) had no available volume zone."),
        "{text}"
    );
    assert!(text.contains("p2: → a1"), "{text}");
    assert!(
        text.contains("p3: 0/1 nodes are available: 1 node(s) exceed max volume count."),
        "{text}"
    );
    // The same volume is attached only once.
    add_pods(&mut core, &using("p4", "near"));
    assert!(decisions(&mut core).contains("p4: → a1"));
}
