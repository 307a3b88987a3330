use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::POD;

fn check_defaults(mut pod: Value, expect: Expect) {
    POD.rules.default(&mut pod);
    let once = pod.clone();
    POD.rules.default(&mut pod);
    assert_eq!(once, pod, "defaulting again changes nothing");
    expect.assert_eq(&serde_json::to_string_pretty(&pod["spec"]).unwrap());
}

/// One line of `kubectl get pods -o wide`, at 100 seconds past the epoch.
fn check_line(pod: Value, expect: Expect) {
    let cells = POD.rules.cells(&pod, 100);
    assert_eq!(cells.len(), POD.rules.columns().len());
    let texts: Vec<&str> = cells.iter().map(|cell| cell.as_str().unwrap()).collect();
    expect.assert_eq(&texts.join(" | "));
}

#[test]
fn a_pod_with_only_a_container_gets_the_rest() {
    check_defaults(
        json!({"spec": {"containers": [{"name": "web", "image": "nginx"}]}}),
        expect![[r#"
            {
              "containers": [
                {
                  "image": "nginx",
                  "imagePullPolicy": "Always",
                  "name": "web",
                  "resources": {},
                  "terminationMessagePath": "/dev/termination-log",
                  "terminationMessagePolicy": "File"
                }
              ],
              "dnsPolicy": "ClusterFirst",
              "enableServiceLinks": true,
              "restartPolicy": "Always",
              "schedulerName": "default-scheduler",
              "securityContext": {},
              "terminationGracePeriodSeconds": 30
            }"#]],
    );
}

#[test]
fn probes_ports_volumes_and_references_have_defaults_of_their_own() {
    check_defaults(
        json!({"spec": {
            "hostNetwork": true,
            "serviceAccountName": "robot",
            "restartPolicy": "Never",
            "containers": [{
                "name": "web", "image": "nginx:1.29",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
                "readinessProbe": {"httpGet": {"port": 80}},
                "livenessProbe": {"grpc": {"port": 81}, "periodSeconds": 5},
                "lifecycle": {"preStop": {"httpGet": {"port": "web", "path": "/stop"}}},
            }],
            "volumes": [
                {"name": "scratch"},
                {"name": "secret", "secret": {"secretName": "s"}},
                {"name": "host", "hostPath": {"path": "/var"}},
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            ],
        }}),
        expect![[r#"
            {
              "containers": [
                {
                  "env": [
                    {
                      "name": "NODE",
                      "valueFrom": {
                        "fieldRef": {
                          "apiVersion": "v1",
                          "fieldPath": "spec.nodeName"
                        }
                      }
                    }
                  ],
                  "image": "nginx:1.29",
                  "imagePullPolicy": "IfNotPresent",
                  "lifecycle": {
                    "preStop": {
                      "httpGet": {
                        "path": "/stop",
                        "port": "web",
                        "scheme": "HTTP"
                      }
                    }
                  },
                  "livenessProbe": {
                    "failureThreshold": 3,
                    "grpc": {
                      "port": 81,
                      "service": ""
                    },
                    "periodSeconds": 5,
                    "successThreshold": 1,
                    "timeoutSeconds": 1
                  },
                  "name": "web",
                  "ports": [
                    {
                      "containerPort": 80,
                      "hostPort": 80,
                      "protocol": "TCP"
                    }
                  ],
                  "readinessProbe": {
                    "failureThreshold": 3,
                    "httpGet": {
                      "path": "/",
                      "port": 80,
                      "scheme": "HTTP"
                    },
                    "periodSeconds": 10,
                    "successThreshold": 1,
                    "timeoutSeconds": 1
                  },
                  "resources": {
                    "limits": {
                      "cpu": "1",
                      "memory": "1Gi"
                    },
                    "requests": {
                      "cpu": "500m",
                      "memory": "1Gi"
                    }
                  },
                  "terminationMessagePath": "/dev/termination-log",
                  "terminationMessagePolicy": "File"
                }
              ],
              "dnsPolicy": "ClusterFirst",
              "enableServiceLinks": true,
              "hostNetwork": true,
              "restartPolicy": "Never",
              "schedulerName": "default-scheduler",
              "securityContext": {},
              "serviceAccount": "robot",
              "serviceAccountName": "robot",
              "terminationGracePeriodSeconds": 30,
              "volumes": [
                {
                  "emptyDir": {},
                  "name": "scratch"
                },
                {
                  "name": "secret",
                  "secret": {
                    "defaultMode": 420,
                    "secretName": "s"
                  }
                },
                {
                  "hostPath": {
                    "path": "/var",
                    "type": ""
                  },
                  "name": "host"
                },
                {
                  "name": "token",
                  "projected": {
                    "defaultMode": 420,
                    "sources": [
                      {
                        "serviceAccountToken": {
                          "expirationSeconds": 3600,
                          "path": "token"
                        }
                      }
                    ]
                  }
                }
              ]
            }"#]],
    );
}

#[test]
fn the_status_says_what_holds_the_pod_up() {
    let pod = |init: Value, main: Value| {
        json!({
            "metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:10Z"},
            "spec": {"nodeName": "one", "containers": [{"name": "main"}], "initContainers": [{"name": "init"}]},
            "status": {"phase": "Pending", "podIPs": [{"ip": "10.0.0.7"}],
                       "initContainerStatuses": init, "containerStatuses": main},
        })
    };
    let done = json!([{"name": "init", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]);
    let waits = json!([{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]);

    check_line(
        pod(json!([{"name": "init", "state": {"running": {}}}]), waits.clone()),
        expect!["web | 0/1 | Init:0/1 | 0 | 90s | 10.0.0.7 | one | <none> | <none>"],
    );
    check_line(
        pod(
            json!([{"name": "init", "state": {"terminated": {"exitCode": 3}}}]),
            waits.clone(),
        ),
        expect!["web | 0/1 | Init:ExitCode:3 | 0 | 90s | 10.0.0.7 | one | <none> | <none>"],
    );
    check_line(
        pod(done.clone(), waits),
        expect!["web | 0/1 | PodInitializing | 0 | 90s | 10.0.0.7 | one | <none> | <none>"],
    );
    let crashed = json!([{
        "name": "main", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": "1970-01-01T00:01:00Z"}},
    }]);
    check_line(
        pod(done.clone(), crashed),
        expect!["web | 0/1 | CrashLoopBackOff | 2 (40s ago) | 90s | 10.0.0.7 | one | <none> | <none>"],
    );
    let mut running = pod(done, json!([{"name": "main", "ready": true, "state": {"running": {}}}]));
    running["status"]["phase"] = "Running".into();
    check_line(
        running.clone(),
        expect!["web | 1/1 | Running | 0 | 90s | 10.0.0.7 | one | <none> | <none>"],
    );
    running["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
    check_line(
        running,
        expect!["web | 1/1 | Terminating | 0 | 90s | 10.0.0.7 | one | <none> | <none>"],
    );
}

#[test]
fn only_a_pod_that_a_kubelet_holds_is_given_time_to_stop() {
    let running = json!({"spec": {"nodeName": "one", "terminationGracePeriodSeconds": 30}});
    let pending = json!({"spec": {"terminationGracePeriodSeconds": 30}});
    assert_eq!(POD.rules.deletion_grace_seconds(&running, None), Some(30));
    assert_eq!(POD.rules.deletion_grace_seconds(&running, Some(5)), Some(5));
    assert_eq!(POD.rules.deletion_grace_seconds(&running, Some(0)), None);
    assert_eq!(POD.rules.deletion_grace_seconds(&running, Some(-7)), Some(1));
    assert_eq!(POD.rules.deletion_grace_seconds(&pending, None), None);
}

#[test]
fn the_class_of_service_follows_from_requests_and_limits() {
    let class = |resources: Value| super::quality_of_service(&json!({"containers": [{"resources": resources}]}));
    assert_eq!(class(json!({})), "BestEffort");
    assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
    let both = json!({"cpu": "1", "memory": "1Gi"});
    assert_eq!(class(json!({"requests": both, "limits": both})), "Guaranteed");
    assert_eq!(
        class(json!({"requests": both, "limits": {"cpu": "2", "memory": "1Gi"}})),
        "Burstable"
    );
}

#[test]
fn a_negative_grace_period_is_a_second_whenever_it_is_written() {
    let mut pod = json!({"spec": {"terminationGracePeriodSeconds": -1, "containers": [{"name": "main"}]}});
    POD.rules.default(&mut pod);
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 1);
}

#[test]
fn a_resize_keeps_what_is_not_an_amount() {
    let old = json!({"spec": {
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
        "initContainers": [{"name": "init", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}],
        "containers": [{"name": "a"}, {"name": "b"}],
    }});
    let check = |change: fn(&mut Value), expect: Expect| {
        let mut new = old.clone();
        change(&mut new["spec"]);
        let problems = POD.rules.validate_subresource_update("resize", &new, &old);
        expect.assert_eq(&problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    };
    let more = |spec: &mut Value| {
        spec["resources"] = json!({"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "3"}})
    };
    check(more, expect![""]);
    check(
        |spec| spec["resources"] = json!({"requests": {"cpu": "2"}}),
        expect![[r#"
            spec.resources.requests: Forbidden: pod-level resource requests cannot be removed
            spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"#]],
    );
    check(
        |spec| spec["resources"]["limits"]["hugepages-2Mi"] = json!("2Mi"),
        expect!["spec: Forbidden: only cpu and memory resources are mutable"],
    );
    check(
        |spec| spec["containers"] = json!([{"name": "b"}, {"name": "a"}]),
        expect![[r#"
            spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize
            spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize"#]],
    );
    check(
        |spec| spec["initContainers"][0]["resources"] = json!({"requests": {"cpu": "1"}}),
        expect![
            "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
        ],
    );
}

#[test]
fn a_resize_changes_cpu_and_memory_within_the_class() {
    let pod = |resources: Value, image: &str| {
        let mut pod = json!({"spec": {"containers": [{"name": "main", "image": image, "resources": resources}]}});
        POD.rules.default(&mut pod);
        pod
    };
    let check = |new: Value, expect: Expect| {
        let old = pod(json!({"requests": {"cpu": "1"}}), "a");
        let problems = POD.rules.validate_subresource_update("resize", &new, &old);
        expect.assert_eq(&problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    };
    check(pod(json!({"requests": {"cpu": "2"}}), "a"), expect![""]);
    check(
        pod(json!({"requests": {"cpu": "2"}}), "b"),
        expect!["spec: Forbidden: only cpu and memory resources are mutable"],
    );
    check(
        pod(json!({"limits": {"cpu": "2", "memory": "1Gi"}}), "a"),
        expect![[r#"spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing"#]],
    );
    check(
        pod(json!({}), "a"),
        expect![[r#"
            spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing
            spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"#]],
    );
}
