//! A plain watch, and kube-rs' own watcher and reflector with both ways to begin.

use std::pin::pin;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::{NAMESPACE, PATIENCE, config_map, data, ours};

/// Creates, changes and deletes one object.
async fn change(maps: &Api<ConfigMap>, name: &str) -> Result<()> {
    maps.create(
        &PostParams::default(),
        &config_map(name, json!({}), json!({"watch": "yes"}))?,
    )
    .await?;
    maps.patch(
        name,
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"a": "1"}})),
    )
    .await?;
    maps.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

pub async fn watches(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = ours(&client);
    let since = maps
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version
        .context("a list has a version")?;
    change(&maps, "seen").await?;
    let how = WatchParams::default()
        .labels("watch=yes")
        .timeout(PATIENCE.as_secs() as u32);
    let mut events = pin!(maps.watch(&how, &since).await?);
    let mut seen = Vec::new();
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(map) => seen.push(("added", data(&map))),
            WatchEvent::Modified(map) => seen.push(("modified", data(&map))),
            WatchEvent::Deleted(map) => {
                seen.push(("deleted", data(&map)));
                break;
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => bail!("the watch failed: {error}"),
        }
    }
    let one = json!({"a": "1"});
    let wanted = [("added", json!(null)), ("modified", one.clone()), ("deleted", one)];
    ensure!(seen == wanted, "seen were {seen:?}");
    let mut refused = pin!(maps.watch(&how, "1").await?);
    match refused.try_next().await {
        Ok(Some(WatchEvent::Error(error))) => ensure!(error.code == 410, "an old version is {error}"),
        // A young store still has its whole history.
        Ok(_) => {}
        Err(error) => bail!("a watch of old ended with {error}"),
    }
    Ok(())
}

pub async fn reflects(client: Client) -> Result<()> {
    let from_pages = watcher::Config::default().labels("watch=yes").page_size(2);
    reflect(&client, from_pages)
        .await
        .context("beginning with pages of a list")?;
    let from_stream = watcher::Config::default().labels("watch=yes").streaming_lists();
    reflect(&client, from_stream).await.context("beginning with a stream")
}

/// A store that a watcher fills must have what is there, and follow each change.
async fn reflect(client: &Client, how: watcher::Config) -> Result<()> {
    let maps: Api<ConfigMap> = ours(client);
    for number in 0..5 {
        let map = config_map(&format!("mirrored-{number}"), json!({}), json!({"watch": "yes"}))?;
        maps.create(&PostParams::default(), &map).await?;
    }
    let (store, writer) = reflector::store();
    let mut events = watcher(maps.clone(), how).default_backoff().reflect(writer).boxed();
    while !matches!(
        events.try_next().await?.context("the watcher ended")?,
        watcher::Event::InitDone
    ) {}
    ensure!(store.state().len() == 5, "the store has {}", store.state().len());

    maps.patch(
        "mirrored-3",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"a": "1"}})),
    )
    .await?;
    let watcher::Event::Apply(changed) = events.try_next().await?.context("the watcher ended")? else {
        bail!("a change was not one");
    };
    ensure!(changed.name_any() == "mirrored-3", "{} changed", changed.name_any());
    let kept = store
        .get(&ObjectRef::new("mirrored-3").within(NAMESPACE))
        .context("it is in the store")?;
    ensure!(data(&kept) == json!({"a": "1"}), "the store has {kept:?}");

    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("watch=yes"))
        .await?;
    while !store.state().is_empty() {
        let event = events.try_next().await?.context("the watcher ended")?;
        ensure!(matches!(event, watcher::Event::Delete(_)), "a deletion was {event:?}");
    }
    Ok(())
}
