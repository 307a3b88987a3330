//! Lifecycle hooks: what runs right after a container started and right before it ends.

use std::time::Duration;

use cri::v1;

use crate::limits;
use crate::pod::{Handler, HttpGet, PortError};
use crate::probe::Target;
use crate::probe::http::{self, HttpError};

/// Runs a hook; the error says what went wrong.
/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    #[error("the hook did not end within {}", crate::text::go_duration(*.0))]
    Timeout(Duration),
    #[error("failed to run the hook's command: {0}")]
    Exec(#[from] cri::Error),
    #[error("command '{command}' exited with {code}: {output}")]
    Exit { command: String, code: i32, output: String },
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("Get {url:?}: status {status}: {body}")]
    Status { url: String, status: u16, body: String },
    #[error("invalid handler: the hook has no action that this node supports")]
    NoAction,
}

pub async fn run(handler: &Handler, target: &Target, limit: Duration) -> Result<(), HookError> {
    match tokio::time::timeout(limit, perform(handler, target, limit)).await {
        Ok(result) => result,
        Err(_) => Err(HookError::Timeout(limit)),
    }
}

async fn perform(handler: &Handler, target: &Target, limit: Duration) -> Result<(), HookError> {
    if let Some(action) = &handler.exec {
        let request = v1::ExecSyncRequest {
            container_id: target.container_id.clone(),
            cmd: action.command.clone(),
            timeout: limit.as_secs() as i64,
        };
        let answer = target.runtime.exec_sync(request).await?;
        return match answer.exit_code {
            0 => Ok(()),
            code => {
                let output = String::from_utf8_lossy(&[answer.stdout, answer.stderr].concat()).into_owned();
                let output = crate::text::truncate(&output, limits::HOOK_OUTPUT_BYTES).to_owned();
                Err(HookError::Exit {
                    command: action.command.join(" "),
                    code,
                    output,
                })
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
    Err(HookError::NoAction)
}

/// A hook by HTTP has succeeded when it was answered with success.
async fn get(action: &HttpGet, target: &Target, limit: Duration) -> Result<(), HookError> {
    let port = match action.port {
        // Hooks, unlike probes, may leave out the port.
        crate::pod::PortRef::Number(0) => 80,
        ref port => target.container.port(port)?,
    };
    let url = http::url(action, &target.address, port);
    let uri = http::parse(&url)?;
    let fetched = http::fetch(&uri, action, limit).await?;
    match fetched.status {
        200..400 => Ok(()),
        status => Err(HookError::Status {
            url,
            status,
            body: fetched.body,
        }),
    }
}
