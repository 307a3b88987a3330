//! Ending in order when the user interrupts: what was started is stopped by its guards.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// When the first interrupt came, by the kernel's clock in milliseconds; zero before.
static INTERRUPTED: AtomicI64 = AtomicI64::new(0);

/// How often a wait looks up.
const STEP: Duration = Duration::from_millis(20);
/// Interrupts closer together than this are one: timeout(1) sends its signal to the process and then to its group.
const AGAIN_MS: i64 = 1000;

/// Takes what asks a program to end. What comes again after a while ends this process at once.
pub fn install() -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only reads a clock, changes an atomic and exits, which are safe in a signal handler.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

extern "C" fn note(signal: std::ffi::c_int) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to the value that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let now = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
    let first = INTERRUPTED.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|first| now - first >= AGAIN_MS) {
        // SAFETY: nothing is run on the way out.
        unsafe { libc::_exit(128 + signal) };
    }
}

/// Fails once the user has interrupted.
pub fn check() -> Result<()> {
    ensure!(INTERRUPTED.load(Ordering::Relaxed) == 0, "interrupted");
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
