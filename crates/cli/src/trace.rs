//! `karve trace`: the way of a workload from `apply` to Ready, with true times.

use std::collections::HashSet;
use std::fmt::Write;

use ::trace::Mark;
use anyhow::{Context, Result, bail};
use api::kinds::{deployment::DEPLOYMENT, endpoint_slice::ENDPOINT_SLICE, pod::POD, replica_set::REPLICA_SET};
use api::{ObjectMeta, Resource};
use client::{Client, ListOptions};
use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Named {
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct Marks {
    marks: Vec<Mark>,
}

/// One traced object.
struct Traced {
    /// As marks name it.
    object: String,
    uid: String,
}

/// The marks of a deployment or pod and of everything that was made for it, oldest first.
pub async fn collect(client: &Client, namespace: &str, target: &str) -> Result<Vec<Mark>> {
    let (kind, name) = target
        .split_once('/')
        .context("name what to trace as deployment/NAME or pod/NAME")?;
    let traced = match kind {
        "deployment" | "deployments" | "deploy" => deployment_family(client, namespace, name).await?,
        "pod" | "pods" | "po" => vec![read(client, &POD, namespace, name).await?],
        other => bail!("{other} cannot be traced; name a deployment/NAME or pod/NAME"),
    };
    let uids: HashSet<&str> = traced.iter().map(|traced| traced.uid.as_str()).collect();
    let names: HashSet<&str> = traced.iter().map(|traced| traced.object.as_str()).collect();
    let request = Request::get("/debug/karve/marks").body(bytes::Bytes::new())?;
    let answer = client
        .fetch(request)
        .await
        .context("the API server does not tell its marks")?;
    let mut marks = serde_json::from_slice::<Marks>(&answer)
        .context("the answer is not a list of marks")?
        .marks;
    marks.retain(|mark| match mark.uid.as_str() {
        "" => names.contains(mark.object.as_str()),
        uid => uids.contains(uid),
    });
    Ok(marks)
}

/// The marks for reading at a terminal.
pub fn render(target: &str, marks: &[Mark]) -> String {
    let Some(first) = marks.first() else {
        return format!(
            "no marks of {target}: it was made before the server started, or too long ago to be remembered\n"
        );
    };
    let milliseconds = |mark: &Mark| mark.at_us.saturating_sub(first.at_us) as f64 / 1000.0;
    let mut text = String::new();
    if let Some(ready) = marks
        .iter()
        .filter(|mark| mark.stage == "kubelet/ready")
        .max_by_key(|mark| mark.at_us)
    {
        let _ = writeln!(
            text,
            "{target}: from the request to the last container ready in {:.1} ms",
            milliseconds(ready)
        );
    }
    let mut before = 0.0;
    for mark in marks {
        let at = milliseconds(mark);
        let _ = writeln!(
            text,
            "{at:>10.1} ms  {:>+9.1}  {:<38} {}",
            at - before,
            mark.stage,
            mark.object
        );
        before = at;
    }
    text
}

pub fn render_json(target: &str, marks: &[Mark]) -> Value {
    json!({ "target": target, "marks": marks })
}

async fn deployment_family(client: &Client, namespace: &str, name: &str) -> Result<Vec<Traced>> {
    let mut family = vec![read(client, &DEPLOYMENT, namespace, name).await?];
    let owner = family[0].uid.clone();
    let sets = owned(client, &REPLICA_SET, namespace, &HashSet::from([owner])).await?;
    let owners = sets.iter().map(|set| set.uid.clone()).collect();
    let pods = owned(client, &POD, namespace, &owners).await?;
    family.extend(sets);
    family.extend(pods);
    family.extend(
        all(client, &ENDPOINT_SLICE, namespace)
            .await?
            .into_iter()
            .filter_map(|slice| {
                let service = slice.labels.get("kubernetes.io/service-name")?;
                (service == name).then(|| traced(&ENDPOINT_SLICE, &slice))
            }),
    );
    Ok(family)
}

async fn owned(
    client: &Client,
    resource: &'static Resource,
    namespace: &str,
    owners: &HashSet<String>,
) -> Result<Vec<Traced>> {
    let objects = all(client, resource, namespace).await?;
    let is_owned = |meta: &ObjectMeta| meta.owner_references.iter().any(|owner| owners.contains(&owner.uid));
    Ok(objects
        .iter()
        .filter(|meta| is_owned(meta))
        .map(|meta| traced(resource, meta))
        .collect())
}

async fn all(client: &Client, resource: &'static Resource, namespace: &str) -> Result<Vec<ObjectMeta>> {
    let api = client.resource(resource).in_namespace(namespace);
    let list = api.list::<Named>(&ListOptions::default()).await;
    let list = list.with_context(|| format!("cannot list {}", resource.qualified()))?;
    Ok(list.items.into_iter().map(|named| named.metadata).collect())
}

async fn read(client: &Client, resource: &'static Resource, namespace: &str, name: &str) -> Result<Traced> {
    let found = client
        .resource(resource)
        .in_namespace(namespace)
        .get::<Named>(name)
        .await;
    Ok(traced(
        resource,
        &found
            .with_context(|| format!("cannot read {} {name}", resource.singular))?
            .metadata,
    ))
}

fn traced(resource: &Resource, meta: &ObjectMeta) -> Traced {
    let object = format!("{}/{}/{}", resource.plural, meta.namespace, meta.name);
    Traced {
        object,
        uid: meta.uid.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_shown_with_the_time_since_the_request_and_since_the_one_before() {
        let mark = |at_us, stage: &'static str, object: &str| Mark {
            at_us,
            stage: stage.into(),
            object: object.to_owned(),
            uid: "u".to_owned(),
        };
        let marks = [
            mark(1_000, "apiserver/received", "deployments/default/web"),
            mark(1_500, "apiserver/stored", "deployments/default/web"),
            mark(21_500, "kubelet/ready", "pods/default/web-1"),
        ];
        expect_test::expect![[r#"
            deployment/web: from the request to the last container ready in 20.5 ms
                   0.0 ms       +0.0  apiserver/received                     deployments/default/web
                   0.5 ms       +0.5  apiserver/stored                       deployments/default/web
                  20.5 ms      +20.0  kubelet/ready                          pods/default/web-1
        "#]]
        .assert_eq(&render("deployment/web", &marks));
    }
}
