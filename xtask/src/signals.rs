//! Ending in order when the user interrupts: what was started is stopped by its guards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// How often a wait looks up.
const STEP: Duration = Duration::from_millis(20);

/// Takes SIGINT and SIGTERM. The second one ends this process at once.
pub fn install() -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESETHAND, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is safe in a signal handler.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

extern "C" fn note(_: std::ffi::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Fails once the user has interrupted.
pub fn check() -> Result<()> {
    ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

/// Sleeps unless interrupted.
pub fn sleep(span: Duration) -> Result<()> {
    let until = Instant::now() + span;
    loop {
        check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(STEP));
    }
}

/// Asks until there is an answer. `what` completes the sentence "waited … s for …".
pub fn wait_for<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Option<T>) -> Result<T> {
    let until = Instant::now() + patience;
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if Instant::now() >= until {
            bail!("waited {} s for {what}", patience.as_secs());
        }
        sleep(STEP)?;
    }
}
