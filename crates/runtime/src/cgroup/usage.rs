//! What a cgroup has used.

use std::fs;
use std::path::Path;

use super::Layout;

/// Counters of one cgroup; None where its hierarchy does not count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_ns: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Memory less the file cache that can be dropped at once: what eviction and metrics go by.
    pub working_set_bytes: Option<u64>,
    pub rss_bytes: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    /// None when unlimited.
    pub memory_limit_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    pub processes: Option<u64>,
}

impl Usage {
    /// What two cgroups have used together. Together they have no limit.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
        Usage {
            cpu_ns: sum(self.cpu_ns, other.cpu_ns),
            memory_bytes: sum(self.memory_bytes, other.memory_bytes),
            working_set_bytes: sum(self.working_set_bytes, other.working_set_bytes),
            rss_bytes: sum(self.rss_bytes, other.rss_bytes),
            page_faults: sum(self.page_faults, other.page_faults),
            major_page_faults: sum(self.major_page_faults, other.major_page_faults),
            memory_limit_bytes: None,
            swap_bytes: sum(self.swap_bytes, other.swap_bytes),
            processes: sum(self.processes, other.processes),
        }
    }
}

/// Version 1 writes "no limit" as the largest number of whole pages; anything near it is none.
const UNLIMITED: u64 = 1 << 62;

impl Layout {
    pub fn usage(&self, path: &Path) -> Usage {
        let read = |controller: &str, file: &str| {
            self.dir(controller, path)
                .and_then(|dir| fs::read_to_string(dir.join(file)).ok())
                .unwrap_or_default()
        };
        let number = |controller: &str, file: &str| read(controller, file).trim().parse::<u64>().ok();
        let stat = read("memory", "memory.stat");
        let processes = number("pids", "pids.current");
        if self.is_unified() {
            let memory_bytes = number("memory", "memory.current");
            return Usage {
                cpu_ns: keyed(&read("cpu", "cpu.stat"), "usage_usec").map(|us| us * 1000),
                memory_bytes,
                working_set_bytes: working_set(memory_bytes, keyed(&stat, "inactive_file")),
                rss_bytes: keyed(&stat, "anon"),
                page_faults: keyed(&stat, "pgfault"),
                major_page_faults: keyed(&stat, "pgmajfault"),
                memory_limit_bytes: number("memory", "memory.max"),
                swap_bytes: number("memory", "memory.swap.current"),
                processes,
            };
        }
        let memory_bytes = number("memory", "memory.usage_in_bytes");
        Usage {
            cpu_ns: number("cpuacct", "cpuacct.usage"),
            memory_bytes,
            working_set_bytes: working_set(memory_bytes, keyed(&stat, "total_inactive_file")),
            rss_bytes: keyed(&stat, "total_rss"),
            page_faults: keyed(&stat, "total_pgfault"),
            major_page_faults: keyed(&stat, "total_pgmajfault"),
            memory_limit_bytes: number("memory", "memory.limit_in_bytes").filter(|limit| *limit < UNLIMITED),
            swap_bytes: keyed(&stat, "total_swap"),
            processes,
        }
    }
}

fn working_set(memory: Option<u64>, inactive_file: Option<u64>) -> Option<u64> {
    memory.map(|memory| memory.saturating_sub(inactive_file.unwrap_or(0)))
}

/// The number after a key in a file of `key value` lines.
pub fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_matched_whole() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(keyed(text, "oom_kill"), Some(3));
        assert_eq!(keyed(text, "oom"), None);
    }
}
