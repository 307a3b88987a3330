//! Clusters in YAML in, decisions as text out.

mod permit;
mod preemption;
mod random;
mod volumes;

use bytes::Bytes;
use client::Object;
use expect_test::{Expect, expect};

use super::*;

fn documents(yaml: &str) -> Vec<Bytes> {
    let documents = yaml.split("\n---").filter(|text| !text.trim().is_empty());
    documents
        .map(|text| {
            let value: api::Value = serde_saphyr::from_str(text).unwrap();
            Bytes::from(value.to_string())
        })
        .collect()
}

fn core(nodes: &str) -> Core {
    let mut core = Core::new(vec![Profile::default()], 1);
    for node in documents(nodes) {
        core.node_changed(None, Some(&Node::decode(&node).unwrap()), Instant::now());
    }
    core
}

fn add_pods(core: &mut Core, pods: &str) {
    for pod in documents(pods) {
        core.pod_changed(None, Some(&Arc::new(Pod::decode(&pod).unwrap())), Instant::now());
    }
}

fn decisions(core: &mut Core) -> String {
    let mut text = String::new();
    while let Some(decision) = core.next(Instant::now()) {
        let mut outcome = match &decision.result {
            Ok(node) => format!("→ {node}"),
            Err(failure) => failure.to_string(),
        };
        if let Some(preemption) = &decision.preemption {
            let victims: Vec<&str> = preemption.victims.iter().map(|victim| victim.uid()).collect();
            outcome = format!("instead of [{}] on {}", victims.join(" "), preemption.node);
        }
        if decision.nomination == Nomination::Clear {
            outcome.push_str(" (nomination taken back)");
        }
        text.push_str(&format!("{}: {outcome}\n", decision.queued.pod.metadata.name));
    }
    text
}

fn check(nodes: &str, pods: &str, expected: Expect) {
    let mut core = core(nodes);
    add_pods(&mut core, pods);
    expected.assert_eq(&decisions(&mut core));
}

fn node(name: &str, rest: &str) -> String {
    format!(
        "
---
metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}
status: {{allocatable: {{cpu: '2', memory: 4Gi, pods: '110'}}}}
{rest}"
    )
}

fn pod(name: &str, spec: &str) -> String {
    format!(
        "
---
metadata: {{name: {name}, namespace: default, uid: {name}}}
spec: {spec}"
    )
}

const ONE_CPU: &str = "{containers: [{name: c, resources: {requests: {cpu: '1'}}}]}";

#[test]
fn pods_spread_to_the_emptiest_nodes_until_all_are_full() {
    let pods: String = (0..5).map(|n| pod(&format!("p{n}"), ONE_CPU)).collect();
    let mut core = core(&(node("one", "") + &node("two", "")));
    add_pods(&mut core, &pods);
    let text = decisions(&mut core);
    assert_eq!(text.matches("→ one").count(), 2, "{text}");
    assert_eq!(text.matches("→ two").count(), 2, "{text}");
    let failures: Vec<&str> = text.lines().filter(|line| !line.contains('→')).collect();
    assert_eq!(
        failures,
        [
            "p4: 0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are \
          available: 2 No preemption victims found for incoming pod."
        ]
    );
}

#[test]
fn without_nodes_that_is_the_message() {
    check(
        "",
        &pod("p", ONE_CPU),
        expect![[r#"
        p: no nodes available to schedule pods
    "#]],
    );
}

#[test]
fn every_reason_is_counted_and_the_first_plugin_speaks_for_a_node() {
    let nodes = node("cordoned", "spec: {unschedulable: true}")
        + &node(
            "tainted",
            "spec: {taints: [{key: dedicated, value: db, effect: NoSchedule}]}",
        )
        + &node("full", "").replace("cpu: '2'", "cpu: 500m")
        + &node("small", "")
            .replace("memory: 4Gi", "memory: 1Ki")
            .replace("cpu: '2'", "cpu: 500m")
        + &node("crowded", "").replace("pods: '110'", "pods: '0'");
    check(
        &nodes,
        &pod(
            "p",
            "{containers: [{name: c, resources: {requests: {cpu: '1', memory: 1Mi}}}]}",
        ),
        expect![[r#"
            p: 0/5 nodes are available: 1 Insufficient memory, 1 Too many pods, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu. no new claims to deallocate, preemption: 0/5 nodes are available: 1 No preemption victims found for incoming pod, 4 Preemption is not helpful for scheduling.
        "#]],
    );
}

#[test]
fn tolerations_open_tainted_and_cordoned_nodes() {
    let nodes = node("cordoned", "spec: {unschedulable: true}")
        + &node(
            "tainted",
            "spec: {taints: [{key: dedicated, value: db, effect: NoSchedule}]}",
        );
    check(
        &nodes,
        &(pod("a", "{tolerations: [{key: dedicated, operator: Equal, value: db}]}")
            + &pod(
                "b",
                "{tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists}]}",
            )
            + &pod("c", "{tolerations: [{key: dedicated, operator: Equal, value: web}]}")),
        expect![[r#"
            a: → tainted
            b: → cordoned
            c: 0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
        "#]],
    );
}

#[test]
fn soft_taints_are_avoided_while_there_is_room_elsewhere() {
    let nodes = node("soft", "spec: {taints: [{key: spare, effect: PreferNoSchedule}]}") + &node("plain", "");
    let pods: String = (0..4).map(|n| pod(&format!("p{n}"), ONE_CPU)).collect();
    check(
        &nodes,
        &pods,
        expect![[r#"
        p0: → plain
        p1: → plain
        p2: → soft
        p3: → soft
    "#]],
    );
}

#[test]
fn selectors_and_affinity_choose_nodes_by_labels_and_names() {
    let nodes = node("one", "").replace("hostname: one", "hostname: one, disk: ssd, cores: '8'") + &node("two", "");
    let affinity = |terms: &str| {
        format!(
            "{{affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{terms}]}}}}}}}}"
        )
    };
    check(
        &nodes,
        &(pod("selector", "{nodeSelector: {disk: ssd}}")
            + &pod("nowhere", "{nodeSelector: {disk: tape}}")
            + &pod(
                "gt",
                &affinity("{matchExpressions: [{key: cores, operator: Gt, values: ['4']}]}"),
            )
            + &pod(
                "absent",
                &affinity("{matchExpressions: [{key: disk, operator: DoesNotExist}]}"),
            )
            + &pod(
                "named",
                &affinity("{matchFields: [{key: metadata.name, operator: In, values: [two]}]}"),
            )
            + &pod(
                "gone",
                &affinity("{matchFields: [{key: metadata.name, operator: In, values: [three]}]}"),
            )),
        expect![[r#"
            selector: → one
            nowhere: 0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
            gt: → one
            absent: → two
            named: → two
            gone: 0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
        "#]],
    );
}

#[test]
fn preferred_affinity_outweighs_emptiness() {
    let nodes = node("one", "") + &node("two", "").replace("hostname: two", "hostname: two, disk: ssd");
    let prefers = "{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, preference: {matchExpressions: [{key: disk, operator: Exists}]}}]}}, containers: [{name: c, resources: {requests: {cpu: 500m}}}]}";
    check(
        &nodes,
        &(pod("a", prefers) + &pod("b", prefers) + &pod("c", prefers)),
        expect![[r#"
        a: → two
        b: → two
        c: → two
    "#]],
    );
}

#[test]
fn host_ports_are_taken_once_per_node() {
    let wants =
        |address: &str| format!("{{containers: [{{name: c, ports: [{{containerPort: 80, hostPort: 80{address}}}]}}]}}");
    check(
        &node("one", ""),
        &(pod("a", &wants(", hostIP: 10.0.0.1")) + &pod("b", &wants(", hostIP: 10.0.0.2")) + &pod("c", &wants(""))),
        expect![[r#"
            a: → one
            b: → one
            c: 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        "#]],
    );
}

#[test]
fn gated_pods_and_pods_of_others_are_left_alone() {
    check(
        &node("one", ""),
        &(pod("gated", "{schedulingGates: [{name: later}]}")
            + &pod("foreign", "{schedulerName: other}")
            + &pod("ours", "{schedulerName: default-scheduler}")),
        expect![[r#"
            ours: → one
        "#]],
    );
}

#[test]
fn a_pod_that_leaves_makes_room_for_one_that_waits() {
    let mut core = core(&node("one", ""));
    let two_cpu = "{containers: [{name: c, resources: {requests: {cpu: '2'}}}]}";
    add_pods(&mut core, &(pod("first", two_cpu) + &pod("second", two_cpu)));
    assert!(decisions(&mut core).starts_with("first: → one\nsecond: 0/1"));

    // A change elsewhere wakes nobody.
    core.node_changed(
        None,
        Some(&Node::decode(&documents(&node("tiny", "").replace("'2'", "1m"))[0]).unwrap()),
        Instant::now(),
    );
    assert_eq!(decisions(&mut core), "");

    let first = Arc::new(Pod::decode(&documents(&pod("first", two_cpu))[0]).unwrap());
    core.pod_changed(Some(&first), None, Instant::now());
    assert_eq!(decisions(&mut core), "second: → one\n");
}

#[test]
fn a_failed_binding_gives_the_room_back() {
    let mut core = core(&node("one", ""));
    add_pods(&mut core, &pod("p", ONE_CPU));
    let now = Instant::now();
    let decision = core.next(now).unwrap();
    let id = core.nodes.id("one").unwrap();
    assert_eq!(core.nodes.milli_cpu_requested[id], 1000);
    core.binding_failed(decision.queued, now);
    assert_eq!(core.nodes.milli_cpu_requested[id], 0);
    assert!(core.next(now).is_none(), "it pauses first");
    assert!(core.next(now + std::time::Duration::from_secs(1)).is_some());
}

#[test]
fn a_pod_on_a_node_not_seen_yet_counts_once_the_node_appears() {
    let mut core = core("");
    add_pods(
        &mut core,
        &pod(
            "placed",
            "{nodeName: one, containers: [{name: c, resources: {requests: {cpu: '2'}}}]}",
        ),
    );
    core.node_changed(
        None,
        Some(&Node::decode(&documents(&node("one", ""))[0]).unwrap()),
        Instant::now(),
    );
    add_pods(&mut core, &pod("p", ONE_CPU));
    assert!(decisions(&mut core).starts_with("p: 0/1 nodes are available: 1 Insufficient cpu"));
}

fn zoned(name: &str, zone: &str) -> String {
    let hostname = format!("hostname: {name}");
    node(name, "").replace(&hostname, &format!("{hostname}, zone: {zone}"))
}

fn labelled(name: &str, app: &str, spec: &str) -> String {
    pod(name, spec).replace("uid:", &format!("labels: {{app: {app}}}, uid:"))
}

fn affinity(kind: &str, app: &str, topology: &str) -> String {
    format!(
        "{{affinity: {{{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{{labelSelector: {{matchLabels: {{app: {app}}}}}, topologyKey: {topology}}}]}}}}}}"
    )
}

#[test]
fn affinity_follows_other_pods_and_the_first_of_a_group_goes_anywhere() {
    let nodes = zoned("a1", "a") + &zoned("b1", "b");
    check(
        &nodes,
        &(pod("pinned", "{nodeSelector: {zone: b}}").replace("uid:", "labels: {app: db}, uid:")
            + &labelled("follower", "web", &affinity("podAffinity", "db", "zone"))
            + &labelled("lonely", "web", &affinity("podAffinity", "cache", "zone"))),
        expect![[r#"
            pinned: → b1
            follower: → b1
            lonely: 0/2 nodes are available: 2 node(s) didn't match pod affinity rules. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
        "#]],
    );
    let mut core = core(&nodes);
    add_pods(
        &mut core,
        &labelled("first", "web", &affinity("podAffinity", "web", "zone")),
    );
    assert!(decisions(&mut core).starts_with("first: → "));
}

#[test]
fn anti_affinity_holds_in_both_directions() {
    let away = |name: &str| {
        labelled(
            name,
            "web",
            &affinity("podAntiAffinity", "web", "kubernetes.io/hostname"),
        )
    };
    let mut core = core(&(zoned("a1", "a") + &zoned("b1", "b")));
    add_pods(
        &mut core,
        &(away("one") + &away("two") + &away("three") + &labelled("plain", "web", "{}")),
    );
    let text = decisions(&mut core);
    assert_eq!(text.matches('→').count(), 2, "{text}");
    assert!(
        text.contains("three: 0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."),
        "{text}"
    );
    assert!(
        text.contains("plain: 0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."),
        "{text}"
    );
    // Where one leaves, the next may go.
    let one = Arc::new(Pod::decode(&documents(&away("one"))[0]).unwrap());
    core.pod_changed(Some(&one), None, Instant::now());
    assert!(decisions(&mut core).contains("three: → "));
}

#[test]
fn a_pod_that_waits_for_company_comes_when_it_is_there() {
    let mut core = core(&zoned("a1", "a"));
    add_pods(
        &mut core,
        &labelled("follower", "web", &affinity("podAffinity", "db", "zone")),
    );
    assert!(decisions(&mut core).starts_with("follower: 0/1"));
    add_pods(&mut core, &labelled("leader", "db", "{}"));
    assert_eq!(decisions(&mut core), "leader: → a1\nfollower: → a1\n");
}

#[test]
fn spreading_keeps_domains_even() {
    let nodes = zoned("a1", "a") + &zoned("a2", "a") + &zoned("b1", "b");
    let spread = "{topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]}";
    let mut core = core(&nodes);
    let pods: String = (0..6).map(|n| labelled(&format!("p{n}"), "web", spread)).collect();
    add_pods(&mut core, &pods);
    let text = decisions(&mut core);
    assert_eq!(text.matches("→ a").count(), 3, "{text}");
    assert_eq!(text.matches("→ b").count(), 3, "{text}");

    check(
        &(zoned("a1", "a") + &node("unzoned", "")),
        &(labelled("one", "web", &spread.replace("maxSkew: 1", "maxSkew: 1, minDomains: 2"))
            + &labelled("two", "web", &spread.replace("maxSkew: 1", "maxSkew: 1, minDomains: 2"))),
        expect![[r#"
            one: → a1
            two: 0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) didn't match pod topology spread constraints (missing required label). no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.
        "#]],
    );
}

#[test]
fn soft_spreading_and_preferences_only_tip_the_scales() {
    let nodes = zoned("a1", "a") + &zoned("b1", "b");
    let soft = "{topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}]}";
    let mut core = core(&nodes);
    add_pods(
        &mut core,
        &(0..4)
            .map(|n| labelled(&format!("p{n}"), "web", soft))
            .collect::<String>(),
    );
    let text = decisions(&mut core);
    assert_eq!(
        (text.matches("→ a1").count(), text.matches("→ b1").count()),
        (2, 2),
        "{text}"
    );

    let near = "{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, podAffinityTerm: {labelSelector: {matchLabels: {app: db}}, topologyKey: zone}}]}}}";
    check(
        &nodes,
        &(pod("db", "{nodeSelector: {zone: b}}").replace("uid:", "labels: {app: db}, uid:")
            + &labelled("one", "web", near)
            + &labelled("two", "web", near)),
        expect![[r#"
            db: → b1
            one: → b1
            two: → b1
        "#]],
    );
}

#[test]
fn what_cannot_be_provided_is_said() {
    check(
        &node("one", ""),
        &pod("p", "{resourceClaims: [{name: gpu, resourceClaimName: gpu}]}"),
        expect![[r#"
            p: 0/1 nodes are available: resource claims cannot be scheduled yet. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.
        "#]],
    );
}
