//! One run: everything that there is, from its start to its end state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use apiserver::{ApiServer, InProcess};
use auth::User;
use client::leader::{Election, lead};
use client::{Client, Transport};
use controllers::{ControllersOptions, Settings};
use scheduler::SchedulerOptions;
use tokio::task::{JoinHandle, JoinSet};

use crate::chaos;
use crate::history::{Recorded, Shared};
use crate::kubelet::Kubelet;
use crate::link::{Connection, Counter, Link, Rates};
use crate::normal;
use crate::script::{Scenario, User as ScriptUser};
use crate::server;

/// How long the scripts may take, and how long the cluster has afterwards, when nothing goes wrong any more.
const SCRIPT_LIMIT: Duration = Duration::from_secs(900);
const SETTLE_LIMIT: Duration = Duration::from_secs(400);
/// Once it is as expected, it must stay so.
const STAYS: Duration = Duration::from_secs(20);

/// The normalised objects of every scenario, by namespace.
pub type EndState = BTreeMap<&'static str, Vec<String>>;

pub struct Run {
    pub seed: u64,
    pub is_faulty: bool,
    pub scenarios: Vec<&'static Scenario>,
    /// The end states of the run without faults, where this is not that run.
    pub expected: Option<EndState>,
}

pub struct Ending {
    pub state: EndState,
    pub wrong: Vec<String>,
    pub hash: u64,
    pub commits: Vec<String>,
    pub lasted: Duration,
}

/// Something that can be cut off and killed.
pub struct Component {
    pub link: Arc<Link>,
    /// The longest time it may be cut off: a node that is cut off for longer is lost, which ends in another state.
    pub longest_cut: Duration,
    pub task: Option<JoinHandle<()>>,
    start: Box<dyn Fn() -> JoinHandle<()> + Send>,
}

impl Component {
    pub fn kill(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    pub fn start(&mut self) {
        self.kill();
        self.task = Some((self.start)());
    }
}

pub struct World {
    pub history: Arc<Shared>,
    server: Arc<ApiServer>,
    pub components: Vec<Component>,
    is_faulty: bool,
    rates: Option<Rates>,
}

impl Run {
    pub fn simulate(&self) -> Ending {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let _simulated = clock::simulation::begin(self.seed);
            self.live().await
        })
    }

    async fn live(&self) -> Ending {
        let history = Shared::new(self.is_faulty);
        let store = Recorded {
            store: store::memory::open(),
            history: history.clone(),
        };
        let mut world = World {
            server: server::start(Arc::new(store)).await,
            history,
            components: Vec::new(),
            is_faulty: self.is_faulty,
            rates: self.is_faulty.then(Rates::random),
        };
        world.populate(&self.scenarios);
        let mut users = JoinSet::new();
        for scenario in &self.scenarios {
            let user = ScriptUser {
                client: world.administrator(),
                namespace: scenario.namespace,
                is_hasty: self.is_faulty,
            };
            users.spawn((scenario.play)(user));
        }
        let mut wrong = Vec::new();
        let played = async { while users.join_next().await.is_some() {} };
        let scripts = chaos::reign(&mut world, played);
        if tokio::time::timeout(SCRIPT_LIMIT, scripts).await.is_err() {
            wrong.push(format!("the scripts did not end within {SCRIPT_LIMIT:?}"));
        }
        world.heal();
        let state = self.settle(&world, &mut wrong).await;
        world.components.iter_mut().for_each(Component::kill);
        world.server.stop().await;
        let hash = world.history.hash();
        world.history.with(|history| Ending {
            state,
            wrong: history.invariants.violations.drain(..).chain(wrong).collect(),
            hash,
            commits: std::mem::take(&mut history.commits),
            lasted: history.elapsed(),
        })
    }

    /// Waits until the end state is the expected one and stays so, or until nothing is to be expected any more.
    async fn settle(&self, world: &World, wrong: &mut Vec<String>) -> EndState {
        let states = || {
            world
                .history
                .with(|history| normal::end_state(&history.objects, &self.scenarios))
        };
        let Some(expected) = &self.expected else {
            tokio::time::sleep(STAYS * 4).await;
            let state = states();
            tokio::time::sleep(STAYS).await;
            wrong.extend(normal::differences(&state, &states()));
            wrong.extend(world.history.with(|history| normal::flaws(&history.objects)));
            return state;
        };
        let is_reached = || {
            states()
                .iter()
                .all(|(namespace, state)| expected.get(namespace) == Some(state))
        };
        let begun = tokio::time::Instant::now();
        while !is_reached() && begun.elapsed() < SETTLE_LIMIT {
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        tokio::time::sleep(STAYS).await;
        let state = states();
        let ours = expected.iter().filter(|(namespace, _)| state.contains_key(*namespace));
        let ours = ours.map(|(namespace, state)| (*namespace, state.clone())).collect();
        wrong.extend(normal::differences(&ours, &state));
        wrong.extend(world.history.with(|history| normal::flaws(&history.objects)));
        state
    }
}

impl World {
    pub fn is_faulty(&self) -> bool {
        self.is_faulty
    }

    fn administrator(&self) -> Client {
        let user = User::system("administrator", &["system:masters"]);
        Client::new(Arc::new(InProcess::new(self.server.clone(), user)))
    }

    /// The way of one identity over a link.
    fn connect(server: &Arc<ApiServer>, link: &Arc<Link>, user: User) -> Arc<dyn Transport> {
        Arc::new(Connection {
            link: link.clone(),
            server: Arc::new(InProcess::new(server.clone(), user)),
        })
    }

    fn populate(&mut self, scenarios: &[&'static Scenario]) {
        for replica in ["a", "b"] {
            self.add_controllers(replica);
            self.add_scheduler(replica);
        }
        let pools = ["stable", "spot"].map(|pool| (pool, scenarios.iter().any(|scenario| scenario.pool == pool)));
        let nodes = pools
            .into_iter()
            .filter(|(_, is_used)| *is_used)
            .flat_map(|(pool, _)| [(pool, 1), (pool, 2)]);
        for (pool, number) in nodes.collect::<Vec<_>>() {
            self.add_node(pool, number);
        }
        self.components.iter_mut().for_each(Component::start);
    }

    fn add(&mut self, link: Arc<Link>, longest_cut: u64, start: impl Fn() -> JoinHandle<()> + Send + 'static) {
        self.components.push(Component {
            link,
            longest_cut: Duration::from_secs(longest_cut),
            task: None,
            start: Box::new(start),
        });
    }

    fn link(&self) -> Arc<Link> {
        Link::new(self.rates, self.history.clone())
    }

    fn add_controllers(&mut self, replica: &str) {
        let (link, server) = (self.link(), self.server.clone());
        let (way, replica) = (link.clone(), replica.to_owned());
        let user = User::system("system:kube-controller-manager", &[]);
        let client = Client::new(World::connect(&self.server, &link, user));
        self.add(link, 30, move || {
            let (server, way) = (server.clone(), way.clone());
            tokio::spawn(lead(
                election(&client, "kube-controller-manager", &replica),
                move |client| {
                    let (server, way) = (server.clone(), way.clone());
                    controllers::run(ControllersOptions {
                        client,
                        accounts: Some(Arc::new(move |name| {
                            let user = User::service_account("kube-system", name, "").authenticated();
                            World::connect(&server, &way, user)
                        })),
                        host: "simulation".to_owned(),
                        settings: Settings {
                            root_ca: Some("PEM".to_owned()),
                            cluster_cidrs: vec!["10.244.0.0/16".to_owned()],
                            ..Settings::default()
                        },
                        disabled: Vec::new(),
                        queues: Arc::default(),
                    })
                },
            ))
        });
    }

    fn add_scheduler(&mut self, replica: &str) {
        let (link, replica) = (self.link(), replica.to_owned());
        let user = User::system("system:kube-scheduler", &[]);
        let client = Client::new(World::connect(&self.server, &link, user));
        self.add(link, 30, move || {
            tokio::spawn(lead(election(&client, "kube-scheduler", &replica), |client| {
                scheduler::run(SchedulerOptions {
                    client,
                    profiles: vec![scheduler::Profile::default()],
                    host: "simulation".to_owned(),
                    metrics: Arc::default(),
                })
            }))
        });
    }

    fn add_node(&mut self, pool: &'static str, number: u8) {
        let node = format!("{pool}-{number}");
        let link = self.link();
        let user = User::system(&format!("system:node:{node}"), &["system:nodes"]);
        let subnet = number + if pool == "spot" { 10 } else { 0 };
        let kubelet = Kubelet {
            client: Client::new(World::connect(&self.server, &link, user)).named("kubelet"),
            node,
            pool,
            subnet,
            addresses: Arc::new(Counter::default()),
            is_faulty: self.is_faulty,
        };
        let doomed = pool == "spot" && number == 2;
        let history = self.history.clone();
        self.add(link, 12, move || {
            let (kubelet, history) = (kubelet.clone(), history.clone());
            tokio::spawn(async move {
                let alive = kubelet.run();
                match doomed {
                    // Its power fails once the script says so, for good.
                    true => tokio::select! {
                        biased;
                        () = chaos::power_failure(&history) => {}
                        () = alive => {}
                    },
                    false => alive.await,
                }
            })
        });
    }

    fn heal(&mut self) {
        for component in &mut self.components {
            component.link.heal();
            if component.task.is_none() {
                component.start();
            }
        }
    }
}

fn election(client: &Client, name: &str, replica: &str) -> Election {
    Election {
        client: client.named(name),
        namespace: "kube-system".to_owned(),
        name: name.to_owned(),
        identity: format!("{replica}_{}", clock::uid()),
    }
}
