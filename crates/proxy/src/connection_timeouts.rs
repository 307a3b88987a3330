//! How long the kernel remembers connections that only one side has closed.
//!
//! After the kernel's own minute a connection through a Service could no longer be closed by the other side. kube-proxy
//! sets an hour; this does it where the machine has less, and leaves longer times alone.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Of this network namespace.
const CLOSE_WAIT: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait";

/// Raises the time. A machine that does not allow it works on, so that this is only told.
pub fn raise_close_wait(at_least: Duration) {
    match raise(Path::new(CLOSE_WAIT), at_least.as_secs()) {
        Ok(Some(before)) => {
            tracing::info!(
                before_s = before,
                now_s = at_least.as_secs(),
                "Raised the timeout of half-closed connections"
            );
        }
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(path = CLOSE_WAIT, %error, "Failed to raise the timeout of half-closed connections");
        }
    }
}

/// What was there, if that was less.
fn raise(path: &Path, at_least: u64) -> io::Result<Option<u64>> {
    let before: u64 = fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)?;
    if before >= at_least {
        return Ok(None);
    }
    fs::write(path, at_least.to_string())?;
    Ok(Some(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_raised_and_never_lowered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seconds");
        fs::write(&path, "60\n").unwrap();
        assert_eq!(raise(&path, 3600).unwrap(), Some(60));
        assert_eq!(fs::read_to_string(&path).unwrap(), "3600");
        assert_eq!(raise(&path, 60).unwrap(), None);
        assert_eq!(fs::read_to_string(&path).unwrap(), "3600");
        fs::write(&path, "soon").unwrap();
        assert!(raise(&path, 60).is_err());
        assert!(raise(&dir.path().join("none"), 60).is_err());
    }
}
