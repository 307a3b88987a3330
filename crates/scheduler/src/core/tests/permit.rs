//! Pods that wait for permission.

use std::time::Duration;

use async_trait::async_trait;

use super::*;
use crate::framework::{Permit, Plugin, Rejection};
use crate::plugins;

/// Pods labelled `gang` go together, two at a time; one labelled `banned` goes nowhere.
struct Gang;

#[async_trait]
impl Plugin for Gang {
    fn name(&self) -> &'static str {
        "Gang"
    }

    fn permit(&self, pod: &Pod, _node: &str, waiting: &mut WaitingPods) -> Permit {
        match pod.metadata.labels.get("app").map(String::as_str) {
            Some("banned") => return Permit::Reject(Rejection::new("Gang", "banned")),
            Some("gang") => {}
            _ => return Permit::Allow,
        }
        let fellows: Vec<String> = waiting.iter().map(|(pod, _)| pod.uid().to_owned()).collect();
        if fellows.is_empty() {
            return Permit::Wait(Duration::from_secs(10));
        }
        fellows.iter().for_each(|uid| waiting.allow(uid, "Gang"));
        Permit::Allow
    }
}

fn rows() -> &'static [Row] {
    let mut rows = plugins::table().to_vec();
    rows.push(Row {
        plugin: &Gang,
        ..rows[0]
    });
    Box::leak(rows.into_boxed_slice())
}

fn core_with_gangs(nodes: &str) -> Core {
    let profile = Profile {
        rows: rows(),
        ..Profile::default()
    };
    let mut core = Core::new(vec![profile], 1);
    for node in documents(nodes) {
        core.node_changed(None, Some(&Node::decode(&node).unwrap()), Instant::now());
    }
    core
}

fn requested(core: &Core) -> i64 {
    core.nodes.milli_cpu_requested[core.nodes.id("one").unwrap()]
}

#[test]
fn pods_wait_on_their_node_until_all_are_there() {
    let mut core = core_with_gangs(&node("one", ""));
    add_pods(&mut core, &labelled("a", "gang", ONE_CPU));
    assert_eq!(decisions(&mut core), "");
    assert_eq!(requested(&core), 1000, "its place is kept");
    add_pods(&mut core, &(labelled("b", "gang", ONE_CPU) + &pod("late", ONE_CPU)));
    assert_eq!(
        decisions(&mut core),
        "b: → one\na: → one\nlate: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, \
         preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.\n"
    );
}

#[test]
fn a_wait_that_is_too_long_gives_the_place_back() {
    let mut core = core_with_gangs(&node("one", ""));
    add_pods(&mut core, &labelled("a", "gang", ONE_CPU));
    let now = Instant::now();
    assert!(core.next(now).is_none());
    let decision = core.next(now + Duration::from_secs(11)).unwrap();
    assert_eq!(
        decision.result.unwrap_err().to_string(),
        "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin Gang."
    );
    assert_eq!(requested(&core), 0);
    assert_eq!(core.queue.len(), 1, "it is tried again when something changes");
}

#[test]
fn a_pod_that_is_turned_down_leaves_nothing_behind() {
    let mut core = core_with_gangs(&node("one", ""));
    add_pods(&mut core, &labelled("a", "banned", ONE_CPU));
    assert_eq!(decisions(&mut core), "a: 0/1 nodes are available: 1 banned.\n");
    assert_eq!(requested(&core), 0);
}

#[test]
fn a_pod_that_goes_while_it_waits_is_forgotten() {
    let mut core = core_with_gangs(&node("one", ""));
    add_pods(&mut core, &labelled("a", "gang", ONE_CPU));
    assert_eq!(decisions(&mut core), "");
    let pod = Arc::new(Pod::decode(&documents(&labelled("a", "gang", ONE_CPU))[0]).unwrap());
    core.pod_changed(Some(&pod), None, Instant::now());
    assert_eq!(requested(&core), 0);
    assert!(core.next(Instant::now() + Duration::from_secs(60)).is_none());
}

#[test]
fn a_waiting_victim_is_turned_away_rather_than_deleted() {
    let mut core = core_with_gangs(&node("one", ""));
    add_pods(&mut core, &labelled("a", "gang", ONE_CPU));
    assert_eq!(decisions(&mut core), "");
    add_pods(
        &mut core,
        &pod(
            "urgent",
            "{priority: 10, containers: [{name: c, resources: {requests: {cpu: '2'}}}]}",
        ),
    );
    let text = decisions(&mut core);
    assert_eq!(
        text,
        "urgent: instead of [] on one\na: 0/1 nodes are available: 1 preempted.\nurgent: → one\n"
    );
}
