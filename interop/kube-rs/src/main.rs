//! What programs do with kube-rs, against the cluster of a kubeconfig: `kube-rs KUBECONFIG`.
//!
//! Every check is a function; the first that fails ends the run. Objects are in a namespace of its own.

mod objects;
mod pods;
mod server;
mod watches;

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Error, Resource};
use serde_json::{Value, json};

const NAMESPACE: &str = "kube-rs";
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

type Check = fn(Client) -> Pin<Box<dyn Future<Output = Result<()>>>>;

const CHECKS: &[(&str, Check)] = &[
    ("knows the server", |client| Box::pin(server::knows_the_server(client))),
    ("writes and reads", |client| Box::pin(objects::writes_and_reads(client))),
    ("patches", |client| Box::pin(objects::patches(client))),
    ("applies", |client| Box::pin(objects::applies(client))),
    ("lists", |client| Box::pin(objects::lists(client))),
    ("deletes", |client| Box::pin(objects::deletes(client))),
    ("watches", |client| Box::pin(watches::watches(client))),
    ("reflects", |client| Box::pin(watches::reflects(client))),
    ("runs pods", |client| Box::pin(pods::runs_pods(client))),
    ("knows new kinds", |client| Box::pin(server::knows_new_kinds(client))),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("kube-rs KUBECONFIG")?;
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = object(json!({"metadata": {"name": NAMESPACE}}))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let accounts: Api<ServiceAccount> = ours(&client);
    until("the default account", async || accounts.get_opt("default").await).await?;
    for (name, check) in CHECKS {
        let begun = Instant::now();
        check(client.clone()).await.with_context(|| format!("it {name}"))?;
        println!("   {name} ({:.2} s)", begun.elapsed().as_secs_f64());
    }
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
    until("the namespace to go", async || {
        gone(&namespaces.get_opt(NAMESPACE).await?)
    })
    .await
}

/// The objects of a kind in the namespace of this run.
fn ours<K>(client: &Client) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(client.clone(), NAMESPACE)
}

/// An object as one would write it down.
fn object<K: serde::de::DeserializeOwned>(value: Value) -> Result<K> {
    Ok(serde_json::from_value(value)?)
}

fn config_map(name: &str, data: Value, labels: Value) -> Result<ConfigMap> {
    object(json!({"metadata": {"name": name, "labels": labels}, "data": data}))
}

/// What a ConfigMap holds, for comparison with what it should.
fn data(map: &ConfigMap) -> Value {
    json!(map.data)
}

/// The request must fail in exactly this way.
fn refused<T>(code: u16, reason: &str, answer: Result<T, Error>) -> Result<()> {
    match answer {
        Err(Error::Api(status)) => {
            let found = (status.code, status.reason.as_str());
            ensure!(
                found == (code, reason),
                "{found:?} in place of {code} {reason}: {}",
                status.message
            );
            Ok(())
        }
        Err(error) => Err(error).context(format!("not {code} {reason}")),
        Ok(_) => bail!("it was not refused with {code} {reason}"),
    }
}

fn gone<T>(found: &Option<T>) -> Result<Option<()>, Error> {
    Ok(found.is_none().then_some(()))
}

/// Asks again and again until there is an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>, Error>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!("waited {} s for {what}", PATIENCE.as_secs())
}
