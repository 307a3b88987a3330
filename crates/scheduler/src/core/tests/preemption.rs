//! Who has to leave for whom.

use serde_json::json;

use super::*;
use crate::budgets::Budget;

/// A pod that runs on a node already.
fn running(name: &str, node: &str, cpu: &str, priority: i32) -> String {
    pod(
        name,
        &format!(
            "{{nodeName: {node}, priority: {priority}, containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}"
        ),
    )
}

fn started(pod: &str, time: &str) -> String {
    format!("{pod}\nstatus: {{startTime: '2026-01-01T{time}Z'}}")
}

fn wanting(name: &str, cpu: &str, priority: i32) -> String {
    pod(
        name,
        &format!("{{priority: {priority}, containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}"),
    )
}

fn app(pod: &str, app: &str) -> String {
    pod.replace("uid:", &format!("labels: {{app: {app}}}, uid:"))
}

fn protect(core: &mut Core, app: &str, allowed: i64) {
    let budget: Budget = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": app},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }))
    .unwrap();
    core.budget_changed(None, Some(&Arc::new(budget)));
}

fn remove(core: &mut Core, yaml: &str) {
    let pod = Arc::new(Pod::decode(&documents(yaml)[0]).unwrap());
    core.pod_changed(Some(&pod), None, Instant::now());
}

#[test]
fn as_few_as_needed_leave_and_the_least_important_first() {
    check(
        &node("one", ""),
        &(running("low", "one", "500m", 1)
            + &running("lower", "one", "500m", 0)
            + &running("middle", "one", "500m", 5)
            + &running("high", "one", "500m", 100)
            + &wanting("urgent", "1", 10)
            + &wanting("meek", "1", 0)),
        expect![[r#"
            urgent: instead of [low lower] on one
            meek: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        "#]],
    );
}

#[test]
fn the_victims_reason_is_told_where_removing_them_is_not_enough() {
    check(
        &node("one", ""),
        &(running("low", "one", "500m", 0) + &running("high", "one", "1500m", 100) + &wanting("urgent", "2", 10)),
        expect![[r#"
            urgent: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Insufficient cpu.
        "#]],
    );
}

#[test]
fn a_pod_may_decline_to_preempt() {
    let polite = wanting("polite", "2", 10).replace("priority:", "preemptionPolicy: Never, priority:");
    check(
        &node("one", ""),
        &(running("low", "one", "1", 0) + &polite),
        expect![[r#"
            polite: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.
        "#]],
    );
}

#[test]
fn budgets_are_kept_where_another_node_will_do() {
    let mut core = core(&(node("one", "") + &node("two", "")));
    add_pods(
        &mut core,
        &(app(&running("protected", "one", "2", 0), "db") + &running("free", "two", "2", 5)),
    );
    protect(&mut core, "db", 0);
    add_pods(&mut core, &wanting("urgent", "2", 10));
    assert_eq!(decisions(&mut core), "urgent: instead of [free] on two\n");
    // Where nothing else is left, a budget does not help.
    add_pods(&mut core, &wanting("second", "2", 10));
    assert_eq!(decisions(&mut core), "second: instead of [protected] on one\n");
}

#[test]
fn on_a_node_the_protected_are_let_back_first() {
    let mut core = core(&node("one", ""));
    add_pods(
        &mut core,
        &(app(&running("protected", "one", "1", 0), "db") + &running("free", "one", "1", 5)),
    );
    protect(&mut core, "db", 0);
    add_pods(&mut core, &wanting("urgent", "1", 10));
    assert_eq!(decisions(&mut core), "urgent: instead of [free] on one\n");
}

#[test]
fn of_several_nodes_the_one_that_loses_least_is_taken() {
    let nodes = node("one", "") + &node("two", "");
    let best = |there: &str| {
        let mut core = core(&nodes);
        add_pods(&mut core, &(there.to_owned() + &wanting("urgent", "2", 10)));
        decisions(&mut core)
    };
    let highest = running("a", "one", "2", 5) + &running("b", "two", "2", 4);
    assert_eq!(best(&highest), "urgent: instead of [b] on two\n");
    let sum = running("a", "one", "1", 5)
        + &running("a2", "one", "1", 4)
        + &running("b", "two", "1", 5)
        + &running("b2", "two", "1", 3);
    assert_eq!(best(&sum), "urgent: instead of [b b2] on two\n");
    // A lower sum does not make up for more pods: priorities count from the lowest possible.
    let fewest = running("a", "one", "1", 5) + &running("a2", "one", "1", -9) + &running("b", "two", "2", 5);
    assert_eq!(best(&fewest), "urgent: instead of [b] on two\n");
    let latest = started(&running("a", "one", "2", 5), "10:00:00") + &started(&running("b", "two", "2", 5), "11:00:00");
    assert_eq!(best(&latest), "urgent: instead of [b] on two\n");
}

#[test]
fn the_room_is_kept_for_the_pod_that_made_it() {
    let mut core = core(&node("one", ""));
    let low = running("low", "one", "2", 0);
    add_pods(&mut core, &(low.clone() + &wanting("urgent", "2", 10)));
    assert_eq!(decisions(&mut core), "urgent: instead of [low] on one\n");
    remove(&mut core, &low);
    // One of lower priority comes first, and finds the room taken.
    add_pods(&mut core, &wanting("quick", "1", 5));
    assert_eq!(
        decisions(&mut core),
        "quick: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
         available: 1 No preemption victims found for incoming pod.\nurgent: → one\n"
    );
    assert_eq!(core.nodes.nominations.all(), BTreeMap::new());
}

#[test]
fn nobody_else_is_chased_away_while_the_victims_are_leaving() {
    let mut core = core(&(node("one", "") + &node("two", "")));
    add_pods(
        &mut core,
        &(running("low", "one", "2", 0) + &running("other", "two", "2", 1) + &wanting("urgent", "2", 10)),
    );
    assert_eq!(decisions(&mut core), "urgent: instead of [low] on one\n");
    core.queue.unblock(|_| true, Instant::now());
    let waits = "urgent: 0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: not \
                 eligible due to a terminating pod on the nominated node.\n";
    assert_eq!(decisions(&mut core), waits);
    // The API shows the same later.
    core.nodes.nominations.forget_victims("urgent");
    let leaving = running("low", "one", "2", 0).replace(
        "uid: low",
        "uid: low, deletionTimestamp: '2026-01-01T10:00:00Z', deletionGracePeriodSeconds: 30",
    ) + "\nstatus: {conditions: [{type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler}]}";
    add_pods(&mut core, &leaving);
    core.queue.unblock(|_| true, Instant::now());
    assert_eq!(decisions(&mut core), waits);
}

#[test]
fn a_failed_preemption_is_tried_again() {
    let mut core = core(&node("one", ""));
    add_pods(
        &mut core,
        &(running("low", "one", "2", 0) + &wanting("urgent", "2", 10)),
    );
    assert_eq!(decisions(&mut core), "urgent: instead of [low] on one\n");
    core.preemption_failed("urgent", Instant::now());
    assert_eq!(decisions(&mut core), "urgent: instead of [low] on one\n");
}

#[test]
fn a_nomination_that_no_longer_holds_is_taken_back() {
    let mut core = core(&(node("one", "") + &node("two", "").replace("cpu: '2'", "cpu: '1'")));
    let nominated = wanting("urgent", "2", 10) + "\nstatus: {nominatedNodeName: one}";
    add_pods(&mut core, &(running("higher", "one", "2", 100) + &nominated));
    assert_eq!(core.nodes.nominations.all(), BTreeMap::from([("urgent", "one")]));
    assert_eq!(
        decisions(&mut core),
        "urgent: 0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are \
         available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling. \
         (nomination taken back)\n"
    );
    assert_eq!(core.nodes.nominations.all(), BTreeMap::new());
}

#[test]
fn a_pod_of_higher_priority_takes_the_place_of_one_that_waits() {
    let mut core = core(&node("one", ""));
    let low = running("low", "one", "2", 0);
    add_pods(&mut core, &(low.clone() + &wanting("middle", "2", 5)));
    assert_eq!(decisions(&mut core), "middle: instead of [low] on one\n");
    add_pods(&mut core, &wanting("high", "2", 10));
    let now = Instant::now();
    let decision = core.next(now).unwrap();
    assert_eq!(decision.queued.pod.uid(), "high");
    let displaced: Vec<&str> = decision.displaced.iter().map(|pod| pod.uid()).collect();
    assert_eq!(displaced, ["middle"]);
    assert_eq!(core.nodes.nominations.all(), BTreeMap::from([("high", "one")]));
}

#[test]
fn the_nominated_node_is_preferred_to_a_better_one() {
    let nodes = node("one", "") + &node("empty", "").replace("cpu: '2'", "cpu: '64'");
    let nominated = wanting("p", "1", 10) + "\nstatus: {nominatedNodeName: one}";
    check(
        &nodes,
        &(running("some", "one", "1", 0) + &nominated),
        expect![[r#"
            p: → one
        "#]],
    );
}

#[test]
fn pods_that_keep_others_away_leave_too() {
    let away = affinity("podAntiAffinity", "web", "kubernetes.io/hostname");
    let there = labelled("there", "web", &away.replacen('{', "{nodeName: one, priority: 0, ", 1));
    check(
        &node("one", ""),
        &(there + &labelled("urgent", "web", &away.replacen('{', "{priority: 10, ", 1))),
        expect![[r#"
            urgent: instead of [there] on one
        "#]],
    );
}
