//! The wall clock and the dice: the one place that asks the system what time it is and for numbers that nobody can
//! foresee.
//!
//! Everything that is written into an object or decides what happens next comes through here: [`since_epoch`] for
//! timestamps, [`uid`], [`random_bytes`] and [`fraction`] for names, addresses and jitter. Pauses and deadlines are
//! `tokio::time`'s, whose clock a test can stop. With the feature `simulation`, which only tests have, the thread that
//! calls [`simulation::begin`] gets its wall time from tokio's clock and its random numbers from a seed.
//!
//! Keys, nonces and tokens are not dice: they come from `ring`, which no test can foresee either. This crate stands
//! above all others and depends on none of them; a test in `xtask/tests/clock.rs` lists who may ask the system directly.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(feature = "simulation")]
pub mod simulation;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The wall time since the Unix epoch; zero on a machine whose clock stands before it.
pub fn since_epoch() -> Duration {
    #[cfg(feature = "simulation")]
    if let Some(since) = simulation::since_epoch() {
        return since;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Whole seconds since the Unix epoch.
pub fn unix_seconds() -> i64 {
    i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX)
}

/// A random (version 4) UUID, such as the uid of an object.
pub fn uid() -> String {
    random_uuid().to_string()
}

/// Up to 16 random bytes; six bits of them are spent on what makes them a UUID, in bytes 6 and 8.
pub fn random_bytes() -> [u8; 16] {
    random_uuid().into_bytes()
}

/// A number from 0 up to, but not including, `bound`; 0 where the bound is 0.
pub fn below(bound: u32) -> u32 {
    (random_uuid().as_u128() % u128::from(bound.max(1))) as u32
}

/// A number from 0 up to 1, to spread load with.
pub fn fraction() -> f64 {
    let (high, low) = random_uuid().as_u64_pair();
    ((high ^ low.rotate_left(32)) >> 11) as f64 / (1u64 << 53) as f64
}

fn random_uuid() -> uuid::Uuid {
    #[cfg(feature = "simulation")]
    if let Some(bytes) = simulation::random_bytes() {
        return uuid::Builder::from_random_bytes(bytes).into_uuid();
    }
    uuid::Uuid::new_v4()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_the_systems_and_the_dice_fall_anew() {
        let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(since_epoch().abs_diff(system) < Duration::from_secs(60));
        assert_ne!(uid(), uid());
        assert_eq!(uid().len(), 36);
        assert!((0..100).all(|_| below(7) < 7 && (0.0..1.0).contains(&fraction())));
        assert_eq!(below(0), 0);
        let spread: f64 = (0..1000).map(|_| fraction()).sum();
        assert!((300.0..700.0).contains(&spread), "{spread}");
    }
}
