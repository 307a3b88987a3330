//! Resource limits.

use cri::v1::LinuxContainerResources;

use super::PlanError;
use crate::spec::Limits;

/// The file of version 2 that limits processes. It is the CRI's only word for it, so version 1 heeds it too.
const PIDS_MAX: &str = "pids.max";

/// The limits of a container. In the CRI zero means: not given.
pub fn limits(resources: &LinuxContainerResources) -> Result<Limits, PlanError> {
    let given = |value: i64| (value != 0).then_some(value);
    let text = |value: &String| (!value.is_empty()).then(|| value.clone());
    let mut unified = resources.unified.clone();
    let pids = unified.remove(PIDS_MAX).map(|limit| pids(&limit)).transpose()?;
    if let Some(file) = unified.keys().find(|file| !is_file_name(file)) {
        return Err(PlanError::Invalid(format!(
            "unified resource {file:?} must be a file name"
        )));
    }
    Ok(Limits {
        cpu_shares: u64::try_from(resources.cpu_shares).ok().filter(|shares| *shares != 0),
        cpu_quota_us: given(resources.cpu_quota),
        cpu_period_us: u64::try_from(resources.cpu_period).ok().filter(|period| *period != 0),
        memory_bytes: given(resources.memory_limit_in_bytes),
        // Without a word about swap a limited container gets none, as in every runtime.
        memory_swap_bytes: given(resources.memory_swap_limit_in_bytes).or(given(resources.memory_limit_in_bytes)),
        pids,
        cpuset_cpus: text(&resources.cpuset_cpus),
        cpuset_mems: text(&resources.cpuset_mems),
        hugepages: resources
            .hugepage_limits
            .iter()
            .map(|limit| (limit.page_size.clone(), limit.limit))
            .collect(),
        unified,
    })
}

/// A limit of processes; -1 for none.
fn pids(limit: &str) -> Result<i64, PlanError> {
    match limit.trim() {
        "max" => Ok(-1),
        number => match number.parse() {
            Ok(number) if number >= 0 => Ok(number),
            _ => Err(PlanError::Invalid(format!("{limit:?} is not a limit of processes"))),
        },
    }
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_'))
        && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_limit_and_swap_follows_memory() {
        assert_eq!(limits(&LinuxContainerResources::default()), Ok(Limits::default()));
        let resources = LinuxContainerResources {
            memory_limit_in_bytes: 4096,
            cpu_shares: 2,
            ..Default::default()
        };
        let limits = limits(&resources).unwrap();
        assert_eq!((limits.memory_swap_bytes, limits.cpu_shares), (Some(4096), Some(2)));
    }

    fn with_file(file: &str, value: &str) -> Result<Limits, PlanError> {
        limits(&LinuxContainerResources {
            unified: [(file.to_owned(), value.to_owned())].into(),
            ..Default::default()
        })
    }

    #[test]
    fn processes_are_limited_on_both_versions() {
        let limits = with_file("pids.max", "12").unwrap();
        assert!(limits.pids == Some(12) && limits.unified.is_empty());
        assert_eq!(with_file("pids.max", "max").unwrap().pids, Some(-1));
        assert_eq!(with_file("memory.high", "1").unwrap().unified.len(), 1);
        assert!(with_file("pids.max", "-5").is_err() && with_file("pids.max", "many").is_err());
    }

    #[test]
    fn a_file_of_a_cgroup_is_named_without_a_path() {
        for file in ["../cgroup.procs", "a/b", "/etc/passwd", "", ".."] {
            let error = with_file(file, "1").unwrap_err().to_string();
            assert_eq!(error, format!("unified resource {file:?} must be a file name"));
        }
    }
}
