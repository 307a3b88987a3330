//! The server on one core and its load on another, so that neither takes the other's time.

use anyhow::Result;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

#[derive(Clone, Copy)]
pub enum Role {
    Server = 0,
    Load = 1,
}

/// Does something on the core of a role. Processes that are started in it stay there.
pub fn on<T>(role: Role, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let this_thread = Pid::from_raw(0);
    let before = sched_getaffinity(this_thread)?;
    if let Some(core) = cores(&before).get(role as usize).filter(|_| cores(&before).len() > 1) {
        let mut one = CpuSet::new();
        one.set(*core)?;
        sched_setaffinity(this_thread, &one)?;
    }
    let result = act();
    sched_setaffinity(this_thread, &before)?;
    result
}

fn cores(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::count())
        .filter(|core| set.is_set(*core).unwrap_or(false))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_cores_of_their_own_where_there_are_two() {
        let current = || cores(&sched_getaffinity(Pid::from_raw(0)).unwrap());
        let all = current();
        let server = on(Role::Server, || Ok(current())).unwrap();
        let load = on(Role::Load, || Ok(current())).unwrap();
        if all.len() > 1 {
            assert_eq!((server, load), (vec![all[0]], vec![all[1]]));
        }
        assert_eq!(current(), all);
    }
}
