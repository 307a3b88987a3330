//! Networks by plugins: scripts that show the protocol, and the real ones where they are installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use expect_test::expect;
use network::cni::{self, CniOptions};
use network::{PodNetwork, PortMapping, Protocol};
use serde_json::{Value, json};

use crate::support::{Pod, block_on, on_new_host};

fn options(dir: &Path, config: &Value) -> CniOptions {
    let options = CniOptions {
        config_dir: dir.join("net.d"),
        bin_dirs: vec![dir.join("bin")],
        data_dir: dir.join("cni"),
    };
    fs::create_dir_all(&options.config_dir).unwrap();
    fs::create_dir_all(&options.bin_dirs[0]).unwrap();
    fs::write(options.config_dir.join("10-test.conflist"), config.to_string()).unwrap();
    options
}

/// A plugin that notes how it was called and then does as the script says.
fn install(options: &CniOptions, name: &str, script: &str) {
    let path = options.bin_dirs[0].join(name);
    let log = options.data_dir.with_file_name("log");
    let text = format!(
        "#!/bin/sh\ninput=$(cat)\necho \"$CNI_COMMAND {name} $CNI_IFNAME $CNI_CONTAINERID $CNI_ARGS $input\" >> {}\n{script}\n",
        log.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

const RESULT: &str = r#"[ $CNI_COMMAND = ADD ] && echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}]}' || true"#;

fn chain() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [
        {"type": "first", "mtu": 1400},
        {"type": "second", "capabilities": {"portMappings": true}},
    ]})
}

fn calls(dir: &Path) -> String {
    let text = fs::read_to_string(dir.join("log")).unwrap_or_default();
    let _ = fs::remove_file(dir.join("log"));
    text
}

#[test]
fn plugins_are_called_in_order_and_backwards_with_the_result_of_those_before() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), &chain());
        install(&options, "first", RESULT);
        install(&options, "second", RESULT);
        let network = cni::open(options.clone());
        let ports = [PortMapping {
            host_ip: None,
            host_port: 8080,
            container_port: 80,
            protocol: Protocol::Tcp,
        }];
        block_on(async {
            network.status().await.unwrap();
            let pod = Pod::new("a").with_ports(&ports).connected(&network).await;
            assert_eq!(pod.ips, ["10.1.0.5".parse::<std::net::IpAddr>().unwrap()]);
            network.check(&pod.sandbox).await.unwrap();
            // Connecting again asks nobody; a changed configuration does not matter to what is connected.
            network.setup(&pod.sandbox).await.unwrap();
            fs::remove_dir_all(&options.config_dir).unwrap();
            network.teardown(&pod.sandbox).await.unwrap();
            network.teardown(&pod.sandbox).await.unwrap();
        });
        expect![[r#"
            ADD first eth0 sandbox-of-a IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_INFRA_CONTAINER_ID=sandbox-of-a;K8S_POD_UID=uid-of-a {"cniVersion":"1.0.0","mtu":1400,"name":"net","type":"first"}
            ADD second eth0 sandbox-of-a IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_INFRA_CONTAINER_ID=sandbox-of-a;K8S_POD_UID=uid-of-a {"cniVersion":"1.0.0","name":"net","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"}]},"runtimeConfig":{"portMappings":[{"containerPort":80,"hostIP":"","hostPort":8080,"protocol":"tcp"}]},"type":"second"}
            CHECK first eth0 sandbox-of-a IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_INFRA_CONTAINER_ID=sandbox-of-a;K8S_POD_UID=uid-of-a {"cniVersion":"1.0.0","mtu":1400,"name":"net","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"}]},"type":"first"}
            CHECK second eth0 sandbox-of-a IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_INFRA_CONTAINER_ID=sandbox-of-a;K8S_POD_UID=uid-of-a {"cniVersion":"1.0.0","name":"net","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"}]},"runtimeConfig":{"portMappings":[{"containerPort":80,"hostIP":"","hostPort":8080,"protocol":"tcp"}]},"type":"second"}
            DEL second eth0 sandbox-of-a IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_INFRA_CONTAINER_ID=sandbox-of-a;K8S_POD_UID=uid-of-a {"cniVersion":"1.0.0","name":"net","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"}]},"runtimeConfig":{"portMappings":[{"containerPort":80,"hostIP":"","hostPort":8080,"protocol":"tcp"}]},"type":"second"}
            DEL first eth0 sandbox-of-a IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_INFRA_CONTAINER_ID=sandbox-of-a;K8S_POD_UID=uid-of-a {"cniVersion":"1.0.0","mtu":1400,"name":"net","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"}]},"type":"first"}
        "#]].assert_eq(&calls(dir.path()));
    });
}

#[test]
fn what_a_plugin_refuses_is_taken_back_and_told() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), &chain());
        install(&options, "first", RESULT);
        let network = cni::open(options.clone());
        block_on(async {
            let missing = network.status().await.unwrap_err().to_string();
            assert!(missing.starts_with("CNI plugin second is not in"), "{missing}");
            let refusal =
                r#"[ $CNI_COMMAND = DEL ] || { echo '{"code": 7, "msg": "no", "details": "not today"}'; exit 1; }"#;
            install(&options, "second", refusal);
            let pod = Pod::new("a");
            let error = network.setup(&pod.sandbox).await.unwrap_err().to_string();
            assert_eq!(error, "CNI plugin second failed ADD: no: not today (code 7)");
            let calls = calls(dir.path());
            let verbs: Vec<&str> = calls.lines().map(|line| line.split(" eth0").next().unwrap()).collect();
            assert_eq!(verbs, ["ADD first", "ADD second", "DEL second", "DEL first"]);
            install(&options, "second", "echo broken >&2; exit 3");
            let error = network.setup(&pod.sandbox).await.unwrap_err().to_string();
            assert_eq!(error, "CNI plugin second failed ADD: exit status: 3: broken");
        });
    });
}

#[test]
fn sandboxes_that_are_gone_are_taken_down() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), &chain());
        install(&options, "first", RESULT);
        install(&options, "second", RESULT);
        block_on(async {
            let network = cni::open(options.clone());
            let a = Pod::new("a").connected(&network).await;
            let _b = Pod::new("b").connected(&network).await;
            calls(dir.path());
            let network = cni::open(options);
            network.reconcile(std::slice::from_ref(&a.sandbox)).await.unwrap();
            let calls = calls(dir.path());
            let verbs: Vec<&str> = calls.lines().map(|line| line.split(" K8S_").next().unwrap()).collect();
            assert_eq!(verbs.len(), 2, "{verbs:?}");
            assert!(
                verbs
                    .iter()
                    .all(|verb| verb.starts_with("DEL") && verb.contains("sandbox-of-b")),
                "{verbs:?}"
            );
        });
    });
}

#[test]
fn real_plugins_connect_pods() {
    let bin_dir = ["/opt/cni/bin", "/usr/lib/cni"]
        .map(PathBuf::from)
        .into_iter()
        .find(|dir| dir.join("bridge").exists());
    let Some(bin_dir) = bin_dir else {
        let why = "the CNI project's plugins are not installed";
        assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "{why}");
        eprintln!("SKIPPED: {why}");
        return;
    };
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let config = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": true,
            "ipam": {
                "type": "host-local", "dataDir": dir.path().join("ipam"),
                "ranges": [[{"subnet": "10.7.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}],
            },
        }]});
        let mut options = options(dir.path(), &config);
        options.bin_dirs = vec![bin_dir];
        let network = cni::open(options);
        block_on(async {
            network.status().await.unwrap();
            let a = Pod::new("a").visible_to_programs().connected(&network).await;
            let b = Pod::new("b").visible_to_programs().connected(&network).await;
            b.serve_tcp(80);
            assert_eq!(a.get(b.ips[0], 80), format!("b saw {}", a.ips[0]));
            network.check(&a.sandbox).await.unwrap();
            network.teardown(&a.sandbox).await.unwrap();
            assert_eq!(a.run("ip", &["-br", "link"]).lines().count(), 1, "only lo is left");
        });
    });
}
