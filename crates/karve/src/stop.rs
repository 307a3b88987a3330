//! Stopping on a signal.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Becomes true at the first SIGTERM or SIGINT.
pub fn on_signal() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let _ = sender.send(true);
    });
    receiver
}
