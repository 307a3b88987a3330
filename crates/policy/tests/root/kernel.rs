//! The kernel's rules after any sequence of changes, and how long a change takes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use client::Key;
use network::nft::{Element, Family, Socket, Table, Value as ElementValue};
use policy::model::{Model, PodFacts, Policy};
use serde_json::{Value, json};

use crate::node::{Node, TABLE, open_rules, pod_object, policy};
use crate::support::{on_new_host, run};

/// A generator of numbers from one seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// Everything that is known at a moment.
#[derive(Clone, Default)]
struct World {
    namespaces: BTreeMap<String, Value>,
    pods: BTreeMap<Key, PodFacts>,
    policies: BTreeMap<Key, Policy>,
}

impl World {
    /// Makes one random change, in the world and in the model.
    fn change(&mut self, dice: &mut Dice, model: &mut Model) {
        let namespace = dice.pick(&["x", "y", "z"]);
        match dice.below(8) {
            0 => {
                let team = dice.pick(&["red", "blue"]);
                self.namespaces.insert(namespace.to_owned(), json!({"team": team}));
                model.set_namespace(namespace, Some([("team".to_owned(), team.to_owned())].into()));
            }
            1 => {
                self.namespaces.remove(namespace);
                model.set_namespace(namespace, None);
            }
            2..=4 => {
                let name = format!("p{}", dice.below(6));
                let key = Key::new(namespace, &name);
                let pod = (dice.below(4) > 0).then(|| random_pod(dice, namespace, &name));
                model.set_pod(&key, pod.clone());
                replace(&mut self.pods, key, pod);
            }
            _ => {
                let name = format!("n{}", dice.below(5));
                let key = Key::new(namespace, &name);
                let policy = (dice.below(4) > 0).then(|| random_policy(dice, namespace, &name));
                model.set_policy(&key, policy.clone());
                replace(&mut self.policies, key, policy);
            }
        }
    }

    /// A model that has seen nothing but this.
    fn model(&self) -> Model {
        let mut model = Model::default();
        for (key, policy) in &self.policies {
            model.set_policy(key, Some(policy.clone()));
        }
        for (key, pod) in &self.pods {
            model.set_pod(key, Some(pod.clone()));
        }
        for (name, labels) in &self.namespaces {
            model.set_namespace(name, Some(serde_json::from_value(labels.clone()).unwrap()));
        }
        model.step();
        model
    }
}

fn replace<T>(all: &mut BTreeMap<Key, T>, key: Key, value: Option<T>) {
    match value {
        Some(value) => all.insert(key, value),
        None => all.remove(&key),
    };
}

fn random_pod(dice: &mut Dice, namespace: &str, name: &str) -> PodFacts {
    let node = dice.pick(&["here", "there"]);
    let labels = json!({"app": dice.pick(&["web", "db"]), "tier": dice.pick(&["a", "b"])});
    // Few addresses, so that they change hands.
    let address = IpAddr::from([10, 244, 0, 2 + dice.below(12) as u8]);
    let registered = [address];
    let pod = pod_object(namespace, name, node, labels, &[address]);
    PodFacts::new(
        &pod,
        "here",
        (node == "here" && dice.below(2) == 0).then_some(&registered),
    )
}

fn random_policy(dice: &mut Dice, namespace: &str, name: &str) -> Policy {
    let selector = |dice: &mut Dice| match dice.below(3) {
        0 => json!({}),
        1 => json!({"matchLabels": {"app": dice.pick(&["web", "db"])}}),
        _ => json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": [dice.pick(&["a", "b"])]}]}),
    };
    let peers = |dice: &mut Dice| -> Vec<Value> {
        let peer = |dice: &mut Dice| match dice.below(4) {
            0 => json!({"podSelector": selector(dice)}),
            1 => json!({"namespaceSelector": {"matchLabels": {"team": dice.pick(&["red", "blue"])}}}),
            2 => json!({"namespaceSelector": {}, "podSelector": selector(dice)}),
            _ => json!({"ipBlock": {
                "cidr": dice.pick(&["10.0.0.0/8", "10.244.0.0/28", "0.0.0.0/0", "fd00::/8"]),
                "except": if dice.below(2) == 0 { vec![] } else { vec!["10.244.0.4/30"] },
            }}),
        };
        (0..dice.below(3)).map(|_| peer(dice)).collect()
    };
    let ports = |dice: &mut Dice| -> Vec<Value> {
        let port = |dice: &mut Dice| match dice.below(3) {
            0 => json!({"port": "http"}),
            1 => json!({"port": 80 + dice.below(3), "protocol": dice.pick(&["TCP", "UDP", "SCTP"])}),
            _ => json!({"port": 1000, "endPort": 1000 + dice.below(5)}),
        };
        (0..dice.below(3)).map(|_| port(dice)).collect()
    };
    let types = dice.pick(&[json!(["Ingress"]), json!(["Egress"]), json!(["Ingress", "Egress"])]);
    let spec = json!({
        "podSelector": selector(dice),
        "policyTypes": types,
        "ingress": (0..dice.below(3)).map(|_| json!({"from": peers(dice), "ports": ports(dice)})).collect::<Vec<_>>(),
        "egress": (0..dice.below(3)).map(|_| json!({"to": peers(dice), "ports": ports(dice)})).collect::<Vec<_>>(),
    });
    Policy::new(&policy(namespace, name, spec))
}

/// What the kernel's tables say, without the numbers that classes and grants happen to have: for each isolated pod the
/// peers and blocks with their ports.
fn kernel_rules() -> BTreeSet<String> {
    let socket = Socket::open().unwrap();
    let mut rules = BTreeSet::new();
    for family in [Family::Ip, Family::Ip6] {
        let table = Table::new(family, TABLE);
        let elements = |set: &str| socket.elements(&table, set).unwrap();
        let mut ports: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        for element in elements("ports") {
            let range = format!("{:?}-{:?}", &element.key[4..], &element.key_end.clone().unwrap()[4..]);
            ports.entry(number(&element.key)).or_default().insert(range);
        }
        let mut used = BTreeSet::new();
        for direction in ["ingress", "egress"] {
            let mut of_class: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
            for kind in ["peers", "blocks"] {
                for element in elements(&format!("{direction}-{kind}")) {
                    let grant = value(&element);
                    used.insert(grant);
                    let end = element.key_end.as_ref().map(|end| end[4..].to_vec());
                    let line = format!("{kind} {:?} {end:?}: {:?}", &element.key[4..], ports[&grant]);
                    of_class.entry(number(&element.key)).or_default().insert(line);
                }
            }
            let pods = elements(&format!("{direction}-pods"));
            for pod in pods {
                let granted = of_class.get(&value(&pod)).cloned().unwrap_or_default();
                rules.insert(format!("{direction} {:?}: {granted:?}", pod.key));
            }
        }
        // Both families have all grants, whichever of them uses one.
        assert!(used.iter().all(|grant| ports.contains_key(grant)));
        for pair in elements("self") {
            rules.insert(format!("self {:?}", pair.key));
        }
    }
    rules
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().unwrap())
}

fn value(element: &Element) -> u32 {
    match &element.value {
        Some(ElementValue::Data(data)) => number(data),
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_sequence_of_changes_ends_in_the_rules_of_a_model_made_anew() {
    on_new_host(|| {
        for seed in 0..12 {
            let mut node = Node::new();
            let (mut world, mut dice) = (World::default(), Dice(seed));
            for round in 0..60 {
                // Sometimes several changes are one step.
                for _ in 0..=dice.below(3) {
                    world.change(&mut dice, &mut node.model);
                }
                node.apply();
                if round % 6 != 5 {
                    continue;
                }
                let incremental = kernel_rules();
                policy::remove(TABLE).unwrap();
                open_rules(&node.network).resync(world.model().facts()).unwrap();
                let anew = kernel_rules();
                assert_eq!(incremental, anew, "seed {seed}, round {round}");
                node.rules.resync(node.model.facts()).unwrap();
                assert_eq!(kernel_rules(), anew, "comparing, seed {seed}, round {round}");
            }
            policy::remove(TABLE).unwrap();
            run("ip", &["link", "del", "karve0"]);
        }
    });
}

/// A hundred namespaces with ten pods and ten policies each; every tenth pod is this node's.
#[test]
fn a_change_is_quick_among_a_thousand_policies_and_a_thousand_pods() {
    on_new_host(|| {
        let mut node = Node::new();
        let address = |number: usize| IpAddr::from((0x0af4_0000 + 2 + number as u32).to_be_bytes());
        let put_pod = |model: &mut Model, number: usize, tier: usize| {
            let (namespace, name) = (format!("ns{}", number / 10), format!("pod{}", number % 10));
            let node = if number.is_multiple_of(10) { "here" } else { "there" };
            let labels = json!({"app": format!("app{}", number % 5), "tier": format!("{tier}")});
            let pod = pod_object(&namespace, &name, node, labels, &[address(number)]);
            model.set_pod(&Key::new(&namespace, &name), Some(PodFacts::new(&pod, "here", None)));
        };
        let put_policy = |model: &mut Model, number: usize, port: usize| {
            let (namespace, name) = (format!("ns{}", number / 10), format!("policy{}", number % 10));
            let spec = json!({
                "podSelector": {"matchLabels": {"app": format!("app{}", number % 5)}},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [
                    {"from": [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"team": format!("{}", number % 4)}}}],
                     "ports": [{"port": port}, {"port": 1000, "endPort": 2000}]},
                    {"from": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.128/25"]}}]},
                ],
                "egress": [{"to": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"tier": "1"}}}]}],
            });
            let policy = Policy::new(&policy(&namespace, &name, spec));
            model.set_policy(&Key::new(&namespace, &name), Some(policy));
        };
        for number in 0..100 {
            let labels = [("team".to_owned(), format!("{}", number % 4))];
            node.model.set_namespace(&format!("ns{number}"), Some(labels.into()));
        }
        for number in 0..1000 {
            put_pod(&mut node.model, number, number % 2);
            put_policy(&mut node.model, number, 80);
        }
        let start = Instant::now();
        node.apply();
        println!("1,000 policies and 1,000 pods: {:?}", start.elapsed());
        let facts = node.model.facts();
        println!(
            "{} peers, {} blocks, {} grants",
            facts.peers.len(),
            facts.blocks.len(),
            facts.grants.len()
        );
        let (mut times, mut work): (Vec<Duration>, Vec<Duration>) = Default::default();
        for round in 0..400 {
            let number = round * 37 % 1000;
            let (start, worked) = (Instant::now(), cpu_time());
            match round % 2 {
                0 => put_pod(&mut node.model, number, round % 3),
                _ => put_policy(&mut node.model, number, 80 + round % 7),
            }
            node.apply();
            times.push(start.elapsed());
            work.push(cpu_time() - worked);
        }
        for times in [&mut times, &mut work] {
            times.sort_unstable();
        }
        println!("a change: p50 {:?}, p99 {:?}", times[200], times[396]);
        println!("of this thread's work: p50 {:?}, p99 {:?}", work[200], work[396]);
        // What is done, however long others keep the machine busy meanwhile: the kernel's part included, in a build that is
        // not optimised.
        assert!(work[396] < Duration::from_millis(100), "a change takes {:?}", work[396]);
        assert!(work[200] < Duration::from_millis(20), "a change takes {:?}", work[200]);
    });
}

/// How long this thread has been running, here and in the kernel.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock's time is written to a live value.
    let read = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(read, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
