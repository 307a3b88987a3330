//! The system calls an unpacker keeps: those that make files, and those that any program needs to run and to end.

use std::io;

use crate::seccomp::{Action, Filter, Profile, Rule};

const ALLOWED: &[&str] = &[
    // Files.
    "close",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "fcntl",
    "fsetxattr",
    "fstat",
    "fstatfs",
    "linkat",
    "lseek",
    "mkdirat",
    "mknodat",
    "newfstatat",
    "openat",
    "openat2",
    "read",
    "readv",
    "statx",
    "symlinkat",
    "unlinkat",
    "utimensat",
    "write",
    "writev",
    // The connection to Karve.
    "ppoll",
    "recvmsg",
    "sendmsg",
    // Memory.
    "brk",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    // Running and ending.
    "clock_gettime",
    "exit",
    "exit_group",
    "futex",
    "getpid",
    "getrandom",
    "gettid",
    "restart_syscall",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_yield",
    "sigaltstack",
    "tgkill",
    "tkill",
];

/// Filters this process. Needs that it may gain no privileges.
pub fn load() -> io::Result<()> {
    Filter::compile(&profile()).map_err(io::Error::other)?.load()
}

fn profile() -> Profile {
    Profile {
        // As if the kernel did not know them: libraries then do without.
        default_action: Action::Errno(libc::ENOSYS as u16),
        architectures: Vec::new(),
        rules: vec![Rule {
            names: ALLOWED.iter().map(|name| (*name).to_owned()).collect(),
            action: Action::Allow,
            conditions: Vec::new(),
        }],
        log: false,
        allow_speculation: true,
    }
}
