//! Ending one container: its preStop hook, then its signal, within its grace period.

use std::sync::Arc;
use std::time::Duration;

use cri::v1;
use tokio::time::Instant;

use super::hook;
use crate::limits;
use crate::plan::KillReason;
use crate::pod::{Container, Pod};
use crate::probe::Target;
use crate::shared::Shared;

pub struct Kill {
    pub id: String,
    pub container: String,
    pub grace: Duration,
    pub reason: KillReason,
    /// Where the container can be reached, for its hook.
    pub address: String,
    /// Whether it runs: a container in an unknown state is only stopped.
    pub running: bool,
}

pub async fn run(shared: &Arc<Shared>, pod: &Pod, kill: &Kill) -> cri::Result<()> {
    shared.normal(pod, &kill.container, "Killing", message(kill));
    let begun = Instant::now();
    let spec = pod.container(&kill.container).map(|(_, container)| container);
    if let Some(container) = spec.filter(|_| kill.running && !kill.grace.is_zero()) {
        pre_stop(shared, pod, container, kill).await;
    }
    // A hook may use up the grace period, but not the time a process needs to notice its signal.
    let rest = kill.grace.saturating_sub(begun.elapsed());
    let rest = match kill.grace.is_zero() {
        true => Duration::ZERO,
        false => rest.max(limits::MINIMUM_GRACE.min(kill.grace)),
    };
    let request = v1::StopContainerRequest {
        container_id: kill.id.clone(),
        timeout: rest.as_secs_f64().ceil() as i64,
    };
    match shared.runtime.stop_container(request).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

async fn pre_stop(shared: &Arc<Shared>, pod: &Pod, container: &Container, kill: &Kill) {
    let Some(handler) = &container.lifecycle.pre_stop else {
        return;
    };
    let target = Target {
        runtime: shared.runtime.clone(),
        container: container.clone(),
        container_id: kill.id.clone(),
        address: kill.address.clone(),
    };
    if let Err(error) = hook::run(handler, &target, kill.grace).await {
        tracing::debug!(pod = pod.key(), container = container.name, %error, "a preStop hook failed");
        shared.warning(pod, &container.name, "FailedPreStopHook", "PreStopHook failed");
    }
}

fn message(kill: &Kill) -> String {
    let name = &kill.container;
    match kill.reason {
        KillReason::RestartAll => format!("Container {name} will be restarted, because all containers of the pod are"),
        KillReason::Ending | KillReason::SandboxLost => format!("Stopping container {name}"),
        KillReason::Liveness => format!("Container {name} failed liveness probe, will be restarted"),
        KillReason::Startup => format!("Container {name} failed startup probe, will be restarted"),
        KillReason::DefinitionChanged => format!("Container {name} definition changed, will be restarted"),
        KillReason::Resize => format!("Container {name} resize requires restart"),
        KillReason::UnknownState => {
            format!("Container {name} is in \"unknown\" state, try killing it before restart")
        }
    }
}
