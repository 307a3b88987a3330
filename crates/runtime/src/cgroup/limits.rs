//! Which cgroup files get which values for a container's limits. No IO.

use crate::spec::Limits;

/// One value for one file of a cgroup.
#[derive(Debug, PartialEq, Eq)]
pub struct Write {
    pub controller: &'static str,
    pub file: String,
    pub value: String,
    /// A file that some kernels are built without, and whose absence takes nothing away from the container.
    pub optional: bool,
}

/// The CPU period that a quota refers to when none is given.
const DEFAULT_PERIOD_US: u64 = 100_000;

fn write(controller: &'static str, file: impl Into<String>, value: impl ToString) -> Write {
    Write {
        controller,
        file: file.into(),
        value: value.to_string(),
        optional: false,
    }
}

fn optional(write: Write) -> Write {
    Write {
        optional: true,
        ..write
    }
}

/// The values for version 1.
pub fn legacy(limits: &Limits) -> Vec<Write> {
    let mut writes = Vec::new();
    writes.extend(limits.cpu_shares.map(|shares| write("cpu", "cpu.shares", shares)));
    writes.extend(
        limits
            .cpu_period_us
            .map(|period| write("cpu", "cpu.cfs_period_us", period)),
    );
    writes.extend(limits.cpu_quota_us.map(|quota| write("cpu", "cpu.cfs_quota_us", quota)));
    writes.extend(
        limits
            .memory_bytes
            .map(|bytes| write("memory", "memory.limit_in_bytes", bytes)),
    );
    let swap = limits
        .memory_swap_bytes
        .map(|bytes| write("memory", "memory.memsw.limit_in_bytes", bytes));
    writes.extend(swap.map(optional));
    writes.extend(limits.pids.map(|pids| write("pids", "pids.max", or_max(pids))));
    writes.extend(
        limits
            .cpuset_cpus
            .as_ref()
            .map(|cpus| write("cpuset", "cpuset.cpus", cpus)),
    );
    writes.extend(
        limits
            .cpuset_mems
            .as_ref()
            .map(|mems| write("cpuset", "cpuset.mems", mems)),
    );
    for (size, bytes) in &limits.hugepages {
        writes.push(optional(write(
            "hugetlb",
            format!("hugetlb.{size}.limit_in_bytes"),
            bytes,
        )));
    }
    writes
}

/// The values for version 2.
pub fn unified(limits: &Limits) -> Vec<Write> {
    let mut writes = Vec::new();
    writes.extend(
        limits
            .cpu_shares
            .map(|shares| write("cpu", "cpu.weight", cpu_weight(shares))),
    );
    if limits.cpu_quota_us.is_some() || limits.cpu_period_us.is_some() {
        let quota = or_max(limits.cpu_quota_us.unwrap_or(-1));
        let period = limits.cpu_period_us.unwrap_or(DEFAULT_PERIOD_US);
        writes.push(write("cpu", "cpu.max", format!("{quota} {period}")));
    }
    writes.extend(
        limits
            .memory_bytes
            .map(|bytes| write("memory", "memory.max", or_max(bytes))),
    );
    if let (Some(total), Some(memory)) = (limits.memory_swap_bytes, limits.memory_bytes) {
        // Version 2 counts swap by itself.
        let swap = if total < 0 {
            "max".to_owned()
        } else {
            (total - memory).max(0).to_string()
        };
        writes.push(optional(write("memory", "memory.swap.max", swap)));
    }
    writes.extend(limits.pids.map(|pids| write("pids", "pids.max", or_max(pids))));
    writes.extend(
        limits
            .cpuset_cpus
            .as_ref()
            .map(|cpus| write("cpuset", "cpuset.cpus", cpus)),
    );
    writes.extend(
        limits
            .cpuset_mems
            .as_ref()
            .map(|mems| write("cpuset", "cpuset.mems", mems)),
    );
    for (size, bytes) in &limits.hugepages {
        writes.push(optional(write("hugetlb", format!("hugetlb.{size}.max"), bytes)));
    }
    for (file, value) in &limits.unified {
        writes.push(write("unified", file.clone(), value));
    }
    writes
}

/// Version 2's weight, 1 to 10000, for version 1's shares, 2 to 262144.
fn cpu_weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

fn or_max(value: i64) -> String {
    if value < 0 { "max".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(limits: &Limits, expect: Expect) {
        let show = |title: &str, writes: Vec<Write>| -> String {
            let lines = writes.iter().map(|w| format!("  {} = {}\n", w.file, w.value));
            format!("{title}\n{}", lines.collect::<String>())
        };
        expect.assert_eq(&(show("v1", legacy(limits)) + &show("v2", unified(limits))));
    }

    #[test]
    fn a_burstable_container() {
        let limits = Limits {
            cpu_shares: Some(102),
            cpu_quota_us: Some(20_000),
            cpu_period_us: Some(100_000),
            memory_bytes: Some(64 << 20),
            memory_swap_bytes: Some(64 << 20),
            ..Default::default()
        };
        check(
            &limits,
            expect![[r#"
                v1
                  cpu.shares = 102
                  cpu.cfs_period_us = 100000
                  cpu.cfs_quota_us = 20000
                  memory.limit_in_bytes = 67108864
                  memory.memsw.limit_in_bytes = 67108864
                v2
                  cpu.weight = 4
                  cpu.max = 20000 100000
                  memory.max = 67108864
                  memory.swap.max = 0
            "#]],
        );
    }

    #[test]
    fn no_limit_is_said_in_each_versions_words() {
        let limits = Limits {
            cpu_quota_us: Some(-1),
            memory_bytes: Some(-1),
            pids: Some(-1),
            ..Default::default()
        };
        check(
            &limits,
            expect![[r#"
                v1
                  cpu.cfs_quota_us = -1
                  memory.limit_in_bytes = -1
                  pids.max = max
                v2
                  cpu.max = max 100000
                  memory.max = max
                  pids.max = max
            "#]],
        );
    }

    #[test]
    fn weights_span_the_whole_range() {
        assert_eq!([2, 1024, 262_144].map(cpu_weight), [1, 39, 10_000]);
    }
}
