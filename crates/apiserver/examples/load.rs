//! What requests, stored objects and watches cost the API server, asked in process: no TLS, no HTTP, no other program.
//!
//! `cargo run --release -p apiserver --example load -- requests|memory|watches [COUNT]`

#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../tests/cluster/mod.rs"]
mod cluster;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::Cluster;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use store::Store;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// As the binary does.
#[used]
#[unsafe(link_section = ".init_array.00100")]
static BEFORE_MAIN: extern "C" fn() = take_small_pages;

extern "C" fn take_small_pages() {
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const UPDATES_PER_SECOND: u32 = 1000;
const WATCHING: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let count = |default: usize| move |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(default);
    let directory = tempfile::tempdir().expect("a directory");
    let store = store::embedded::open(directory.path(), store::embedded::Options::default()).await;
    let store: Arc<dyn Store> = store.expect("a store");
    let cluster = start(store.clone()).await;
    match what.as_str() {
        "requests" => requests(&cluster, count(20_000)(arguments.next())).await,
        "memory" => memory(&cluster, &*store, count(100_000)(arguments.next())).await,
        "watches" => watches(Arc::new(cluster), count(10_000)(arguments.next())).await,
        _ => eprintln!("say what to measure: requests, memory or watches"),
    }
}

/// A server, and a user whose rights come from a binding as everybody's do.
async fn start(store: Arc<dyn Store>) -> Cluster {
    let admin = Cluster::start_on(store, &[]).await;
    let binding = json!({
        "metadata": {"name": "load"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "load"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    expect(admin.post(path, &binding).await, StatusCode::CREATED);
    let account = json!({"metadata": {"name": "default"}});
    let path = "/api/v1/namespaces/default/serviceaccounts";
    expect(admin.post(path, &account).await, StatusCode::CREATED);
    let user = admin.as_user("load");
    user.get_until_allowed(PODS).await;
    user
}

fn expect((code, answer): (StatusCode, Value), wanted: StatusCode) {
    assert_eq!(code, wanted, "{answer}");
}

/// CPU of the whole process per request, the asking included.
async fn requests(cluster: &Cluster, count: usize) {
    let create = |path: &str, object: Value| post(path, &object);
    let before = cpu();
    for number in 0..count {
        send(cluster, create(CONFIG_MAPS, config_map(number)), StatusCode::CREATED).await;
    }
    report("create ConfigMap of 1 KiB", before, count);
    let before = cpu();
    for number in 0..count {
        send(cluster, create(PODS, pod(number)), StatusCode::CREATED).await;
    }
    report("create pod", before, count);
    for (what, path) in [("GET ConfigMap", CONFIG_MAPS), ("GET pod", PODS)] {
        let before = cpu();
        for number in 0..count {
            let request = Request::get(format!("{path}/object-{number}")).body(Bytes::new());
            send(cluster, request.expect("a request"), StatusCode::OK).await;
        }
        report(what, before, count);
    }
    let before = cpu();
    for number in 0..count {
        let patch = json!({"status": {"phase": "Running", "podIP": format!("10.0.0.{}", number % 250)}});
        let request = Request::patch(format!("{PODS}/object-{number}/status"))
            .header("content-type", "application/strategic-merge-patch+json")
            .body(Bytes::from(patch.to_string()));
        send(cluster, request.expect("a request"), StatusCode::OK).await;
    }
    report("patch pod status", before, count);
}

/// What the process grows by, for the bytes it stores.
async fn memory(cluster: &Cluster, store: &dyn Store, count: usize) {
    settle().await;
    let (before, stored_before) = (resident(), stored(store));
    for number in 0..count {
        send(cluster, post(PODS, &pod(number)), StatusCode::CREATED).await;
    }
    settle().await;
    let (grown, stored) = (resident() - before, stored(store) - stored_before);
    println!(
        "{count} pods: {:.1} MB stored, {} bytes each; memory grew by {:.1} MB, {:.2} × what is stored",
        stored as f64 / 1e6,
        stored / count as u64,
        grown as f64 / 1e6,
        grown as f64 / stored as f64,
    );
}

/// One watch per object, updates spread over all of them: how long an update takes to its watcher.
async fn watches(cluster: Arc<Cluster>, count: usize) {
    for number in 0..count {
        send(&cluster, post(CONFIG_MAPS, &config_map(number)), StatusCode::CREATED).await;
    }
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let begun = Instant::now();
    for number in 0..count {
        let query = format!("watch=1&fieldSelector=metadata.name%3Dobject-{number}&timeoutSeconds=600");
        let request = Request::get(format!("{CONFIG_MAPS}?{query}")).body(Bytes::new());
        let response = cluster.send_whole(request.expect("a request")).await;
        let (mut body, arrived) = (response.into_body(), arrived.clone());
        tokio::spawn(async move {
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                if arrived.send((number, Instant::now(), length)).is_err() {
                    return;
                }
            }
        });
    }
    println!("{count} watches opened in {:?}", begun.elapsed());
    // Every watch begins with its object.
    for _ in 0..count {
        arrivals.recv().await;
    }
    let before = cpu();
    let updates = (WATCHING.as_secs() as u32 * UPDATES_PER_SECOND) as usize;
    let sending = tokio::spawn(update_for_a_while(cluster, count, updates));
    let mut delays = Vec::with_capacity(updates);
    let mut sent = Vec::new();
    let mut seen = Vec::new();
    while seen.len() < updates {
        let arrival = tokio::time::timeout(WATCHING * 2, arrivals.recv()).await;
        seen.push(arrival.expect("every update arrives").expect("watches go on"));
    }
    sent.extend(sending.await.expect("updates"));
    for ((_, at), (_, arrival, _)) in sent.iter().zip(&seen) {
        delays.push(arrival.saturating_duration_since(*at));
    }
    report("update and its delivery", before, updates);
    delays.sort();
    let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
    println!(
        "{updates} updates at {UPDATES_PER_SECOND}/s to {count} watches: p50 {:?}, p99 {:?}, most {:?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// Sends updates at an even pace; tells when each was sent.
async fn update_for_a_while(cluster: Arc<Cluster>, count: usize, updates: usize) -> Vec<(usize, Instant)> {
    let mut pace = tokio::time::interval(Duration::from_secs(1) / UPDATES_PER_SECOND);
    let mut sent = Vec::with_capacity(updates);
    for update in 0..updates {
        pace.tick().await;
        // Neighbours in time are far apart in name.
        let number = (update * 7919) % count;
        let patch = json!({"data": {"update": update.to_string()}});
        let request = Request::patch(format!("{CONFIG_MAPS}/object-{number}"))
            .header("content-type", "application/merge-patch+json")
            .body(Bytes::from(patch.to_string()));
        sent.push((number, Instant::now()));
        send(&cluster, request.expect("a request"), StatusCode::OK).await;
    }
    sent
}

async fn send(cluster: &Cluster, request: Request<Bytes>, wanted: StatusCode) {
    let response = cluster.send_whole(request).await;
    let code = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(code, wanted, "{}", String::from_utf8_lossy(&body));
}

fn post(path: &str, object: &Value) -> Request<Bytes> {
    Request::post(path)
        .header("content-type", "application/json")
        .header("user-agent", "kubectl/v1.36.4")
        .body(Bytes::from(object.to_string()))
        .expect("a request")
}

async fn settle() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

fn config_map(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("object-{number}")},
        "data": {"payload": "x".repeat(900)},
    })
}

/// A pod as a Deployment of some service makes it, placed.
fn pod(number: usize) -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "shop", "app.kubernetes.io/component": "frontend", "tier": "web",
        "pod-template-hash": "6d4cf56db6",
    });
    let environment: Vec<Value> = (0..12)
        .map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("value-of-setting-{number}")}))
        .collect();
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:v1.2.3"), "env": environment,
            "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/shop", "readOnly": true}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("object-{number}"), "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"},
        },
        "spec": {
            "nodeName": format!("node-{}", number % 1000),
            "containers": [container("frontend"), container("sidecar")],
            "volumes": [{"name": "config", "configMap": {"name": "shop"}}],
        },
    })
}

fn report(what: &str, before: Duration, count: usize) {
    let spent = cpu() - before;
    println!("{what}: {:.1} µs of CPU", spent.as_secs_f64() * 1e6 / count as f64);
}

/// CPU time of this process.
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}

fn stored(store: &dyn Store) -> u64 {
    let snapshot = store.snapshot();
    let entries = snapshot.range("/", "/");
    entries.map(|entry| (entry.key.len() + entry.value.len()) as u64).sum()
}
