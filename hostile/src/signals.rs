//! Ending in order when somebody interrupts: the cluster is taken down by its guard.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// How often a wait asks again.
const STEP: Duration = Duration::from_millis(20);

pub fn install() -> Result<()> {
    on_end(note)
}

/// Calls a function when somebody asks the process to end.
pub fn on_end(handler: extern "C" fn(std::ffi::c_int)) -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handlers only change an atomic or exit, which are safe in a signal handler.
        let former = unsafe { libc::signal(signal, handler as libc::sighandler_t) };
        ensure!(former != libc::SIG_ERR, "cannot handle signal {signal}");
    }
    Ok(())
}

extern "C" fn note(_signal: std::ffi::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

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
pub fn wait_for<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let until = Instant::now() + patience;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() >= until {
            bail!("waited {} s for {what}", patience.as_secs());
        }
        sleep(STEP)?;
    }
}
