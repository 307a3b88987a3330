//! Components in one process: one that fails or panics is started again and takes nothing else down.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tracing::error;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Runs `component` for ever, pausing longer after each failure.
pub fn supervise<C, F>(name: &'static str, component: F) -> JoinHandle<()>
where
    F: Fn() -> C + Send + 'static,
    C: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    tokio::spawn(async move {
        let mut pause = FIRST_PAUSE;
        loop {
            match AssertUnwindSafe(component()).catch_unwind().await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error!(
                    component = name,
                    error = format!("{error:#}"),
                    "Component failed; restarting it"
                ),
                Err(_) => error!(component = name, "Component panicked; restarting it"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    })
}
