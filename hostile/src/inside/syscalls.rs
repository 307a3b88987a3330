//! System calls that no container needs.

use std::ffi::CString;

use serde_json::{Map, Value, json};

use super::{Outcome, check, name_of};

/// Calls by name and number. With these arguments none of them does anything, whether it is let through or not.
const FORBIDDEN: &[(&str, libc::c_long, [libc::c_long; 4])] = &[
    ("acct", libc::SYS_acct, [-1, 0, 0, 0]),
    ("add_key", libc::SYS_add_key, [0, 0, 0, 0]),
    ("bpf", libc::SYS_bpf, [-1, 0, 0, 0]),
    ("clock_settime", libc::SYS_clock_settime, [0, -1, 0, 0]),
    ("delete_module", libc::SYS_delete_module, [-1, 0, 0, 0]),
    ("finit_module", libc::SYS_finit_module, [-1, 0, 0, 0]),
    ("fsopen", libc::SYS_fsopen, [-1, 0, 0, 0]),
    ("fsmount", libc::SYS_fsmount, [-1, 0, 0, 0]),
    ("init_module", libc::SYS_init_module, [-1, 0, 0, 0]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [1, -1, 0, 0]),
    ("kexec_file_load", libc::SYS_kexec_file_load, [-1, -1, 0, 0]),
    ("kexec_load", libc::SYS_kexec_load, [0, -1, 0, 0]),
    ("keyctl", libc::SYS_keyctl, [0, -3, 0, 0]),
    ("mount", libc::SYS_mount, [-1, -1, -1, 0]),
    ("mount_setattr", libc::SYS_mount_setattr, [-1, -1, 0, 0]),
    ("move_mount", libc::SYS_move_mount, [-1, -1, -1, -1]),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, [-1, -1, 0, 0]),
    ("open_tree", libc::SYS_open_tree, [-1, -1, 0, 0]),
    ("perf_event_open", libc::SYS_perf_event_open, [-1, 0, -1, -1]),
    ("pivot_root", libc::SYS_pivot_root, [-1, -1, 0, 0]),
    ("quotactl", libc::SYS_quotactl, [-1, -1, 0, 0]),
    ("reboot", libc::SYS_reboot, [0, 0, 0, 0]),
    ("request_key", libc::SYS_request_key, [-1, 0, 0, 0]),
    ("setns", libc::SYS_setns, [-1, 0, 0, 0]),
    ("settimeofday", libc::SYS_settimeofday, [-1, 0, 0, 0]),
    ("swapon", libc::SYS_swapon, [-1, 0, 0, 0]),
    ("syslog", libc::SYS_syslog, [3, -1, 1, 0]),
    ("umount2", libc::SYS_umount2, [-1, 0, 0, 0]),
    (
        "unshare for a user namespace",
        libc::SYS_unshare,
        [libc::CLONE_NEWUSER as i64, 0, 0, 0],
    ),
    ("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0]),
];

/// Which calls get further than a filter lets them, and what they came to.
pub fn forbidden(_arguments: &[String]) -> Outcome {
    let mut through = Map::new();
    for (name, number, [first, second, third, fourth]) in FORBIDDEN {
        // SAFETY: pointers among the arguments are null or point nowhere, which the kernel answers with an error.
        let result = check(unsafe { libc::syscall(*number, *first, *second, *third, *fourth) });
        let told = match &result {
            Ok(_) => "it worked".to_owned(),
            Err(error) => name_of(error),
        };
        if !matches!(told.as_str(), "EPERM" | "ENOSYS" | "EACCES") {
            through.insert((*name).to_owned(), json!(told));
        }
    }
    Ok(Value::Object(through))
}

/// `mount SOURCE TARGET KIND`.
pub fn mount(arguments: &[String]) -> Outcome {
    let [source, target, kind] = [0, 1, 2].map(|index| CString::new(arguments[index].as_str()));
    let (source, target, kind) = (source?, target?, kind?);
    // SAFETY: the texts live until the call returns.
    let result = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    check(i64::from(result))?;
    Ok(Value::Null)
}
