//! Carrying out a preemption: the victims are told why and deleted.

use api::Value;
use api::kinds::pod::POD;
use client::when::Moment;
use client::{Client, DeleteOptions, EventRecorder, EventType, Patch};
use futures_util::{TryStreamExt, stream};
use serde::de::IgnoredAny;
use serde_json::json;

use crate::framework::Preemption;
use crate::pod::Pod;

/// Victims that are deleted at the same time.
const AT_ONCE: usize = 16;

/// Makes all victims leave that are not leaving already.
pub async fn carry_out(
    client: &Client,
    recorder: &EventRecorder,
    pod: &Pod,
    preemption: &Preemption,
) -> client::Result<()> {
    let victims = preemption
        .victims
        .iter()
        .filter(|victim| !victim.metadata.is_deleting());
    stream::iter(victims.map(Ok))
        .try_for_each_concurrent(AT_ONCE, |victim| async move {
            evict(client, pod, victim).await?;
            let message = format!("Preempted by pod {} on node {}", pod.uid(), preemption.node);
            recorder.event(&victim.reference(), EventType::Normal, "Preempted", message);
            Ok(())
        })
        .await
}

/// Takes back the nomination of a pod that lost its place to one of higher priority.
pub async fn clear_nomination(client: &Client, pod: &Pod) {
    if let Err(error) = patch_status(client, pod, json!({"nominatedNodeName": null})).await {
        tracing::warn!(pod = pod.path(), %error, "could not take back the nomination of the pod");
    }
}

/// Patches the status of a pod, if there is anything to change and the pod is still the same.
pub async fn patch_status(client: &Client, pod: &Pod, status: Value) -> client::Result<()> {
    if status.as_object().is_some_and(|fields| fields.is_empty()) {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let pods = client
        .resource(&POD)
        .in_namespace(pod.metadata.namespace.clone())
        .subresource("status");
    let patched = pods
        .patch::<IgnoredAny>(&pod.metadata.name, Patch::strategic(&patch))
        .await;
    unless_gone(patched.map(drop))
}

async fn evict(client: &Client, pod: &Pod, victim: &Pod) -> client::Result<()> {
    let scheduler = match pod.scheduler_name.as_str() {
        "" => "default-scheduler",
        name => name,
    };
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": Moment::now().to_time(),
    });
    patch_status(client, victim, json!({"conditions": [condition]})).await?;
    let pods = client.resource(&POD).in_namespace(victim.metadata.namespace.clone());
    let deleted = pods
        .delete(&victim.metadata.name, &DeleteOptions::uid(victim.uid()))
        .await;
    unless_gone(deleted.map(drop))
}

/// What is gone, or has been replaced under its name, need not be changed.
fn unless_gone(result: client::Result<()>) -> client::Result<()> {
    match result {
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        other => other,
    }
}
