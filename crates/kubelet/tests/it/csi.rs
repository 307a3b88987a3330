//! Volumes that CSI drivers mount, and drivers that are not what they should be.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use csi::v1::volume_capability::AccessType;
use serde_json::{Value, json};
use tonic::Status;

use crate::csi_driver::{Driver, Fault, State, wait_until};
use crate::node::{TestNode, is_ready};
use crate::scenarios::{Scenario, scenarios, sleeper};

scenarios! {
    a_driver_is_registered_and_goes_with_its_socket,
    sockets_that_are_no_drivers_are_refused,
    a_volume_is_attached_staged_published_and_taken_down,
    a_pods_own_volume_is_made_and_published_again,
    a_driver_that_refuses_is_asked_again_and_the_pod_is_told,
    a_pod_can_be_deleted_while_its_driver_hangs,
    a_driver_that_is_gone_is_waited_for,
    a_driver_that_lies_leaves_nothing_mounted,
    a_volume_for_one_pod_is_not_given_to_another,
    a_block_volume_is_a_device_in_its_pod,
    a_volume_grows_and_its_driver_says_how_full_it_is,
}

const NODE: &str = "/api/v1/nodes/n1";
const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/n1";
const CSI_DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";

fn root(node: &TestNode) -> PathBuf {
    let root = node.containerd.root().canonicalize().expect("the node's directory");
    root.join("k")
}

fn state(node: &TestNode, name: &str) -> State {
    State::new(name, node.directory(&format!("drivers/{name}")))
}

/// A driver without a need to attach, and its object.
async fn start(node: &TestNode, state: State, spec: Value) -> Driver {
    let mut object = json!({"metadata": {"name": state.name}, "spec": {"attachRequired": false}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    node.api.create(CSI_DRIVERS, object);
    let driver = Driver::start(&root(node), state);
    driver.wait_until_registered().await;
    driver
}

/// Creates a volume of a driver and a claim that are bound to each other, and the volume's directory.
fn bind(node: &TestNode, driver: &Driver, name: &str, spec: Value) -> PathBuf {
    let claim = json!({
        "metadata": {"name": name}, "spec": {"volumeName": name},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    });
    let created = node.api.create(CLAIMS, claim);
    let mut volume = json!({
        "claimRef": {"namespace": "default", "name": name, "uid": created["metadata"]["uid"]},
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "csi": {"driver": driver.state.name, "volumeHandle": name, "volumeAttributes": {"color": "red"}},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        match field.as_str() {
            "csi" => {
                for (field, value) in value.as_object().into_iter().flatten() {
                    volume["csi"][field] = value.clone();
                }
            }
            _ => volume[field] = value.clone(),
        }
    }
    node.api
        .create(VOLUMES, json!({"metadata": {"name": name}, "spec": volume}));
    let directory = driver.state.volumes.join(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    directory
}

fn with_claim(claim: &str) -> Value {
    let mut spec = sleeper();
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    spec
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn mounts_with(text: &str) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.lines().filter(|line| line.contains(text));
    lines.map(str::to_owned).collect()
}

fn csi_driver_entry(node: &TestNode, name: &str) -> Option<Value> {
    let drivers = node.api.get(CSI_NODE)?["spec"]["drivers"].as_array().cloned()?;
    drivers.into_iter().find(|driver| driver["name"] == name)
}

async fn a_driver_is_registered_and_goes_with_its_socket(node: Arc<TestNode>) {
    let name = "reg.example";
    let mut driver = start(&node, state(&node, name), json!({})).await;
    let zone = "topology.reg.example/zone";
    assert_eq!(
        csi_driver_entry(&node, name),
        Some(json!({
            "name": name, "nodeID": "node-of-driver", "topologyKeys": [zone], "allocatable": {"count": 12},
        }))
    );
    let object = node.api.get(NODE).unwrap_or_default();
    assert_eq!(object["metadata"]["labels"][zone], "z1");
    let ids = object["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"].clone();
    assert!(
        ids.as_str()
            .is_some_and(|ids| ids.contains(r#""reg.example":"node-of-driver""#)),
        "{ids}"
    );
    let owner = node.api.get(CSI_NODE).unwrap_or_default()["metadata"]["ownerReferences"][0].clone();
    assert_eq!(
        (&owner["kind"], &owner["uid"]),
        (&json!("Node"), &object["metadata"]["uid"])
    );
    // A second one of the name is refused, and takes nothing from the first.
    let mut thief = state(&node, name);
    thief.volumes = node.directory("drivers/thief");
    let thief = Driver::start_as(&root(&node), thief, "thief.sock");
    let refused = || thief.state.status().is_some_and(|status| !status.plugin_registered);
    wait_until("the second driver is refused", refused).await;
    let why = thief.state.status().unwrap_or_default().error;
    assert!(
        why.contains("Another driver with the same name is already registered"),
        "{why}"
    );
    assert!(thief.state.calls("info").is_empty(), "it was asked for something");
    drop(thief);
    driver.stop();
    wait_until("the driver is gone", || csi_driver_entry(&node, name).is_none()).await;
}

async fn sockets_that_are_no_drivers_are_refused(node: Arc<TestNode>) {
    use tokio::io::AsyncWriteExt;
    let registry = root(&node).join("plugins_registry");
    std::fs::create_dir_all(&registry).expect("a directory");
    let outside = node.directory("outside");
    let trap = tokio::net::UnixListener::bind(outside.join("trap.sock")).expect("a socket");
    std::os::unix::fs::symlink(outside.join("trap.sock"), registry.join("link.sock")).expect("a link");
    std::fs::write(registry.join("file.sock"), "x").expect("a file");
    let garbage = tokio::net::UnixListener::bind(registry.join("garbage.sock")).expect("a socket");
    let silent = tokio::net::UnixListener::bind(registry.join("silent.sock")).expect("a socket");
    // It accepts, speaks nonsense, and is asked again.
    for _ in 0..2 {
        let (mut stream, _) = garbage.accept().await.expect("a connection");
        let _ = stream.write_all(&[0xfe; 1000]).await;
    }
    let mut bad = state(&node, "bad");
    bad.name = "../../etc".to_owned();
    let bad = Driver::start_as(&root(&node), bad, "bad.sock");
    let told = || {
        bad.state
            .status()
            .is_some_and(|status| status.error.contains("is not the name of a CSI driver"))
    };
    wait_until("a bad name is refused", told).await;
    // A driver is registered beside all of them.
    let empty = state(&node, "noid.example");
    empty.set_fault("info", Some(Fault::Lie));
    let empty = Driver::start(&root(&node), empty);
    let told = || {
        empty
            .state
            .status()
            .is_some_and(|status| status.error.contains("empty or overlong node ID"))
    };
    wait_until("a driver without an ID is refused", told).await;
    assert_eq!(csi_driver_entry(&node, "noid.example"), None);
    empty.state.set_fault("info", None);
    empty.wait_until_registered().await;
    let reached = tokio::time::timeout(std::time::Duration::from_millis(1), trap.accept()).await;
    assert!(reached.is_err(), "a link was followed");
    for name in ["link.sock", "file.sock", "garbage.sock", "silent.sock"] {
        std::fs::remove_file(registry.join(name)).expect("it is there");
    }
    drop(silent);
}

async fn a_volume_is_attached_staged_published_and_taken_down(node: Arc<TestNode>) {
    let name = "full.example";
    let spec = json!({"attachRequired": true, "podInfoOnMount": true, "fsGroupPolicy": "File"});
    let driver = start(&node, state(&node, name), spec).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    node.api.create(
        secrets,
        json!({"metadata": {"name": "full"}, "data": {"password": "aHVudGVyMg=="}}),
    );
    let secret = json!({"name": "full", "namespace": "default"});
    let directory = bind(
        &node,
        &driver,
        "full",
        json!({"mountOptions": ["noatime"],
            "csi": {"fsType": "ext4", "nodeStageSecretRef": secret, "nodePublishSecretRef": secret}}),
    );
    let mut spec = with_claim("full");
    spec["securityContext"] = json!({"fsGroup": 4321});
    node.create_pod("full", spec);
    let unique = "kubernetes.io/csi/full.example^full";
    let in_use = || node.api.get(NODE).unwrap_or_default()["status"]["volumesInUse"] == json!([unique]);
    wait_until("the volume is in use", in_use).await;
    assert!(driver.state.calls("stage").is_empty(), "it is not attached");
    let digest = ring::digest::digest(&ring::digest::SHA256, b"fullfull.examplen1");
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    node.api.create(
        "/apis/storage.k8s.io/v1/volumeattachments",
        json!({"metadata": {"name": format!("csi-{digest}")},
            "status": {"attached": true, "attachmentMetadata": {"lun": "7"}}}),
    );
    node.api.patch(
        NODE,
        json!({"status": {"volumesAttached": [{"name": unique, "devicePath": ""}]}}),
    );
    let pod = node.wait_for("full", "ready", is_ready).await;
    let uid = uid(&pod);
    let (stage, publish) = (
        driver.state.calls("stage").remove(0),
        driver.state.calls("publish").remove(0),
    );
    for call in [&stage, &publish] {
        assert_eq!(call.secrets["password"], "hunter2");
        assert_eq!(call.publish_context["lun"], "7");
        assert_eq!(call.volume_context["color"], "red");
        let Some(AccessType::Mount(mount)) = call.capability.clone().unwrap_or_default().access_type else {
            panic!("no file system was asked for: {call:?}");
        };
        assert_eq!(
            (mount.fs_type.as_str(), mount.mount_flags),
            ("ext4", vec!["noatime".to_owned()])
        );
    }
    assert_eq!(publish.volume_context["csi.storage.k8s.io/pod.uid"], uid);
    assert_eq!(publish.staging, stage.path);
    let digest = ring::digest::digest(&ring::digest::SHA256, b"full");
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let staged = root(&node).join("plugins/kubernetes.io/csi").join(name).join(digest);
    assert_eq!(stage.path, staged.join("globalmount").display().to_string());
    let place = root(&node)
        .join("pods")
        .join(&uid)
        .join("volumes/kubernetes.io~csi/full");
    assert_eq!(publish.path, place.join("mount").display().to_string());
    assert!(place.join("vol_data.json").exists() && staged.join("vol_data.json").exists());
    let metadata = directory.metadata().expect("the volume");
    assert_eq!((metadata.gid(), metadata.mode() & 0o2070), (4321, 0o2070));
    node.exec("full", &["sh", "-c", "echo%20kept%20%3E%20/data/f"]).await;
    node.delete("full", 1);
    node.wait_gone("full").await;
    node.wait_untraced(&uid).await;
    driver.wait_for_calls("unstage", 1).await;
    let in_use = || node.api.get(NODE).unwrap_or_default()["status"]["volumesInUse"] == json!([]);
    wait_until("nothing is in use", in_use).await;
    assert!(!staged.exists() && mounts_with("full.example").is_empty());
    assert_eq!(
        std::fs::read_to_string(directory.join("f")).ok().as_deref(),
        Some("kept\n")
    );
    assert_eq!(driver.state.calls("unpublish")[0].path, publish.path);
    assert_eq!(driver.state.calls("stage").len(), 1);
}

async fn a_pods_own_volume_is_made_and_published_again(node: Arc<TestNode>) {
    let name = "inline.example";
    let spec = json!({
        "volumeLifecycleModes": ["Persistent", "Ephemeral"], "requiresRepublish": true,
        "tokenRequests": [{"audience": "vault"}],
    });
    let driver = start(&node, state(&node, name), spec).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    node.api
        .create(maps, json!({"metadata": {"name": "inline"}, "data": {"a": "1"}}));
    let mut spec = sleeper();
    spec["volumes"] = json!([
        {"name": "own", "csi": {"driver": name, "readOnly": true, "volumeAttributes": {"x": "y"}}},
        {"name": "map", "configMap": {"name": "inline"}},
    ]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "own", "mountPath": "/data"}]);
    node.create_pod("inline", spec);
    let pod = node.wait_for("inline", "ready", is_ready).await;
    let publish = driver.state.calls("publish").remove(0);
    assert!(publish.volume.starts_with("csi-") && publish.readonly && publish.staging.is_empty());
    assert!(driver.state.calls("stage").is_empty());
    assert_eq!(publish.volume_context["x"], "y");
    let tokens = &publish.volume_context["csi.storage.k8s.io/serviceAccount.tokens"];
    assert!(
        tokens.contains(r#""vault":{"#) && tokens.contains("token-for-inline"),
        "{tokens}"
    );
    // A look at the pod's volumes is due when one of its objects changes.
    node.api.patch(&format!("{maps}/inline"), json!({"data": {"a": "2"}}));
    driver.wait_for_calls("publish", 2).await;
    assert_eq!(driver.state.calls("publish")[1].path, publish.path);
    node.delete("inline", 1);
    node.wait_gone("inline").await;
    node.wait_untraced(&uid(&pod)).await;
    assert_eq!(driver.state.calls("unpublish")[0].volume, publish.volume);
    // A driver that does not say that it can is not asked.
    let mut spec = sleeper();
    spec["volumes"] = json!([{"name": "own", "csi": {"driver": "nobody.example"}}]);
    node.create_pod("inline-nobody", spec);
    let message = "FailedMount MountVolume.SetUp failed for volume \\own\\ : kubernetes.io/csi: mounter.SetupAt failed to check \
                   volume lifecycle mode: volume mode \\Ephemeral\\ not supported by driver nobody.example (no CSIDriver object)";
    node.wait_for_event("inline-nobody", message).await;
    node.delete("inline-nobody", 1);
    node.wait_gone("inline-nobody").await;
}

async fn a_driver_that_refuses_is_asked_again_and_the_pod_is_told(node: Arc<TestNode>) {
    let state = state(&node, "refuses.example");
    state.set_fault("stage", Some(Fault::Refuse(Status::internal("no room"), 1)));
    state.set_fault("publish", Some(Fault::Refuse(Status::aborted("not yet"), 1)));
    state.set_fault("unpublish", Some(Fault::Refuse(Status::unavailable("busy"), 1)));
    state.set_fault("unstage", Some(Fault::Refuse(Status::unavailable("busy"), 2)));
    let driver = start(&node, state, json!({})).await;
    bind(&node, &driver, "refused", json!({}));
    node.create_pod("refused", with_claim("refused"));
    let staging =
        "FailedMount MountVolume.MountDevice failed for volume \\refused\\ : rpc error: code = Internal desc = no room";
    node.wait_for_event("refused", staging).await;
    let pod = node.wait_for("refused", "ready", is_ready).await;
    let publishing =
        "FailedMount MountVolume.SetUp failed for volume \\refused\\ : rpc error: code = Aborted desc = not yet";
    node.wait_for_event("refused", publishing).await;
    node.delete("refused", 1);
    node.wait_gone("refused").await;
    node.wait_untraced(&uid(&pod)).await;
    driver.wait_for_calls("unstage", 3).await;
    wait_until("nothing is mounted", || mounts_with("refuses.example").is_empty()).await;
}

async fn a_pod_can_be_deleted_while_its_driver_hangs(node: Arc<TestNode>) {
    let state = state(&node, "hangs.example");
    state.set_fault("publish", Some(Fault::Hang));
    let driver = start(&node, state, json!({})).await;
    bind(&node, &driver, "hung", json!({}));
    node.create_pod("hung", with_claim("hung"));
    driver.wait_for_calls("publish", 1).await;
    let uid = uid(&node.pod("hung").unwrap_or_default());
    node.delete("hung", 1);
    driver.wait_for_calls("unpublish", 1).await;
    node.wait_gone("hung").await;
    node.wait_untraced(&uid).await;
    driver.wait_for_calls("unstage", 1).await;
    wait_until("nothing is mounted", || mounts_with("hangs.example").is_empty()).await;
}

async fn a_driver_that_is_gone_is_waited_for(node: Arc<TestNode>) {
    let mut driver = start(&node, state(&node, "gone.example"), json!({})).await;
    let directory = bind(&node, &driver, "gone", json!({}));
    driver.stop();
    wait_until("the driver is gone", || {
        csi_driver_entry(&node, "gone.example").is_none()
    })
    .await;
    node.create_pod("gone", with_claim("gone"));
    let message = "FailedMount MountVolume.MountDevice failed for volume \\gone\\ : kubernetes.io/csi: failed to get CSI client: \
                   driver name gone.example not found in the list of registered CSI drivers";
    node.wait_for_event("gone", message).await;
    let again = || Driver::start(&root(&node), state(&node, "gone.example"));
    let mut driver = again();
    let pod = node.wait_for("gone", "ready", is_ready).await;
    std::fs::write(directory.join("f"), "kept").expect("a file");
    // Its socket is replaced under the same name, as after a crash of the driver alone.
    driver.serve();
    driver.stop();
    node.delete("gone", 1);
    node.wait_gone_containers("gone").await;
    assert!(
        node.pod("gone").is_some(),
        "a pod is not gone while its volume is mounted"
    );
    let driver = again();
    node.wait_gone("gone").await;
    node.wait_untraced(&uid(&pod)).await;
    driver.wait_for_calls("unstage", 1).await;
    wait_until("nothing is mounted", || mounts_with("gone.example").is_empty()).await;
    assert!(directory.join("f").exists());
}

async fn a_driver_that_lies_leaves_nothing_mounted(node: Arc<TestNode>) {
    let state = state(&node, "lies.example");
    state.set_fault("unpublish", Some(Fault::Lie));
    state.set_fault("unstage", Some(Fault::Lie));
    state.set_fault("publish", Some(Fault::Lie));
    let driver = start(&node, state, json!({})).await;
    let directory = bind(&node, &driver, "lied", json!({}));
    std::fs::write(directory.join("f"), "kept").expect("a file");
    node.create_pod("lied", with_claim("lied"));
    let message =
        "FailedMount MountVolume.SetUp failed for volume \\lied\\ : the CSI driver published no usable volume at ";
    node.wait_for_event("lied", message).await;
    driver.state.set_fault("publish", None);
    let pod = node.wait_for("lied", "ready", is_ready).await;
    node.delete("lied", 1);
    node.wait_gone("lied").await;
    node.wait_untraced(&uid(&pod)).await;
    driver.wait_for_calls("unstage", 1).await;
    wait_until("nothing is mounted", || mounts_with("lies.example").is_empty()).await;
    assert!(directory.join("f").exists(), "data was removed through a mount");
}

async fn a_volume_for_one_pod_is_not_given_to_another(node: Arc<TestNode>) {
    let driver = start(&node, state(&node, "once.example"), json!({})).await;
    bind(&node, &driver, "once", json!({"accessModes": ["ReadWriteOncePod"]}));
    node.create_pod("once-1", with_claim("once"));
    node.wait_for("once-1", "ready", is_ready).await;
    node.create_pod("once-2", with_claim("once"));
    let message = "FailedMount MountVolume.SetUp failed for volume \\once\\ : volume uses the ReadWriteOncePod access mode and is \
                   already in use by another pod";
    node.wait_for_event("once-2", message).await;
    assert_eq!(driver.state.calls("publish").len(), 1);
    node.delete("once-1", 1);
    node.wait_for("once-2", "ready", is_ready).await;
    node.delete("once-2", 1);
    node.wait_gone("once-2").await;
}

async fn a_block_volume_is_a_device_in_its_pod(node: Arc<TestNode>) {
    if !std::path::Path::new("/dev/loop0").exists() {
        return eprintln!("SKIPPED: there is no /dev/loop0");
    }
    let driver = start(&node, state(&node, "block.example"), json!({})).await;
    bind(&node, &driver, "block", json!({"volumeMode": "Block"}));
    let mut spec = sleeper();
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "block"}}]);
    spec["containers"][0]["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/xvda"}]);
    node.create_pod("block", spec);
    let pod = node.wait_for("block", "ready", is_ready).await;
    node.exec("block", &["test", "-b", "/dev/xvda"]).await;
    let (stage, publish) = (
        driver.state.calls("stage").remove(0),
        driver.state.calls("publish").remove(0),
    );
    let devices = root(&node).join("plugins/kubernetes.io/csi/volumeDevices");
    assert_eq!(stage.path, devices.join("staging/block").display().to_string());
    assert_eq!(
        publish.path,
        devices.join("publish/block").join(uid(&pod)).display().to_string()
    );
    assert!(devices.join("block/data/vol_data.json").exists());
    node.delete("block", 1);
    node.wait_gone("block").await;
    node.wait_untraced(&uid(&pod)).await;
    driver.wait_for_calls("unstage", 1).await;
    wait_until("nothing is left", || !devices.join("block").exists()).await;
    assert!(mounts_with("volumeDevices").is_empty());
}

async fn a_volume_grows_and_its_driver_says_how_full_it_is(node: Arc<TestNode>) {
    let mut state = state(&node, "grows.example");
    state.mounts_groups = true;
    let driver = start(&node, state, json!({"fsGroupPolicy": "File"})).await;
    let directory = bind(&node, &driver, "grown", json!({}));
    let maps = "/api/v1/namespaces/default/configmaps";
    node.api
        .create(maps, json!({"metadata": {"name": "grown"}, "data": {"a": "1"}}));
    let mut spec = with_claim("grown");
    spec["securityContext"] = json!({"fsGroup": 4321});
    spec["volumes"]
        .as_array_mut()
        .expect("volumes")
        .push(json!({"name": "map", "configMap": {"name": "grown"}}));
    node.create_pod("grown", spec);
    let pod = node.wait_for("grown", "ready", is_ready).await;
    // A driver that gives volumes to groups is told which, and the kubelet leaves them alone.
    let Some(AccessType::Mount(mount)) = driver.state.calls("publish")[0]
        .capability
        .clone()
        .unwrap_or_default()
        .access_type
    else {
        panic!("no file system was asked for");
    };
    assert_eq!(mount.volume_mount_group, "4321");
    assert_ne!(directory.metadata().expect("the volume").gid(), 4321);
    driver.wait_for_calls("stats", 1).await;
    let series = r#"kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="grown"} 4711"#;
    let begun = std::time::Instant::now();
    while !node.request("/metrics").await.1.contains(series) {
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(60),
            "no figures of the driver's"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(driver.state.calls("expand").is_empty());
    // The volume has grown, and a resizer says that the node's part is left.
    let claim = format!("{CLAIMS}/grown");
    driver
        .state
        .set_fault("expand", Some(Fault::Refuse(Status::internal("later"), 1)));
    node.api.patch(
        &format!("{VOLUMES}/grown"),
        json!({"spec": {"capacity": {"storage": "2Gi"}}}),
    );
    node.api.patch(
        &claim,
        json!({"status": {"allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}]}}),
    );
    node.api.patch(&format!("{maps}/grown"), json!({"data": {"a": "2"}}));
    let message = "VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume \\grown\\ : rpc error: code = Internal \
                   desc = later";
    node.wait_for_event("grown", message).await;
    let status = node.api.get(&claim).unwrap_or_default()["status"].clone();
    assert_eq!(status["capacity"]["storage"], "1Gi");
    assert_eq!(status["allocatedResourceStatuses"]["storage"], "NodeResizeInProgress");
    node.api.patch(&format!("{maps}/grown"), json!({"data": {"a": "3"}}));
    let is_grown = || {
        let status = node.api.get(&claim).unwrap_or_default()["status"].clone();
        status["capacity"]["storage"] == "2Gi" && status["allocatedResourceStatuses"]["storage"].is_null()
    };
    wait_until("the claim has grown", is_grown).await;
    let expand = driver.state.calls("expand").pop().unwrap_or_default();
    assert_eq!(expand.bytes, 2 << 30);
    assert_eq!(expand.path, driver.state.calls("publish")[0].path);
    let message = "FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume \\grown\\ n1";
    node.wait_for_event("grown", message).await;
    node.delete("grown", 1);
    node.wait_gone("grown").await;
    node.wait_untraced(&uid(&pod)).await;
}

/// A kubelet that is killed while it waits for a driver takes up where it was, whatever the call.
#[test]
fn a_kubelet_that_is_killed_between_two_calls_takes_up_where_it_was() {
    let new_runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let drivers = new_runtime();
    let first = new_runtime();
    let Some(mut node) = first.block_on(TestNode::start("10.88.6.0/24")) else {
        return;
    };
    let (driver, directory) = drivers.block_on(async {
        let driver = start(&node, state(&node, "killed.example"), json!({})).await;
        let directory = bind(&node, &driver, "killed", json!({}));
        (driver, directory)
    });
    std::fs::write(directory.join("f"), "kept").expect("a file");
    let mut current = first;
    let mut uid = String::new();
    for (call, hangs_until) in [
        ("stage", "publish"),
        ("publish", ""),
        ("unpublish", "unstage"),
        ("unstage", ""),
    ] {
        driver.state.set_fault(call, Some(Fault::Hang));
        current.block_on(async {
            match call {
                "stage" => node.create_pod("killed", with_claim("killed")),
                "unpublish" => {
                    let pod = node.wait_for("killed", "ready", is_ready).await;
                    uid = self::uid(&pod);
                    node.delete("killed", 1);
                }
                _ => {}
            }
            let before = driver.state.calls(call).len();
            driver.wait_for_calls(call, before.max(1)).await;
        });
        if !hangs_until.is_empty() {
            driver.state.set_fault(
                if hangs_until == "publish" { "publish" } else { "unstage" },
                Some(Fault::Hang),
            );
        }
        drop(node.kubelet.take());
        current.shutdown_timeout(std::time::Duration::from_millis(100));
        driver.state.set_fault(call, None);
        current = new_runtime();
        current.block_on(node.start_kubelet());
    }
    current.block_on(async {
        node.wait_gone("killed").await;
        node.wait_untraced(&uid).await;
        wait_until("nothing is mounted", || mounts_with("killed.example").is_empty()).await;
    });
    assert!(directory.join("f").exists(), "data was lost");
    drop(node.kubelet.take());
    drivers.block_on(async { drop(driver) });
}
