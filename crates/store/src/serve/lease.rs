//! Leases: how long the keys that are put with them are to live.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::Status;

/// Leases that may be open at once.
const MAX_LEASES: usize = 1 << 16;

/// A key lives at least this long, or it would be gone before its writer knows of it.
const LEAST: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Leases(Mutex<Table>);

#[derive(Default)]
struct Table {
    ends: HashMap<i64, Instant>,
    last: i64,
}

impl Leases {
    /// Opens a lease; returns its number, the next free one when none is asked for, and its seconds.
    pub fn grant(&self, id: i64, seconds: i64) -> Result<(i64, i64), Status> {
        let now = Instant::now();
        let mut table = self.0.lock();
        table.ends.retain(|_, end| *end > now);
        if table.ends.len() >= MAX_LEASES {
            return Err(Status::resource_exhausted("too many leases are open"));
        }
        let id = match id {
            0 => {
                table.last += 1;
                table.last
            }
            id => id,
        };
        if table.ends.contains_key(&id) {
            return Err(Status::failed_precondition("etcdserver: lease already exists"));
        }
        let seconds = seconds.max(1);
        let end = now.checked_add(Duration::from_secs(seconds as u64));
        let end = end.ok_or_else(|| Status::out_of_range("etcdserver: too large lease TTL"))?;
        table.last = table.last.max(id);
        table.ends.insert(id, end);
        Ok((id, seconds))
    }

    /// How long a key that is put now lives; for ever without a lease.
    pub fn time_left(&self, id: i64) -> Result<Option<Duration>, Status> {
        if id == 0 {
            return Ok(None);
        }
        let end = self.0.lock().ends.get(&id).copied();
        let end = end.ok_or_else(|| Status::not_found("etcdserver: requested lease not found"))?;
        Ok(Some(end.saturating_duration_since(Instant::now()).max(LEAST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_known_by_its_number_until_it_ends() {
        let leases = Leases::default();
        let (first, seconds) = leases.grant(0, 60).unwrap();
        assert_eq!(seconds, 60);
        let left = leases.time_left(first).unwrap().unwrap();
        assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
        assert_eq!(
            leases.grant(first, 5).unwrap_err().code(),
            tonic::Code::FailedPrecondition
        );
        assert_ne!(leases.grant(0, 5).unwrap().0, first);
        assert_eq!(leases.time_left(99).unwrap_err().code(), tonic::Code::NotFound);
        assert_eq!(leases.time_left(0).unwrap(), None);
    }
}
