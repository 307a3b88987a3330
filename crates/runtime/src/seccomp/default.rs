//! The profile called RuntimeDefault: the calls that ordinary programs make are allowed, by name, and nothing else is.
//!
//! It is of the size of containerd's. A call that is one capability's business is allowed to those who hold it.

use super::{Action, Architecture, Comparison, Condition, Profile, Rule};
use crate::capability;

const ALLOWED: &str = "
    _llseek _newselect accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown chown32
    clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep
    clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1
    epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit
    exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2
    fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat
    fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait
    futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid
    getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid
    getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid getsockname
    getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat inotify_add_watch inotify_init inotify_init1
    inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit ioctl
    ioprio_get ioprio_set ipc kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32
    lgetxattr link linkat listen listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr
    lsm_get_self_attr lsm_list_modules lsm_set_self_attr lstat lstat64 madvise map_shadow_stack membarrier
    memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 mprotect
    mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink
    mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat
    open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll
    ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6
    pselect6_time64 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recv recvfrom recvmmsg
    recvmmsg_time64 recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir
    rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop
    semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto set_robust_list set_thread_area
    set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setitimer setpgid
    setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setsid
    setsockopt setuid setuid32 setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4
    sigprocmask sigreturn socketpair splice stat stat64 statfs statfs64 statmount statx symlink symlinkat sync
    sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime
    timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime
    timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask uname unlink unlinkat uretprobe utime utimensat
    utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write writev
";

/// Calls that only some machines have.
const ALLOWED_HERE: &str = match Architecture::native() {
    Architecture::X86_64 => "arch_prctl modify_ldt",
    Architecture::Aarch64 => "arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls sync_file_range2",
    Architecture::Riscv64 => "riscv_flush_icache riscv_hwprobe",
    _ => "",
};

const ALLOWED_BY_CAPABILITY: &[(&str, &str)] = &[
    ("BPF", "bpf"),
    ("DAC_READ_SEARCH", "open_by_handle_at"),
    ("PERFMON", "perf_event_open"),
    (
        "SYS_ADMIN",
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount \
         open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare",
    ),
    ("SYS_BOOT", "reboot"),
    ("SYS_CHROOT", "chroot"),
    ("SYS_MODULE", "delete_module finit_module init_module"),
    ("SYS_NICE", "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    ("SYS_PACCT", "acct"),
    ("SYS_PTRACE", "kcmp pidfd_getfd process_madvise"),
    ("SYS_RAWIO", "ioperm iopl"),
    ("SYS_TIME", "clock_settime clock_settime64 settimeofday stime"),
    ("SYS_TTY_CONFIG", "vhangup"),
    ("SYSLOG", "syslog"),
];

/// The flags of clone that make namespaces.
const CLONE_NAMESPACES: u64 = 0x7E02_0000;

/// The personalities a program may take on: Linux, old ones that differ in details only, and the question which.
const PERSONALITIES: &[u64] = &[0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF];

/// Sockets that reach beyond the container: the host of a virtual machine, and the kernel's cryptography.
const REFUSED_FAMILIES: &[u64] = &[libc::AF_ALG as u64, libc::AF_VSOCK as u64];

/// The number by which the one socket call of old 32-bit programs makes a socket. Its arguments are out of a filter's
/// reach; programs that are not older than Linux 4.3 use a call of its own.
const SOCKETCALL_SOCKET: u64 = 1;

const REFUSED: Action = Action::Errno(libc::EPERM as u16);

/// The profile for a process that holds the given capabilities.
pub fn profile(held: u64) -> Profile {
    let may = |capability: &str| capability::mask(capability).is_ok_and(|mask| held & mask != 0);
    let mut rules = vec![allow(ALLOWED, None), allow(ALLOWED_HERE, None)];
    let granted = ALLOWED_BY_CAPABILITY.iter().filter(|(capability, _)| may(capability));
    rules.extend(granted.map(|(_, names)| allow(names, None)));
    if !may("SYS_ADMIN") {
        rules.push(allow("clone", Some(low_bits(CLONE_NAMESPACES, 0))));
        // The flags of clone3 are out of a filter's reach; programs fall back to clone, whose are not.
        rules.push(rule("clone3", Action::Errno(libc::ENOSYS as u16), None));
    }
    for family in REFUSED_FAMILIES {
        rules.push(rule("socket", REFUSED, Some(is(*family))));
    }
    rules.push(allow("socket", None));
    rules.push(rule("socketcall", REFUSED, Some(is(SOCKETCALL_SOCKET))));
    rules.push(allow("socketcall", None));
    rules.extend(
        PERSONALITIES
            .iter()
            .map(|number| allow("personality", Some(is(*number)))),
    );
    Profile {
        default_action: REFUSED,
        architectures: Architecture::others().to_vec(),
        rules,
        log: false,
        allow_speculation: false,
    }
}

fn allow(names: &str, condition: Option<Condition>) -> Rule {
    rule(names, Action::Allow, condition)
}

fn rule(names: &str, action: Action, condition: Option<Condition>) -> Rule {
    Rule {
        names: names.split_whitespace().map(str::to_owned).collect(),
        action,
        conditions: condition.into_iter().collect(),
    }
}

/// The first argument is a number. The kernel looks at its lower half alone, and so must the filter: a number with
/// something in the upper half is the same number to the kernel.
fn is(number: u64) -> Condition {
    low_bits(u64::from(u32::MAX), number)
}

fn low_bits(mask: u64, value: u64) -> Condition {
    Condition {
        argument: 0,
        comparison: Comparison::Masked(mask),
        value,
    }
}
