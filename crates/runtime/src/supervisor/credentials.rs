//! Who a container's process is and what it may do: user, groups, capabilities, seccomp, OOM score.

use std::io;

use super::child::{Stage, StartError};
use crate::procfs;
use crate::seccomp::Filter;
use crate::spec::Process;
use crate::sys::{self, CapabilitySets};

/// The highest capability a mask can hold.
const LAST_CAPABILITY: u32 = 63;

/// Sets how readily the kernel kills this process for memory.
///
/// Lowering the score needs a capability that root lacks on some machines. It is then left as it is: a process that
/// is killed a little too early beats a pod that never runs.
pub fn set_oom_score(score: Option<i32>) -> io::Result<()> {
    let Some(score) = score else { return Ok(()) };
    match procfs::write("self/oom_score_adj", &score.clamp(-1000, 1000).to_string()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

/// Has the next program that this process executes run under an AppArmor profile. Called while this process still sees
/// the host's `/proc`; nothing else is executed before the container's program.
pub fn confine_next_program(profile: Option<&str>) -> Result<(), StartError> {
    let Some(profile) = profile else { return Ok(()) };
    let value = format!("exec {profile}");
    // Kernels before 5.1 have one attribute for whichever module it is.
    let written = match procfs::write("self/attr/apparmor/exec", &value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => procfs::write("self/attr/exec", &value),
        result => result,
    };
    written.stage_with(|| format!("applying AppArmor profile {profile:?}"))
}

/// Becomes the process's user and limits what any program it executes can gain. The process itself keeps its
/// capabilities until [`give_up_privileges`].
pub fn become_user(process: &Process) -> Result<(), StartError> {
    let ours = sys::capabilities().stage("reading capabilities")?.permitted;
    let held = process.capabilities.held & ours;
    for capability in 0..=LAST_CAPABILITY {
        if ours & (1 << capability) != 0 && held & (1 << capability) == 0 {
            sys::drop_from_bounding_set(capability).stage("limiting capabilities")?;
        }
    }
    sys::keep_capabilities(true).stage("keeping capabilities")?;
    sys::set_groups(&process.user.groups).stage("setting groups")?;
    sys::set_gid(process.user.gid).stage("setting the group")?;
    sys::set_uid(process.user.uid).stage("setting the user")?;
    sys::keep_capabilities(false).stage("keeping capabilities")?;
    // Another user than root has lost the effective set.
    let all = CapabilitySets {
        effective: ours,
        permitted: ours,
        inheritable: 0,
    };
    sys::set_capabilities(all).stage("keeping capabilities")?;
    // Changing the user made the process dumpable or not as the host is configured.
    sys::set_not_dumpable().stage("hiding from the pod")
}

/// Keeps exactly the process's capabilities and system calls. As little as possible follows: a profile may forbid it.
pub fn give_up_privileges(process: &Process, filter: Option<&Filter>) -> Result<(), StartError> {
    let load = || filter.map_or(Ok(()), Filter::load).stage("loading the seccomp profile");
    let ours = sys::capabilities().stage("reading capabilities")?.permitted;
    let held = process.capabilities.held & ours;
    // Loading a filter needs either privilege, which is about to go, or that no program may gain any.
    if !process.no_new_privileges {
        load()?;
    }
    let ambient = process.capabilities.ambient & held;
    // Nothing is inheritable but what is ambient: a program with file capabilities would gain it (CVE-2022-29162).
    sys::set_capabilities(CapabilitySets {
        effective: held,
        permitted: held,
        inheritable: ambient,
    })
    .stage("setting capabilities")?;
    for capability in (0..=LAST_CAPABILITY).filter(|capability| ambient & (1 << capability) != 0) {
        sys::raise_ambient(capability).stage("raising ambient capabilities")?;
    }
    if process.no_new_privileges {
        sys::set_no_new_privileges().stage("giving up new privileges")?;
        load()?;
    }
    Ok(())
}
