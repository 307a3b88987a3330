//! Pauses between attempts: doubling up to a bound, spread so that many clients do not return at once.

use std::time::Duration;

/// How long to wait before each attempt after a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    bound: Duration,
}

impl Backoff {
    pub const fn new(first: Duration, bound: Duration) -> Backoff {
        Backoff { first, bound }
    }

    /// The exact pause after `failures` earlier pauses.
    pub fn exact(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1u32 << failures.min(30)).min(self.bound)
    }

    /// The pause with up to half of it added at random.
    pub fn wait(&self, failures: u32) -> Duration {
        jitter(self.exact(failures))
    }
}

/// `duration` plus up to half of it.
pub(crate) fn jitter(duration: Duration) -> Duration {
    duration + duration.mul_f64(clock::fraction() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_bound() {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let pauses: Vec<u128> = (0..6).map(|failures| backoff.exact(failures).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(backoff.exact(u32::MAX), Duration::from_secs(1));
        let wait = backoff.wait(5);
        assert!(wait >= Duration::from_secs(1) && wait <= Duration::from_millis(1500));
    }
}
