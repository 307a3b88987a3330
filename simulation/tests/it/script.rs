//! What users do, each scenario in a namespace of its own. Nothing goes wrong on their own way to the server.

use std::pin::Pin;
use std::time::Duration;

use api::kinds::controller_revision::CONTROLLER_REVISION;
use api::kinds::cron_job::CRON_JOB;
use api::kinds::daemon_set::DAEMON_SET;
use api::kinds::deployment::DEPLOYMENT;
use api::kinds::job::JOB;
use api::kinds::namespace::NAMESPACE;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::kinds::pod_disruption_budget::POD_DISRUPTION_BUDGET;
use api::kinds::replica_set::REPLICA_SET;
use api::kinds::resource_quota::RESOURCE_QUOTA;
use api::kinds::service::SERVICE;
use api::kinds::stateful_set::STATEFUL_SET;
use api::{Resource, Value};
use client::{Api, Client, DeleteOptions, ListOptions, Patch, Propagation};
use serde_json::json;

use crate::chaos::POWER_FAILURE;
use crate::kubelet::SECONDS;

pub struct Scenario {
    pub namespace: &'static str,
    /// The nodes that its pods run on.
    pub pool: &'static str,
    pub play: fn(User) -> Play,
}

type Play = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One file, one row each: a scenario is a function below and a row here.
pub static SCENARIOS: &[Scenario] = &[
    scenario("budget", |user| Box::pin(budget(user))),
    scenario("daemons", |user| Box::pin(daemons(user))),
    scenario("deleted", |user| Box::pin(deleted(user))),
    scenario("doomed", |user| Box::pin(doomed(user))),
    scenario("jobs", |user| Box::pin(jobs(user))),
    scenario("quota", |user| Box::pin(quota(user))),
    scenario("rollout", |user| Box::pin(rollout(user))),
    Scenario {
        pool: "spot",
        ..scenario("spot", |user| Box::pin(spot(user)))
    },
    scenario("stateful", |user| Box::pin(stateful(user))),
];

const fn scenario(namespace: &'static str, play: fn(User) -> Play) -> Scenario {
    Scenario {
        namespace,
        pool: "stable",
        play,
    }
}

/// Some of the scenarios, so that a run is short; which ones goes round with the seeds.
pub fn chosen_by(seed: u64) -> Vec<&'static Scenario> {
    let (count, seed) = (SCENARIOS.len() as u64, seed.wrapping_mul(5));
    let picked = [seed % count, (seed / 5 + 1 + seed % 7) % count];
    let all = SCENARIOS.iter().enumerate();
    all.filter(|(at, _)| picked.contains(&(*at as u64)))
        .map(|(_, scenario)| scenario)
        .collect()
}

/// Somebody who works in one namespace.
pub struct User {
    pub client: Client,
    pub namespace: &'static str,
    /// Takes other pauses than the script says.
    pub is_hasty: bool,
}

impl User {
    async fn pause(&self, seconds: u64) {
        let duration = Duration::from_secs(seconds);
        let duration = match self.is_hasty {
            true => duration.mul_f64(0.3 + clock::fraction()),
            false => duration,
        };
        tokio::time::sleep(duration).await;
    }

    fn api(&self, resource: &'static Resource) -> Api {
        self.client.resource(resource).in_namespace(self.namespace)
    }

    async fn create_namespace(&self) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        let namespaces = self.client.resource(&NAMESPACE);
        namespaces.create::<Value>(&namespace).await.expect("a namespace");
    }

    async fn create(&self, resource: &'static Resource, name: &str, mut object: Value) {
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        object["metadata"]["name"] = name.into();
        let created = self.api(resource).create::<Value>(&object).await;
        created.unwrap_or_else(|error| panic!("{object}: {error}"));
    }

    async fn patch(&self, resource: &'static Resource, name: &str, patch: Value) {
        let patched = self.api(resource).patch::<Value>(name, Patch::strategic(&patch)).await;
        patched.unwrap_or_else(|error| panic!("{name}: {patch}: {error}"));
    }

    async fn scale(&self, resource: &'static Resource, name: &str, replicas: u32) {
        self.patch(resource, name, json!({"spec": {"replicas": replicas}}))
            .await;
    }

    async fn set_image(&self, resource: &'static Resource, name: &str, image: &str) {
        let containers = json!([{"name": "main", "image": image}]);
        self.patch(
            resource,
            name,
            json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        )
        .await;
    }

    /// Waits until controllers have seen that many templates. One that was replaced before would leave no trace, which
    /// would be another end state.
    async fn until_revisions(&self, resource: &'static Resource, count: usize) {
        let revisions = self.api(resource);
        while revisions
            .list::<Value>(&ListOptions::default())
            .await
            .expect("a list")
            .items
            .len()
            < count
        {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn delete(&self, resource: &'static Resource, name: &str, propagation: Propagation) {
        let deleted = self
            .api(resource)
            .delete(name, &DeleteOptions::propagation(propagation))
            .await;
        deleted.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// A pod template of an app, in the pool of its scenario.
fn template(app: &str, pool: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {
            "nodeSelector": {"pool": pool},
            "containers": [{"name": "main", "image": "main:1", "resources": {"requests": {"cpu": "100m"}}}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 10},
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "tolerationSeconds": 10},
            ],
        },
    })
}

fn replicated(app: &str, pool: &str, replicas: u32) -> Value {
    json!({"spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": app}},
        "template": template(app, pool),
    }})
}

fn service(app: &str) -> Value {
    json!({"spec": {"selector": {"app": app}, "ports": [{"port": 80}]}})
}

/// A rollout that the next one overtakes, between and after changes of scale.
async fn rollout(user: User) {
    user.create_namespace().await;
    let mut web = replicated("web", "stable", 3);
    web["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    user.create(&DEPLOYMENT, "web", web).await;
    user.create(&SERVICE, "web", service("web")).await;
    user.pause(15).await;
    user.until_revisions(&REPLICA_SET, 1).await;
    user.set_image(&DEPLOYMENT, "web", "main:2").await;
    user.pause(3).await;
    user.until_revisions(&REPLICA_SET, 2).await;
    user.set_image(&DEPLOYMENT, "web", "main:3").await;
    user.pause(4).await;
    user.scale(&DEPLOYMENT, "web", 5).await;
    user.pause(15).await;
    user.scale(&DEPLOYMENT, "web", 2).await;
}

/// Deployments that are deleted in each of the three ways, and one that takes over what another left behind.
async fn deleted(user: User) {
    user.create_namespace().await;
    for name in ["background", "foreground", "orphan"] {
        user.create(&DEPLOYMENT, name, replicated(name, "stable", 2)).await;
    }
    user.pause(6).await;
    user.set_image(&DEPLOYMENT, "background", "main:2").await;
    user.pause(2).await;
    user.delete(&DEPLOYMENT, "background", Propagation::Background).await;
    user.delete(&DEPLOYMENT, "foreground", Propagation::Foreground).await;
    user.pause(10).await;
    // What is to be orphaned must exist.
    user.until_revisions(&REPLICA_SET, 1).await;
    user.delete(&DEPLOYMENT, "orphan", Propagation::Orphan).await;
    // The name is free again once its dependents are orphans.
    let deployments = user.api(&DEPLOYMENT);
    while deployments.get::<Value>("orphan").await.is_ok() {
        user.pause(2).await;
    }
    user.create(&DEPLOYMENT, "orphan", replicated("orphan", "stable", 3))
        .await;
}

async fn stateful(user: User) {
    user.create_namespace().await;
    user.create(
        &SERVICE,
        "db",
        json!({"spec": {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 5432}]}}),
    )
    .await;
    let mut db = replicated("db", "stable", 3);
    db["spec"]["serviceName"] = "db".into();
    user.create(&STATEFUL_SET, "db", db).await;
    user.pause(12).await;
    user.until_revisions(&CONTROLLER_REVISION, 1).await;
    user.set_image(&STATEFUL_SET, "db", "main:2").await;
    user.pause(6).await;
    user.scale(&STATEFUL_SET, "db", 4).await;
    user.pause(12).await;
    user.scale(&STATEFUL_SET, "db", 2).await;
}

async fn daemons(user: User) {
    user.create_namespace().await;
    let agent = json!({"spec": {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": template("agent", "stable"),
    }});
    user.create(&DAEMON_SET, "agent", agent).await;
    user.pause(10).await;
    user.until_revisions(&CONTROLLER_REVISION, 1).await;
    user.set_image(&DAEMON_SET, "agent", "main:2").await;
    user.pause(3).await;
    user.until_revisions(&CONTROLLER_REVISION, 2).await;
    user.set_image(&DAEMON_SET, "agent", "main:3").await;
}

/// Jobs of both modes, and a CronJob that is suspended after some minutes.
async fn jobs(user: User) {
    user.create_namespace().await;
    let run = |seconds: u32| {
        let mut run = template("run", "stable");
        run["metadata"]["annotations"] = json!({SECONDS: seconds.to_string()});
        run["spec"]["restartPolicy"] = "Never".into();
        run
    };
    let cron = json!({"spec": {
        "schedule": "* * * * *", "concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 1,
        "jobTemplate": {"spec": {"template": run(5)}},
    }});
    user.create(&CRON_JOB, "cron", cron).await;
    let plain = json!({"spec": {"completions": 5, "parallelism": 2, "template": run(3)}});
    user.create(&JOB, "plain", plain).await;
    let mut indexed = json!({"spec": {"completions": 4, "parallelism": 3, "completionMode": "Indexed"}});
    indexed["spec"]["template"] = run(2);
    user.create(&JOB, "indexed", indexed).await;
    user.create(
        &JOB,
        "fleeting",
        json!({"spec": {"ttlSecondsAfterFinished": 5, "template": run(1)}}),
    )
    .await;
    // The next full minute, and enough for a new leader to be elected.
    tokio::time::sleep(Duration::from_secs(170)).await;
    user.patch(&CRON_JOB, "cron", json!({"spec": {"suspend": true}})).await;
}

/// Evicts the pods of a Deployment one after the other, as fast as its budget allows.
async fn budget(user: User) {
    user.create_namespace().await;
    user.create(&DEPLOYMENT, "guarded", replicated("guarded", "stable", 3))
        .await;
    let guard = json!({"spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "guarded"}}}});
    user.create(&POD_DISRUPTION_BUDGET, "guard", guard).await;
    user.pause(15).await;
    let pods = user.api(&POD);
    let first = pods.list::<Value>(&ListOptions::default()).await.expect("pods").items;
    let evict = pods.subresource("eviction");
    for pod in first {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        loop {
            match evict.create_for::<Value>(name, &eviction).await {
                Ok(_) => break,
                Err(error) if error.is_not_found() => break,
                Err(error) => assert!(error.is_too_many_requests(), "{error}"),
            }
            user.pause(1).await;
        }
    }
}

/// A namespace with a bit of everything is deleted while all of it is still being made.
async fn doomed(user: User) {
    user.create_namespace().await;
    user.create(&DEPLOYMENT, "web", replicated("web", "stable", 2)).await;
    user.create(&SERVICE, "web", service("web")).await;
    let mut db = replicated("db", "stable", 2);
    db["spec"]["serviceName"] = "web".into();
    user.create(&STATEFUL_SET, "db", db).await;
    let mut run = template("run", "stable");
    run["spec"]["restartPolicy"] = "Never".into();
    user.create(&JOB, "endless", json!({"spec": {"template": run}})).await;
    user.pause(4).await;
    let namespaces = user.client.resource(&NAMESPACE);
    namespaces
        .delete(user.namespace, &DeleteOptions::default())
        .await
        .expect("a namespace");
}

/// More pods are wanted than may be, until somebody wants less.
async fn quota(user: User) {
    user.create_namespace().await;
    user.create(&RESOURCE_QUOTA, "few", json!({"spec": {"hard": {"pods": "4"}}}))
        .await;
    // A quota holds from when it has been counted.
    let quotas = user.api(&RESOURCE_QUOTA);
    while quotas.get::<Value>("few").await.expect("a quota")["status"]["used"]["pods"].is_null() {
        user.pause(1).await;
    }
    user.create(&DEPLOYMENT, "greedy", replicated("greedy", "stable", 6))
        .await;
    user.pause(15).await;
    user.scale(&DEPLOYMENT, "greedy", 2).await;
    user.create(&DEPLOYMENT, "modest", replicated("modest", "stable", 2))
        .await;
}

/// One of two nodes loses its power and is later removed.
async fn spot(user: User) {
    user.create_namespace().await;
    user.create(&DEPLOYMENT, "web", replicated("web", "spot", 4)).await;
    user.create(&SERVICE, "web", service("web")).await;
    let mut db = replicated("db", "spot", 2);
    db["spec"]["serviceName"] = "db".into();
    user.create(&STATEFUL_SET, "db", db).await;
    user.pause(15).await;
    let failure = json!({"metadata": {"annotations": {POWER_FAILURE: "now"}}});
    let namespaces = user.client.resource(&NAMESPACE);
    namespaces
        .patch::<Value>("spot", Patch::merge(&failure))
        .await
        .expect("a namespace");
    tokio::time::sleep(Duration::from_secs(75)).await;
    let nodes = user.client.resource(&NODE);
    // Faults at the start can have kept the node from ever being there.
    match nodes.delete("spot-2", &DeleteOptions::default()).await {
        Err(error) if !error.is_not_found() => panic!("{error}"),
        _ => {}
    }
}
