//! Containers and the ways out of them.

mod capabilities;
mod descriptors;
mod devices;
mod kernel;
mod limits;
mod mounts;
mod namespaces;
mod profiles;
mod programs;
mod rootfs;

use std::fs;

use anyhow::Result;

use crate::cases::Case;
use crate::signals::wait_for;
use crate::world::PATIENCE;

pub const CASES: &[Case] = &[
    programs::PROGRAM_OF_THE_HOST,
    descriptors::WORKING_DIRECTORY,
    descriptors::LEFT_OPEN,
    capabilities::INHERITED,
    devices::DISKS,
    kernel::KERNEL_FILES,
    kernel::SYSTEM_CALLS,
    kernel::SYSCTLS_OF_THE_HOST,
    mounts::OVER_PROC,
    mounts::LINKS_IN_DEV,
    mounts::RECURSIVE_READ_ONLY,
    rootfs::LINKS_IN_THE_IMAGE,
    namespaces::ROOT_OF_THE_HOST,
    profiles::SECCOMP_PROFILES,
    profiles::APPARMOR_MISSING,
    profiles::APPARMOR_PROFILES,
    limits::PROCESSES,
    limits::LOG_FLOOD,
];

/// The process that has a certain argument, as the host sees it.
fn host_process(argument: &str) -> Result<u32> {
    let has_it = |pid: u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
    };
    wait_for("the container's process", PATIENCE, || {
        let names = fs::read_dir("/proc")?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(names.into_iter().find(|pid| has_it(*pid)))
    })
}
