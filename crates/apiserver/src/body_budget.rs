//! How much memory the bodies of large requests may take together: what does not fit is refused, before an allocation
//! fails and takes the process with it.

use std::fs;
use std::sync::{Arc, LazyLock};

use api::{Error, Reason};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies up to this length are not counted: seats bound how many there are.
pub const SMALL_BYTES: usize = 64 << 10;

/// An object in memory takes many times the room of its text, more than once on its way.
const SHARE_OF_MEMORY: u64 = 64;
const LEAST_BYTES: u64 = 8 << 20;
const MOST_BYTES: u64 = 64 << 20;

static SHARED: LazyLock<Budget> = LazyLock::new(|| Budget::of_memory(memory_bytes()));

#[derive(Clone)]
pub struct Budget(Arc<Semaphore>);

/// A body's share, given back when it is dropped.
#[derive(Default)]
pub struct Share(Option<OwnedSemaphorePermit>);

impl Budget {
    /// That of this process.
    pub fn shared() -> Budget {
        SHARED.clone()
    }

    fn of_memory(bytes: Option<u64>) -> Budget {
        let share = bytes.map_or(MOST_BYTES, |bytes| bytes / SHARE_OF_MEMORY);
        Budget::new(share.clamp(LEAST_BYTES, MOST_BYTES))
    }

    fn new(bytes: u64) -> Budget {
        Budget(Arc::new(Semaphore::new((bytes >> 10) as usize)))
    }

    /// Lets a body grow by so many bytes to `length`.
    pub fn grow(&self, share: &mut Share, length: usize, bytes: usize) -> Result<(), Error> {
        if length <= SMALL_BYTES {
            return Ok(());
        }
        let kibibytes = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        let more = self.0.clone().try_acquire_many_owned(kibibytes).map_err(|_| {
            Error::new(Reason::TooManyRequests, "Too many requests, please try again later.").retry_after(1)
        })?;
        match &mut share.0 {
            Some(held) => held.merge(more),
            None => share.0 = Some(more),
        }
        Ok(())
    }
}

/// The memory that this process may use, as far as the machine and its cgroup say.
fn memory_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap_or_default();
    let limit = fs::read_to_string(format!("/sys/fs/cgroup/{group}/memory.max"));
    let limit = limit.ok().and_then(|text| text.trim().parse::<u64>().ok());
    total_memory(&meminfo).into_iter().chain(limit).min()
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_share_a_budget_and_small_ones_need_none() {
        let budget = Budget::new(4 << 20);
        let (mut first, mut second) = (Share::default(), Share::default());
        let three = 3 << 20;
        budget.grow(&mut first, three, three).unwrap();
        let refused = budget.grow(&mut second, three, three).unwrap_err();
        assert_eq!(refused.reason, Reason::TooManyRequests);
        budget.grow(&mut second, SMALL_BYTES, SMALL_BYTES).unwrap();
        drop(first);
        budget.grow(&mut second, three, three).unwrap();
    }

    #[test]
    fn the_budget_follows_the_memory_there_is() {
        let kibibytes = |bytes| Budget::of_memory(bytes).0.available_permits();
        assert_eq!(kibibytes(Some(256 << 20)), 8 << 10);
        assert_eq!(kibibytes(Some(2 << 30)), 32 << 10);
        assert_eq!(kibibytes(Some(64 << 30)), 64 << 10);
        assert_eq!(kibibytes(None), 64 << 10);
        assert_eq!(
            total_memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"),
            Some(16 << 20)
        );
    }
}
