//! Random worlds: whatever comes in whatever order, nothing is lost and no node is overcommitted.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;

const NODES: u64 = 4;
const STEPS: usize = 300;

/// What the API server would hold.
#[derive(Default)]
struct World {
    pods: BTreeMap<String, Arc<Pod>>,
    /// Decided, not bound yet.
    binding: Vec<(QueuedPod, String)>,
    made: usize,
}

fn random_pod(name: &str, dice: &mut Dice) -> Arc<Pod> {
    let cpu = 250 * (1 + dice.roll(4));
    let priority = 10 * dice.roll(3);
    let away = match dice.roll(4) {
        0 => {
            ", affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: a}}, topologyKey: kubernetes.io/hostname}]}}"
        }
        _ => "",
    };
    let spec =
        format!("{{priority: {priority}, containers: [{{name: c, resources: {{requests: {{cpu: {cpu}m}}}}}}]{away}}}");
    let app = if dice.roll(2) == 0 { "a" } else { "b" };
    Arc::new(Pod::decode(&documents(&labelled(name, app, &spec))[0]).unwrap())
}

impl World {
    fn change(&mut self, core: &mut Core, name: &str, new: Option<Arc<Pod>>, now: Instant) {
        let old = match &new {
            Some(new) => self.pods.insert(name.to_owned(), new.clone()),
            None => self.pods.remove(name),
        };
        core.pod_changed(old.as_ref(), new.as_ref(), now);
    }

    fn any(&self, dice: &mut Dice) -> Option<String> {
        let many = self.pods.len() as u64;
        let chosen = (many > 0).then(|| dice.roll(many) as usize)?;
        self.pods.keys().nth(chosen).cloned()
    }

    fn step(&mut self, core: &mut Core, dice: &mut Dice, now: Instant) {
        match dice.roll(8) {
            0..=2 => {
                self.made += 1;
                let name = format!("p{}", self.made);
                let pod = random_pod(&name, dice);
                self.change(core, &name, Some(pod), now);
            }
            3 => {
                if let Some(name) = self.any(dice) {
                    self.change(core, &name, None, now);
                }
            }
            4 | 5 => self.decide(core, now),
            _ => self.finish_binding(core, dice, now),
        }
    }

    fn decide(&mut self, core: &mut Core, now: Instant) {
        let Some(decision) = core.next(now) else { return };
        if let Ok(node) = &decision.result {
            self.binding.push((decision.queued.clone(), node.clone()));
        }
        for victim in decision.preemption.iter().flat_map(|one| &one.victims) {
            self.change(core, &victim.metadata.name, None, now);
        }
    }

    fn finish_binding(&mut self, core: &mut Core, dice: &mut Dice, now: Instant) {
        if self.binding.is_empty() {
            return;
        }
        let chosen = dice.roll(self.binding.len() as u64) as usize;
        let (queued, node) = self.binding.swap_remove(chosen);
        let name = queued.pod.metadata.name.clone();
        match self.pods.get(&name) {
            Some(pod) if dice.roll(4) > 0 => {
                let mut bound = Pod::clone(pod);
                bound.node_name = node;
                self.change(core, &name, Some(Arc::new(bound)), now);
            }
            _ => core.binding_failed(queued, now),
        }
    }

    /// Every pod is in exactly one place, and what nodes count is what their pods ask for.
    fn check(&self, core: &Core) {
        let placed: BTreeSet<&str> = core.nodes.all_pods().map(|(_, pod)| pod.uid()).collect();
        for (uid, pod) in &self.pods {
            let queued = core.queue.contains(uid);
            assert!(queued != placed.contains(uid.as_str()), "{uid} is lost or twice");
            assert!(pod.node_name.is_empty() || !queued, "{uid} is bound and queued");
        }
        assert!(
            placed.iter().all(|uid| self.pods.contains_key(*uid)),
            "a ghost in {placed:?}"
        );
        for id in (0..core.nodes.rows()).filter(|id| core.nodes.present[*id]) {
            let pods = core.nodes.pods[id].values();
            let sum: i64 = pods.map(|pod| pod.demand.requests.exact.milli_cpu).sum();
            assert_eq!(sum, core.nodes.milli_cpu_requested[id]);
            assert!(sum <= core.nodes.milli_cpu[id], "overcommitted");
        }
        let nominations = core.nodes.nominations.all();
        assert!(
            nominations.keys().all(|uid| core.queue.contains(uid)),
            "{nominations:?}"
        );
    }
}

#[test]
fn nothing_is_lost_and_nothing_overcommitted() {
    for seed in 1..5 {
        let mut dice = Dice::new(seed * 7919);
        let nodes: String = (0..NODES).map(|number| node(&format!("n{number}"), "")).collect();
        let mut core = core(&nodes);
        let mut world = World::default();
        let mut now = Instant::now();
        for _ in 0..STEPS {
            now += Duration::from_millis(dice.roll(700));
            world.step(&mut core, &mut dice, now);
            world.check(&core);
        }
    }
}
