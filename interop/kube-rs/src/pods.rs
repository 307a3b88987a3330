//! Containers: a Job to its end, a pod with logs, a command in it and a port of it.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, DeleteParams, LogParams, PostParams};
use kube::runtime::{conditions, wait::await_condition};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::{PATIENCE, object, ours, until};

const POD: &str = "web";
const PORT: u16 = 8080;

pub async fn runs_pods(client: Client) -> Result<()> {
    let pods: Api<Pod> = ours(&client);
    let pod = object(json!({
        "metadata": {"name": POD},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "web", "image": "karve/builtin", "args": ["serve", "--port", PORT.to_string()]}],
        },
    }))?;
    let made = pods.create(&PostParams::default(), &pod).await?;
    timeout(
        PATIENCE,
        await_condition(pods.clone(), POD, conditions::is_pod_running()),
    )
    .await??;
    until("the log", async || {
        let log = pods.logs(POD, &LogParams::default()).await?;
        Ok(log.contains(&PORT.to_string()).then_some(()))
    })
    .await?;
    execs(&pods).await?;
    forwards(&pods).await?;
    let uid = made.uid().context("a pod has an uid")?;
    pods.delete(POD, &DeleteParams::default()).await?;
    timeout(
        PATIENCE,
        await_condition(pods.clone(), POD, conditions::is_deleted(&uid)),
    )
    .await??;
    Ok(())
}

async fn execs(pods: &Api<Pod>) -> Result<()> {
    let mut process = pods
        .exec(POD, ["/karve", "--version"], &AttachParams::default())
        .await?;
    let status = process.take_status().context("it ends with a status")?;
    let mut said = String::new();
    process
        .stdout()
        .context("it has an output")?
        .read_to_string(&mut said)
        .await?;
    ensure!(said.starts_with("karve"), "the command said {said:?}");
    let status = status.await.context("there is a status")?;
    ensure!(
        status.status.as_deref() == Some("Success"),
        "the command ended with {status:?}"
    );

    let mut failing = pods
        .exec(POD, ["/karve", "no-such-command"], &AttachParams::default())
        .await?;
    let status = failing
        .take_status()
        .context("it ends with a status")?
        .await
        .context("there is a status")?;
    ensure!(
        status.reason.as_deref() == Some("NonZeroExitCode"),
        "the command ended with {status:?}"
    );
    Ok(())
}

async fn forwards(pods: &Api<Pod>) -> Result<()> {
    let mut forwarded = pods.portforward(POD, &[PORT]).await?;
    let mut stream = forwarded.take_stream(PORT).context("the port has a stream")?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await??;
    let answer = String::from_utf8_lossy(&answer);
    ensure!(answer.starts_with("HTTP/1.1 200"), "the port answered {answer:?}");
    Ok(())
}
