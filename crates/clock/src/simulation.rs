//! Time and dice of a simulation: of one thread, on which one current-thread runtime with paused time runs everything.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::time::Duration;

use tokio::time::Instant;

/// When every simulation begins: 2026-01-01T00:00:00Z.
pub const EPOCH: Duration = Duration::from_secs(1_767_225_600);

thread_local! {
    static CURRENT: RefCell<Option<World>> = const { RefCell::new(None) };
}

struct World {
    begun: Instant,
    state: u64,
}

/// While it lives, its thread is simulated.
pub struct Simulated {
    // What it changes belongs to the thread that made it.
    _not_send: PhantomData<*const ()>,
}

/// Begins a simulation on this thread, inside of a runtime whose time is paused.
pub fn begin(seed: u64) -> Simulated {
    let begun = Instant::now();
    CURRENT.set(Some(World { begun, state: seed }));
    Simulated { _not_send: PhantomData }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

pub(crate) fn since_epoch() -> Option<Duration> {
    CURRENT.with_borrow(|current| current.as_ref().map(|world| EPOCH + world.begun.elapsed()))
}

pub(crate) fn random_bytes() -> Option<[u8; 16]> {
    CURRENT.with_borrow_mut(|current| {
        let world = current.as_mut()?;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&world.next().to_le_bytes());
        bytes[8..].copy_from_slice(&world.next().to_le_bytes());
        Some(bytes)
    })
}

impl World {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_random_numbers_of_its_thread() {
        let draw = |seed| {
            let _simulated = begin(seed);
            (crate::uid(), crate::below(1000), crate::fraction())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let simulated = begin(1);
        assert!(crate::since_epoch().abs_diff(EPOCH) < Duration::from_secs(60));
        drop(simulated);
        assert_ne!(crate::uid(), draw(1).0);
    }
}
