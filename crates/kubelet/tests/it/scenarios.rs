//! Lives of pods, one function each.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use crate::node::{BUSYBOX, TestNode, is_ready, phase_is};
use crate::streams;

pub type Scenario = fn(Arc<TestNode>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        pub const SCENARIOS: &[(&str, Scenario)] = &[$((stringify!($name), |node| Box::pin($name(node)))),*];
    };
}
pub(crate) use scenarios;

scenarios! {
    a_pod_runs_and_is_deleted_without_a_trace,
    a_job_succeeds_and_leaves_its_message,
    a_crashing_container_is_restarted_and_then_waits,
    init_containers_prepare_what_the_others_use,
    environments_come_from_everywhere,
    volumes_follow_their_objects,
    an_unhealthy_container_is_restarted,
    a_readiness_probe_decides_about_ready,
    an_image_that_is_nowhere_is_waited_for,
    a_missing_config_map_is_waited_for,
    a_missing_config_map_ends_the_wait_when_it_comes,
    hooks_run_after_the_start_and_before_the_end,
    the_network_is_configured,
    security_contexts_are_applied,
    a_deadline_ends_a_pod,
    subpaths_and_memory_are_mounted,
    logs_are_read_and_followed,
    commands_run_over_websockets,
    an_unsupported_volume_is_refused_by_name,
    what_an_old_runtime_cannot_do_is_refused_with_a_reason,
}

/// A pod that does nothing until it is told to end.
pub fn sleeper() -> Value {
    shell("trap 'exit 0' TERM; while true; do sleep 0.1; done")
}

pub fn shell(script: &str) -> Value {
    json!({"terminationGracePeriodSeconds": 5, "containers": [container("main", script)]})
}

pub fn container(name: &str, script: &str) -> Value {
    json!({
        "name": name, "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    })
}

/// Runs a script as a job and returns what it printed.
pub async fn output_of(node: &TestNode, name: &str, spec: Value) -> String {
    let mut spec = spec;
    spec["restartPolicy"] = json!("Never");
    node.create_pod(name, spec);
    node.wait_for(name, "finished", |pod| {
        phase_is("Succeeded")(pod) || phase_is("Failed")(pod)
    })
    .await;
    let log = node.logs(name, "main", "").await;
    let pod = node.pod(name).unwrap_or_default();
    assert_eq!(pod["status"]["phase"], "Succeeded", "{log}\n{:#}", pod["status"]);
    log
}

async fn a_pod_runs_and_is_deleted_without_a_trace(node: Arc<TestNode>) {
    let begun = Instant::now();
    node.create_pod("web", sleeper());
    let pod = node.wait_for("web", "ready", is_ready).await;
    println!("created to ready: {:?}", begun.elapsed());
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["qosClass"], "BestEffort");
    assert!(
        pod["status"]["podIP"]
            .as_str()
            .is_some_and(|ip| ip.starts_with("10.88.1.")),
        "{pod:#}"
    );
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    assert!(node.traces_of(&uid).len() > 1, "{:?}", node.traces_of(&uid));
    node.delete("web", 5);
    node.wait_gone("web").await;
    node.wait_untraced(&uid).await;
    node.wait_for_event("web", "Killing").await;
    let events = node.api.events_about("web");
    let reasons: Vec<&str> = events.iter().filter_map(|event| event.split(' ').next()).collect();
    assert_eq!(reasons, ["Pulled", "Created", "Started", "Killing"], "{events:?}");
}

async fn a_job_succeeds_and_leaves_its_message(node: Arc<TestNode>) {
    let mut spec = shell("echo done > /dev/termination-log");
    spec["restartPolicy"] = json!("Never");
    node.create_pod("job", spec);
    let pod = node.wait_for("job", "finished", phase_is("Succeeded")).await;
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&ended["reason"], &ended["message"]),
        (&json!("Completed"), &json!("done\n"))
    );
}

async fn a_crashing_container_is_restarted_and_then_waits(node: Arc<TestNode>) {
    let mut spec = shell("echo no more >&2; exit 3");
    spec["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    node.create_pod("crash", spec);
    let waits = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    let pod = node.wait_for("crash", "waiting", waits).await;
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"], 1);
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(status["lastState"]["terminated"]["message"], "no more\n");
    assert_eq!(pod["status"]["phase"], "Running");
    node.wait_for_event("crash", "BackOff Back-off restarting failed").await;
    assert_eq!(node.logs("crash", "main", "previous=true").await, "no more\n");
    node.delete("crash", 1);
    node.wait_gone("crash").await;
}

async fn init_containers_prepare_what_the_others_use(node: Arc<TestNode>) {
    let mount = json!([{"name": "shared", "mountPath": "/shared"}]);
    let mut first = container("first", "echo -n one > /shared/a");
    let mut side = container(
        "side",
        "echo -n two > /shared/b; trap 'exit 0' TERM; while true; do sleep 0.1; done",
    );
    let mut main = container("main", "cat /shared/a /shared/b");
    side["restartPolicy"] = json!("Always");
    side["startupProbe"] =
        json!({"exec": {"command": ["cat", "/shared/b"]}, "periodSeconds": 1, "failureThreshold": 9});
    for container in [&mut first, &mut side, &mut main] {
        container["volumeMounts"] = mount.clone();
    }
    let spec = json!({
        "initContainers": [first, side], "containers": [main], "terminationGracePeriodSeconds": 5,
        "volumes": [{"name": "shared", "emptyDir": {}}],
    });
    assert_eq!(output_of(&node, "initialized", spec).await, "onetwo");
    let pod = node.pod("initialized").unwrap_or_default();
    let inits = &pod["status"]["initContainerStatuses"];
    assert_eq!(inits[0]["state"]["terminated"]["exitCode"], 0);
    assert!(
        inits[1]["state"]["terminated"].is_object(),
        "the sidecar has ended: {inits:#}"
    );
}

async fn environments_come_from_everywhere(node: Arc<TestNode>) {
    node.api.create(
        "/api/v1/namespaces/default/configmaps",
        json!({"metadata": {"name": "colors"}, "data": {"color": "red"}}),
    );
    node.api.create(
        "/api/v1/namespaces/default/secrets",
        json!({"metadata": {"name": "words"}, "data": {"word": "c2VjcmV0"}}),
    );
    let mut spec = shell(
        "echo $COLOR $PRE_word $NAME $LIMIT $GREETING $KUBERNETES_SERVICE_HOST; [ $IP = $(hostname -i) ] && echo same",
    );
    spec["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi"}});
    spec["containers"][0]["envFrom"] = json!([{"prefix": "PRE_", "secretRef": {"name": "words"}}]);
    spec["containers"][0]["env"] = json!([
        {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "colors", "key": "color"}}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "GREETING", "value": "hello-$(NAME)"},
    ]);
    assert_eq!(
        output_of(&node, "env", spec).await,
        "red secret env 64 hello-env 10.96.0.1\nsame\n"
    );
}

async fn volumes_follow_their_objects(node: Arc<TestNode>) {
    node.api.create(
        "/api/v1/namespaces/default/configmaps",
        json!({"metadata": {"name": "conf"}, "data": {"key": "old"}}),
    );
    let mut spec = shell(
        "cat /v/conf/key /v/token /v/labels; echo; until grep -q new /v/conf/key; do sleep 0.05; done; cat /v/conf/key",
    );
    spec["containers"][0]["volumeMounts"] = json!([{"name": "all", "mountPath": "/v", "readOnly": true}]);
    spec["volumes"] = json!([{"name": "all", "projected": {"sources": [
        {"configMap": {"name": "conf", "items": [{"key": "key", "path": "conf/key"}]}},
        {"serviceAccountToken": {"path": "token"}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]}}]);
    spec["restartPolicy"] = json!("Never");
    node.create_pod("follows", spec);
    node.wait_for("follows", "ready", is_ready).await;
    // The container has started; it must have read the old text before there is a new one.
    let begun = std::time::Instant::now();
    while !node.logs("follows", "main", "").await.contains("app=") {
        assert!(begun.elapsed().as_secs() < 60, "the container says nothing");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    node.api.patch(
        "/api/v1/namespaces/default/configmaps/conf",
        json!({"data": {"key": "new"}}),
    );
    node.wait_for("follows", "finished", phase_is("Succeeded")).await;
    assert_eq!(
        node.logs("follows", "main", "").await,
        "oldtoken-for-followsapp=\"follows\"\nnew"
    );
}

async fn an_unhealthy_container_is_restarted(node: Arc<TestNode>) {
    let mut spec = shell("touch /ok; sleep 1; rm /ok; trap 'exit 0' TERM; while true; do sleep 0.1; done");
    spec["containers"][0]["livenessProbe"] =
        json!({"exec": {"command": ["cat", "/ok"]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5});
    node.create_pod("sick", spec);
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() >= Some(1);
    node.wait_for("sick", "restarted", restarted).await;
    node.wait_for_event("sick", "Unhealthy Liveness probe failed: cat")
        .await;
    node.wait_for_event(
        "sick",
        "Killing Container main failed liveness probe, will be restarted",
    )
    .await;
    node.delete("sick", 1);
}

async fn a_readiness_probe_decides_about_ready(node: Arc<TestNode>) {
    let mut spec = shell("mkdir /www; echo hi > /www/index.html; httpd -f -p 8080 -h /www");
    spec["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 8080}]);
    spec["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/index.html", "port": "http"}, "periodSeconds": 1, "timeoutSeconds": 1,
               "successThreshold": 1, "failureThreshold": 1});
    node.create_pod("probed", spec);
    node.wait_for("probed", "ready", is_ready).await;
    node.exec("probed", &["rm", "/www/index.html"]).await;
    node.wait_for("probed", "unready", |pod| !is_ready(pod)).await;
    node.wait_for_event(
        "probed",
        "Unhealthy Readiness probe failed: HTTP probe failed with statuscode: 404",
    )
    .await;
    node.delete("probed", 1);
}

async fn an_image_that_is_nowhere_is_waited_for(node: Arc<TestNode>) {
    let mut spec = sleeper();
    spec["containers"][0]["image"] = json!("registry.example/none:1");
    node.create_pod("nowhere", spec);
    let reason = |wanted: &'static str| {
        move |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == wanted
    };
    node.wait_for("nowhere", "failing", reason("ErrImagePull")).await;
    let pod = node.wait_for("nowhere", "waiting", reason("ImagePullBackOff")).await;
    assert_eq!(pod["status"]["phase"], "Pending");
    let mut never = sleeper();
    never["containers"][0]["image"] = json!("registry.example/none:1");
    never["containers"][0]["imagePullPolicy"] = json!("Never");
    node.create_pod("never", never);
    node.wait_for("never", "failing", reason("ErrImageNeverPull")).await;
    for name in ["nowhere", "never"] {
        node.delete(name, 5);
        node.wait_gone(name).await;
    }
}

async fn a_missing_config_map_is_waited_for(node: Arc<TestNode>) {
    let mut spec = sleeper();
    spec["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "late"}}]);
    node.create_pod("patient", spec);
    let failing = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    };
    let pod = node.wait_for("patient", "failing", failing).await;
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["message"], "configmap \"late\" not found");
    node.api.create(
        "/api/v1/namespaces/default/configmaps",
        json!({"metadata": {"name": "late"}, "data": {}}),
    );
    node.wait_for("patient", "ready", is_ready).await;
    node.delete("patient", 1);
}

/// However long the pod has been failing, it is started when what it lacks is there.
async fn a_missing_config_map_ends_the_wait_when_it_comes(node: Arc<TestNode>) {
    let mut spec = sleeper();
    spec["volumes"] = json!([{"name": "conf", "configMap": {"name": "later"}}]);
    node.create_pod("longing", spec);
    let attempts = || {
        let events = node.api.list("/api/v1/events");
        let failed = events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == "longing" && event["reason"] == "FailedMount");
        failed.filter_map(|event| event["count"].as_u64()).sum::<u64>()
    };
    // By then the pauses have grown to 16 seconds.
    node.wait_for("longing", "failing", |_| attempts() >= 6).await;
    let begun = Instant::now();
    node.api.create(
        "/api/v1/namespaces/default/configmaps",
        json!({"metadata": {"name": "later"}, "data": {}}),
    );
    node.wait_for("longing", "ready", is_ready).await;
    assert!(begun.elapsed().as_secs() < 14, "{:?}", begun.elapsed());
    node.delete("longing", 1);
}

async fn hooks_run_after_the_start_and_before_the_end(node: Arc<TestNode>) {
    let directory = node.directory("hooks");
    let mut spec = sleeper();
    spec["containers"][0]["volumeMounts"] = json!([{"name": "out", "mountPath": "/out"}]);
    spec["containers"][0]["lifecycle"] = json!({
        "postStart": {"exec": {"command": ["sh", "-c", "echo start >> /out/log"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo stop >> /out/log"]}},
    });
    spec["volumes"] = json!([{"name": "out", "hostPath": {"path": directory, "type": "Directory"}}]);
    node.create_pod("hooked", spec);
    node.wait_for("hooked", "ready", is_ready).await;
    let log = || std::fs::read_to_string(directory.join("log")).unwrap_or_default();
    assert_eq!(log(), "start\n");
    node.delete("hooked", 5);
    node.wait_gone("hooked").await;
    assert_eq!(log(), "start\nstop\n");

    let mut spec = sleeper();
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["lifecycle"] = json!({"postStart": {"exec": {"command": ["false"]}}});
    node.create_pod("unhooked", spec);
    node.wait_for("unhooked", "ended", |pod| {
        pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
    })
    .await;
    node.wait_for_event("unhooked", "FailedPostStartHook PostStartHook failed")
        .await;
}

async fn the_network_is_configured(node: Arc<TestNode>) {
    let mut spec = shell("hostname; cat /etc/resolv.conf; tail -n 3 /etc/hosts");
    spec["hostAliases"] = json!([{"ip": "192.0.2.9", "hostnames": ["nine"]}]);
    spec["dnsPolicy"] = json!("ClusterFirst");
    spec["dnsConfig"] = json!({"options": [{"name": "edns0"}]});
    spec["hostname"] = json!("called");
    let text = output_of(&node, "named", spec).await;
    assert!(text.starts_with("called\n"), "{text}");
    assert!(
        text.contains("search default.svc.cluster.local svc.cluster.local cluster.local"),
        "{text}"
    );
    assert!(
        text.contains("nameserver 10.96.0.10\n") && text.contains("options ndots:5 edns0"),
        "{text}"
    );
    assert!(
        text.ends_with("\n# Entries added by HostAliases.\n192.0.2.9\tnine\n"),
        "{text}"
    );

    let mut spec = shell("ls /sys/class/net");
    spec["hostNetwork"] = json!(true);
    let links = output_of(&node, "hosted", spec).await;
    assert!(links.contains("kvp"), "the host's links are seen: {links}");
    let pod = node.pod("hosted").unwrap_or_default();
    assert_eq!(pod["status"]["podIP"], pod["status"]["hostIP"]);
}

async fn security_contexts_are_applied(node: Arc<TestNode>) {
    let mut spec =
        shell("id -u; id -G; touch /x 2>&1; grep -E 'CapBnd|NoNewPrivs' /proc/self/status; stat -c %g:%a /v");
    spec["securityContext"] =
        json!({"runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000, "supplementalGroups": [4000]});
    spec["containers"][0]["securityContext"] = json!({
        "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
    });
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let text = output_of(&node, "secured", spec).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "1000", "{text}");
    assert!(
        ["2000", "3000", "4000"].iter().all(|group| lines[1].contains(group)),
        "{text}"
    );
    assert_eq!(lines[2], "touch: /x: Read-only file system", "{text}");
    assert!(
        text.contains("CapBnd:\t0000000000000400") && text.contains("NoNewPrivs:\t1"),
        "{text}"
    );
    assert!(text.ends_with("3000:2777\n"), "{text}");

    let mut spec = sleeper();
    spec["securityContext"] = json!({"runAsNonRoot": true});
    node.create_pod("rooted", spec);
    let failing = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    };
    let pod = node.wait_for("rooted", "refused", failing).await;
    let message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        message.starts_with("container has runAsNonRoot and image will run as root"),
        "{message}"
    );
    node.delete("rooted", 1);
}

async fn a_deadline_ends_a_pod(node: Arc<TestNode>) {
    let mut spec = sleeper();
    spec["activeDeadlineSeconds"] = json!(3);
    node.create_pod("limited", spec);
    let pod = node.wait_for("limited", "ended", phase_is("Failed")).await;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    node.wait_gone_containers("limited").await;
}

async fn subpaths_and_memory_are_mounted(node: Arc<TestNode>) {
    let mut spec = shell(
        "ls /whole; echo hi > /part/file; cat /whole/a/web/file; grep ' /mem ' /proc/mounts | cut -d' ' -f1; ls /one",
    );
    spec["containers"][0]["env"] = json!([{"name": "WHO", "value": "web"}]);
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "v", "mountPath": "/whole"},
        {"name": "v", "mountPath": "/part", "subPathExpr": "a/$(WHO)"},
        {"name": "m", "mountPath": "/mem"},
        {"name": "conf", "mountPath": "/one", "subPath": "only"},
    ]);
    node.api.create(
        "/api/v1/namespaces/default/configmaps",
        json!({"metadata": {"name": "single"}, "data": {"only": "x"}}),
    );
    spec["volumes"] = json!([
        {"name": "v", "emptyDir": {}},
        {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "conf", "configMap": {"name": "single"}},
    ]);
    assert_eq!(output_of(&node, "parts", spec).await, "a\nhi\ntmpfs\n/one\n");
    node.delete("parts", 1);
    node.wait_gone("parts").await;
}

async fn logs_are_read_and_followed(node: Arc<TestNode>) {
    node.create_pod("talker", shell("i=0; while [ $i -lt 20 ]; do echo line $i; i=$((i+1)); sleep 0.05; done; trap 'exit 0' TERM; while true; do sleep 0.1; done"));
    node.wait_for("talker", "ready", is_ready).await;
    let log = node.logs_until("talker", "main", "follow=true", "line 19\n").await;
    assert_eq!(log.lines().count(), 20);
    assert_eq!(node.logs("talker", "main", "tailLines=2").await, "line 18\nline 19\n");
    let (code, message) = node.request("/containerLogs/default/talker/none").await;
    assert_eq!(
        (code, message.as_str()),
        (404, "container \"none\" not found in pod \"talker\"")
    );
    node.delete("talker", 1);
}

async fn commands_run_over_websockets(node: Arc<TestNode>) {
    node.create_pod("shell", sleeper());
    node.wait_for("shell", "ready", is_ready).await;
    let path = "/exec/default/shell/main?output=1&error=1&command=sh&command=-c&command=";
    let ended = streams::exec(&node, &format!("{path}echo%20out;echo%20err%20%3E%262;exit%207"), None).await;
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(ended.status["reason"], "NonZeroExitCode");
    assert_eq!(
        ended.status["details"]["causes"],
        json!([{"reason": "ExitCode", "message": "7"}])
    );
    let ended = streams::exec(
        &node,
        "/exec/default/shell/main?output=1&input=1&command=cat",
        Some("from stdin"),
    )
    .await;
    assert_eq!(ended.stdout, "from stdin");
    assert_eq!(ended.status["status"], "Success");
    node.delete("shell", 1);
}

async fn an_unsupported_volume_is_refused_by_name(node: Arc<TestNode>) {
    let mut spec = sleeper();
    spec["volumes"] = json!([{"name": "data", "nfs": {"server": "x", "path": "/"}}]);
    node.create_pod("nfs", spec);
    node.wait_for_event(
        "nfs",
        "FailedMount MountVolume.SetUp failed for volume \\data\\ : volumes of type nfs are not supported by this node",
    )
    .await;
    node.delete("nfs", 1);
    node.wait_gone("nfs").await;
}

/// This containerd is older than the messages by which a runtime says that it can do these.
async fn what_an_old_runtime_cannot_do_is_refused_with_a_reason(node: Arc<TestNode>) {
    let mut strict = sleeper();
    strict["securityContext"] = json!({"supplementalGroups": [4], "supplementalGroupsPolicy": "Strict"});
    node.create_pod("strict", strict);
    let pod = node.wait_for("strict", "rejected", phase_is("Failed")).await;
    assert_eq!(pod["status"]["reason"], "SupplementalGroupsPolicyNotSupported");
    assert_eq!(
        pod["status"]["message"],
        "Pod was rejected: SupplementalGroupsPolicy=Strict is not supported in this node"
    );

    let with_mode = |mode: &str| {
        let mut spec = sleeper();
        spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
        spec["containers"][0]["volumeMounts"] =
            json!([{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": mode}]);
        spec
    };
    node.create_pod("rro", with_mode("Enabled"));
    let waits = |pod: &Value| !pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].is_null();
    let pod = node.wait_for("rro", "waiting", waits).await;
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CreateContainerConfigError");
    assert_eq!(
        waiting["message"],
        "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but it is not \
         supported by the runtime"
    );
    node.create_pod("maybe", with_mode("IfPossible"));
    let pod = node.wait_for("maybe", "ready", is_ready).await;
    let mount = &pod["status"]["containerStatuses"][0]["volumeMounts"][0];
    assert_eq!(mount["recursiveReadOnly"], "Disabled");
    let mut own_users = sleeper();
    own_users["hostUsers"] = json!(false);
    node.create_pod("own-users", own_users);
    node.wait_for_event(
        "own-users",
        "FailedCreatePodSandBox Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support \
         user namespaces",
    )
    .await;
    node.delete("own-users", 0);
    node.delete("rro", 0);
    node.delete("maybe", 0);
}
