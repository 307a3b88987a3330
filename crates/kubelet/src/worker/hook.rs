//! Lifecycle hooks: what runs right after a container started and right before it ends.

use std::time::Duration;

use cri::v1;

use crate::limits;
use crate::pod::{Handler, HttpGet};
use crate::probe::{Target, http};

/// Runs a hook; the error says what went wrong.
pub async fn run(handler: &Handler, target: &Target, limit: Duration) -> Result<(), String> {
    match tokio::time::timeout(limit, perform(handler, target, limit)).await {
        Ok(result) => result,
        Err(_) => Err(format!(
            "the hook did not end within {}",
            crate::text::go_duration(limit)
        )),
    }
}

async fn perform(handler: &Handler, target: &Target, limit: Duration) -> Result<(), String> {
    if let Some(action) = &handler.exec {
        let request = v1::ExecSyncRequest {
            container_id: target.container_id.clone(),
            cmd: action.command.clone(),
            timeout: limit.as_secs() as i64,
        };
        let answer = target
            .runtime
            .exec_sync(request)
            .await
            .map_err(|error| error.to_string())?;
        return match answer.exit_code {
            0 => Ok(()),
            code => {
                let output = String::from_utf8_lossy(&[answer.stdout, answer.stderr].concat()).into_owned();
                let output = crate::text::truncate(&output, limits::HOOK_OUTPUT_BYTES).to_owned();
                Err(format!(
                    "command '{}' exited with {code}: {output}",
                    action.command.join(" ")
                ))
            }
        };
    }
    if let Some(action) = &handler.http_get {
        return get(action, target, limit).await;
    }
    if let Some(action) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(action.seconds.max(0) as u64)).await;
        return Ok(());
    }
    Err("invalid handler: the hook has no action this node supports".to_owned())
}

/// A hook by HTTP has succeeded when it was answered with success.
async fn get(action: &HttpGet, target: &Target, limit: Duration) -> Result<(), String> {
    let port = match action.port {
        // Hooks, unlike probes, may leave out the port.
        crate::pod::PortRef::Number(0) => 80,
        ref port => target.container.port(port)?,
    };
    let url = http::url(action, &target.address, port);
    let uri = url.parse().map_err(|error| format!("invalid URL {url:?}: {error}"))?;
    let fetched = http::fetch(&uri, action, limit).await?;
    match fetched.status {
        200..400 => Ok(()),
        status => Err(format!("Get {url:?}: status {status}: {}", fetched.body)),
    }
}
