//! Objects without anything behind them: create, replace, every patch, pages of a list, delete.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::{config_map, data, gone, object, ours, refused, until};

pub async fn writes_and_reads(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = ours(&client);
    let post = PostParams::default();
    let one = config_map("one", json!({"a": "1"}), json!({}))?;
    let made = maps.create(&post, &one).await?;
    ensure!(
        made.uid().is_some() && made.creation_timestamp().is_some(),
        "made {made:?}"
    );
    refused(409, "AlreadyExists", maps.create(&post, &one).await)?;
    let misnamed = config_map("Not_A_Name", json!({}), json!({}))?;
    refused(422, "Invalid", maps.create(&post, &misnamed).await)?;
    refused(404, "NotFound", maps.get("none").await)?;

    let mut stale = maps.get("one").await?;
    stale.data.get_or_insert_default().insert("b".into(), "2".into());
    let fresh = maps.replace("one", &post, &stale).await?;
    ensure!(data(&fresh) == json!({"a": "1", "b": "2"}), "replaced {fresh:?}");
    refused(409, "Conflict", maps.replace("one", &post, &stale).await)?;

    let mut entry = maps
        .entry("one")
        .await?
        .and_modify(|map| map.data = Some([("c".to_owned(), "3".to_owned())].into()))
        .or_insert(ConfigMap::default);
    entry.commit(&post).await?;
    let now = maps.get("one").await?;
    ensure!(data(&now) == json!({"c": "3"}), "the entry made {now:?}");

    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let answer = maps.create(&dry, &config_map("dry", json!({}), json!({}))?).await?;
    ensure!(answer.uid().is_some(), "a dry run answers as if");
    refused(404, "NotFound", maps.get("dry").await)?;

    let secrets: Api<Secret> = ours(&client);
    let secret: Secret = object(json!({"metadata": {"generateName": "word-"}, "stringData": {"word": "open"}}))?;
    let secret = secrets.create(&post, &secret).await?;
    ensure!(secret.name_any().starts_with("word-"), "named {}", secret.name_any());
    let held = secret.data.and_then(|data| data.get("word").cloned());
    ensure!(held.context("a word is held")?.0 == b"open", "the word is another");
    Ok(())
}

pub async fn patches(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = ours(&client);
    maps.create(
        &PostParams::default(),
        &config_map("patched", json!({"a": "1", "b": "2"}), json!({}))?,
    )
    .await?;
    let how = PatchParams::default();
    let now = maps
        .patch("patched", &how, &Patch::Merge(json!({"data": {"a": null, "c": "3"}})))
        .await?;
    ensure!(data(&now) == json!({"b": "2", "c": "3"}), "the merge made {now:?}");
    let operations = serde_json::from_value(json!([
        {"op": "test", "path": "/data/b", "value": "2"},
        {"op": "remove", "path": "/data/b"},
    ]))?;
    let now = maps.patch("patched", &how, &Patch::Json::<()>(operations)).await?;
    ensure!(data(&now) == json!({"c": "3"}), "the operations made {now:?}");

    let deployments: Api<Deployment> = ours(&client);
    deployments
        .create(&PostParams::default(), &deployment(&["one", "two"])?)
        .await?;
    let one = json!([{"name": "one", "env": [{"name": "A", "value": "1"}]}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": one}}}});
    let now = deployments.patch("patched", &how, &Patch::Strategic(patch)).await?;
    let spec = now
        .spec
        .and_then(|spec| spec.template.spec)
        .context("the deployment has pods")?;
    let names: Vec<&str> = spec
        .containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    ensure!(names == ["one", "two"], "the strategic merge kept {names:?}");
    let environment = json!(spec.containers[0].env);
    ensure!(
        environment == json!([{"name": "A", "value": "1"}]),
        "it set {environment}"
    );

    let scale = deployments
        .patch_scale("patched", &how, &Patch::Merge(json!({"spec": {"replicas": 1}})))
        .await?;
    ensure!(
        scale.spec.and_then(|spec| spec.replicas) == Some(1),
        "the scale is patched"
    );
    deployments.delete("patched", &DeleteParams::background()).await?;
    Ok(())
}

fn deployment(containers: &[&str]) -> Result<Deployment> {
    let containers: Vec<Value> = containers
        .iter()
        .map(|name| json!({"name": name, "image": "karve/builtin"}))
        .collect();
    object(json!({
        "metadata": {"name": "patched"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "patched"}},
            "template": {
                "metadata": {"labels": {"app": "patched"}},
                // No node takes its pods.
                "spec": {"containers": containers, "nodeSelector": {"no": "such-node"}},
            },
        },
    }))
}

pub async fn applies(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = ours(&client);
    let applied = |data: Value| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data});
        Patch::Apply(map)
    };
    let [one, other] = ["one", "other"].map(PatchParams::apply);
    let now = maps
        .patch("applied", &one, &applied(json!({"a": "1", "b": "2"})))
        .await?;
    ensure!(
        data(&now) == json!({"a": "1", "b": "2"}),
        "the first apply made {now:?}"
    );
    let now = maps.patch("applied", &other, &applied(json!({"c": "3"}))).await?;
    ensure!(
        data(&now) == json!({"a": "1", "b": "2", "c": "3"}),
        "the second made {now:?}"
    );
    refused(
        409,
        "Conflict",
        maps.patch("applied", &other, &applied(json!({"a": "4"}))).await,
    )?;
    let now = maps
        .patch("applied", &other.force(), &applied(json!({"a": "4"})))
        .await?;
    ensure!(data(&now) == json!({"a": "4", "b": "2"}), "the forced one made {now:?}");
    let now = maps.patch("applied", &one, &applied(json!({}))).await?;
    ensure!(
        data(&now) == json!({"a": "4"}),
        "what is no longer applied stayed: {now:?}"
    );
    let managers: Vec<_> = now
        .managed_fields()
        .iter()
        .filter_map(|entry| entry.manager.as_deref())
        .collect();
    ensure!(managers.contains(&"other"), "managers are {managers:?}");
    Ok(())
}

pub async fn lists(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = ours(&client);
    for number in 0..7 {
        let parity = if number % 2 == 1 { "odd" } else { "even" };
        let item = config_map(
            &format!("item-{number}"),
            json!({}),
            json!({"list": "yes", "parity": parity}),
        )?;
        maps.create(&PostParams::default(), &item).await?;
    }
    let (mut names, mut page) = (Vec::new(), ListParams::default().labels("list").limit(3));
    loop {
        let part = maps.list(&page).await?;
        ensure!(part.items.len() <= 3, "a page has {}", part.items.len());
        names.extend(part.items.iter().map(ResourceExt::name_any));
        match part.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    let all: Vec<String> = (0..7).map(|number| format!("item-{number}")).collect();
    ensure!(names == all, "pages have {names:?}");
    let odd = maps.list(&ListParams::default().labels("parity in (odd)")).await?;
    ensure!(odd.items.len() == 3, "{} are odd", odd.items.len());
    let one = maps
        .list_metadata(&ListParams::default().fields("metadata.name=item-4"))
        .await?;
    let names: Vec<String> = one.items.iter().map(ResourceExt::name_any).collect();
    ensure!(names == ["item-4"], "a field selects {names:?}");
    Ok(())
}

pub async fn deletes(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = ours(&client);
    let other = DeleteParams::default().preconditions(Preconditions {
        uid: Some("00000000-0000-0000-0000-000000000000".into()),
        resource_version: None,
    });
    refused(409, "Conflict", maps.delete("item-0", &other).await)?;
    maps.delete("item-0", &DeleteParams::default()).await?;
    refused(404, "NotFound", maps.delete("item-0", &DeleteParams::default()).await)?;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    maps.delete_collection(&orphan, &ListParams::default().labels("list"))
        .await?;
    until("the collection to go", async || {
        let left = maps.list(&ListParams::default().labels("list")).await?;
        gone(&left.items.first())
    })
    .await
}
