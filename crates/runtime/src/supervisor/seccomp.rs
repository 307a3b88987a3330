//! The `RuntimeDefault` seccomp profile: the system calls that a container has no business with.
//!
//! The profile refuses by name instead of allowing by name, because the refused ones fit on a page; what the kernel
//! has learned since this table was written is refused as well. A call that belongs to a capability is allowed to
//! those who hold it. Programs of another architecture than the host's, such as 32-bit ones, get no system calls.

use std::io;

use libc::sock_filter;

use crate::{capability, sys};

/// One refused call, and the capability that allows it after all (none when empty).
type Row = (libc::c_long, &'static str);

const REFUSED: &[Row] = &[
    (libc::SYS_acct, "SYS_PACCT"),
    (libc::SYS_add_key, ""),
    (libc::SYS_bpf, "BPF"),
    (libc::SYS_clock_adjtime, "SYS_TIME"),
    (libc::SYS_clock_settime, "SYS_TIME"),
    (libc::SYS_delete_module, "SYS_MODULE"),
    (libc::SYS_fanotify_init, "SYS_ADMIN"),
    (libc::SYS_finit_module, "SYS_MODULE"),
    (libc::SYS_fsconfig, "SYS_ADMIN"),
    (libc::SYS_fsmount, "SYS_ADMIN"),
    (libc::SYS_fsopen, "SYS_ADMIN"),
    (libc::SYS_fspick, "SYS_ADMIN"),
    (libc::SYS_get_mempolicy, "SYS_NICE"),
    (libc::SYS_init_module, "SYS_MODULE"),
    (libc::SYS_io_uring_enter, ""),
    (libc::SYS_io_uring_register, ""),
    (libc::SYS_io_uring_setup, ""),
    (libc::SYS_kcmp, "SYS_PTRACE"),
    (libc::SYS_kexec_file_load, "SYS_BOOT"),
    (libc::SYS_kexec_load, "SYS_BOOT"),
    (libc::SYS_keyctl, ""),
    (libc::SYS_lookup_dcookie, "SYS_ADMIN"),
    (libc::SYS_mbind, "SYS_NICE"),
    (libc::SYS_migrate_pages, "SYS_NICE"),
    (libc::SYS_mount, "SYS_ADMIN"),
    (libc::SYS_mount_setattr, "SYS_ADMIN"),
    (libc::SYS_move_mount, "SYS_ADMIN"),
    (libc::SYS_move_pages, "SYS_NICE"),
    (libc::SYS_nfsservctl, ""),
    (libc::SYS_open_by_handle_at, "DAC_READ_SEARCH"),
    (libc::SYS_open_tree, "SYS_ADMIN"),
    (libc::SYS_perf_event_open, "PERFMON"),
    (libc::SYS_pidfd_getfd, "SYS_PTRACE"),
    (libc::SYS_pivot_root, ""),
    (libc::SYS_quotactl, "SYS_ADMIN"),
    (libc::SYS_quotactl_fd, "SYS_ADMIN"),
    (libc::SYS_reboot, "SYS_BOOT"),
    (libc::SYS_request_key, ""),
    (libc::SYS_set_mempolicy, "SYS_NICE"),
    (libc::SYS_set_mempolicy_home_node, "SYS_NICE"),
    (libc::SYS_setns, "SYS_ADMIN"),
    (libc::SYS_settimeofday, "SYS_TIME"),
    (libc::SYS_swapoff, ""),
    (libc::SYS_swapon, ""),
    (libc::SYS_syslog, "SYSLOG"),
    (libc::SYS_umount2, "SYS_ADMIN"),
    (libc::SYS_unshare, "SYS_ADMIN"),
    (libc::SYS_userfaultfd, ""),
    (libc::SYS_vhangup, "SYS_TTY_CONFIG"),
];

/// Calls that only this architecture still has.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[Row] = &[
    (libc::SYS__sysctl, ""),
    (libc::SYS_ioperm, "SYS_RAWIO"),
    (libc::SYS_iopl, "SYS_RAWIO"),
    (libc::SYS_sysfs, ""),
    (libc::SYS_uselib, ""),
    (libc::SYS_ustat, ""),
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[Row] = &[];

/// The newest call this table has judged; numbers are the same on all architectures since 424.
const LAST_KNOWN: u32 = libc::SYS_mseal as u32;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(target_arch = "riscv64")]
const ARCHITECTURE: u32 = 0xC000_00F3;

/// The flags of clone that make namespaces.
const CLONE_NAMESPACES: u32 = 0x7E02_0000;

/// The personalities a program may take on: Linux, and old ones that differ in details only.
const PERSONALITIES: &[u32] = &[0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF];

// Where the kernel puts things in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// Filters this process and all it becomes. Needs CAP_SYS_ADMIN, or that no program may gain privileges.
pub fn load(held: u64) -> io::Result<()> {
    sys::load_seccomp_filter(&program(held))
}

/// The profile for a process that holds the given capabilities.
fn program(held: u64) -> Vec<sock_filter> {
    let may = |capability: &str| capability::mask(capability).is_ok_and(|mask| held & mask != 0);
    let mut code = vec![
        load_word(ARCH),
        jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
        answer(refuse(libc::EPERM)),
        load_word(NUMBER),
        // This also refuses the x32 numbers, which have a high bit set.
        jump(libc::BPF_JGT, LAST_KNOWN, 0, 1),
        answer(refuse(libc::ENOSYS)),
    ];
    let refused = REFUSED
        .iter()
        .chain(REFUSED_HERE)
        .filter(|(_, capability)| !may(capability));
    for (number, _) in refused {
        code.extend([jump(libc::BPF_JEQ, *number as u32, 0, 1), answer(refuse(libc::EPERM))]);
    }
    if !may("SYS_ADMIN") {
        // The flags of clone3 are out of a filter's reach; programs fall back to clone, whose are not.
        code.extend([
            jump(libc::BPF_JEQ, libc::SYS_clone3 as u32, 0, 1),
            answer(refuse(libc::ENOSYS)),
        ]);
        code.extend(on_argument(
            libc::SYS_clone,
            &[
                jump(libc::BPF_JSET, CLONE_NAMESPACES, 0, 1),
                answer(refuse(libc::EPERM)),
            ],
        ));
    }
    let sockets = [
        jump(libc::BPF_JEQ, libc::AF_VSOCK as u32, 0, 1),
        answer(refuse(libc::EPERM)),
    ];
    code.extend(on_argument(libc::SYS_socket, &sockets));
    let mut personalities = Vec::new();
    for personality in PERSONALITIES {
        personalities.extend([jump(libc::BPF_JEQ, *personality, 0, 1), answer(ALLOW)]);
    }
    personalities.push(answer(refuse(libc::EPERM)));
    code.extend(on_argument(libc::SYS_personality, &personalities));
    code.push(answer(ALLOW));
    code
}

/// Code that runs with the first argument loaded, for one call, which is allowed if the code does not answer.
fn on_argument(number: libc::c_long, code: &[sock_filter]) -> Vec<sock_filter> {
    let skip = code.len() as u8 + 2;
    let mut all = vec![jump(libc::BPF_JEQ, number as u32, 0, skip), load_word(FIRST_ARGUMENT)];
    all.extend_from_slice(code);
    all.push(answer(ALLOW));
    all
}

fn load_word(offset: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn answer(action: u32) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, action)
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

fn jump(condition: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: (libc::BPF_JMP | condition | libc::BPF_K) as u16,
        jt,
        jf,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets a filter as the kernel does.
    fn judge(code: &[sock_filter], number: libc::c_long, argument: u32) -> &'static str {
        let (mut at, mut word) = (0, 0);
        loop {
            let step = code[at];
            at += 1;
            let code = u32::from(step.code);
            match code & 0x07 {
                libc::BPF_LD => {
                    word = match step.k {
                        NUMBER => number as u32,
                        ARCH => ARCHITECTURE,
                        _ => argument,
                    }
                }
                libc::BPF_RET if step.k == ALLOW => return "allow",
                libc::BPF_RET if step.k == refuse(libc::EPERM) => return "EPERM",
                libc::BPF_RET => return "ENOSYS",
                _ => {
                    let holds = match code & 0xF0 {
                        libc::BPF_JEQ => word == step.k,
                        libc::BPF_JGT => word > step.k,
                        _ => word & step.k != 0,
                    };
                    at += usize::from(if holds { step.jt } else { step.jf });
                }
            }
        }
    }

    #[test]
    fn ordinary_programs_run() {
        let code = program(capability::held(&[], &[]).unwrap());
        for call in [
            libc::SYS_read,
            libc::SYS_execve,
            libc::SYS_futex,
            libc::SYS_statx,
            libc::SYS_ptrace,
        ] {
            assert_eq!(judge(&code, call, 0), "allow");
        }
        assert_eq!(judge(&code, libc::SYS_clone, 0x11), "allow");
        assert_eq!(judge(&code, libc::SYS_socket, libc::AF_INET as u32), "allow");
        assert_eq!(judge(&code, libc::SYS_personality, 8), "allow");
    }

    #[test]
    fn namespaces_mounts_and_keys_are_refused() {
        let code = program(capability::held(&[], &[]).unwrap());
        assert_eq!(judge(&code, libc::SYS_mount, 0), "EPERM");
        assert_eq!(judge(&code, libc::SYS_keyctl, 0), "EPERM");
        assert_eq!(judge(&code, libc::SYS_clone, libc::CLONE_NEWUSER as u32), "EPERM");
        assert_eq!(judge(&code, libc::SYS_clone3, 0), "ENOSYS");
        assert_eq!(judge(&code, libc::SYS_socket, libc::AF_VSOCK as u32), "EPERM");
        assert_eq!(judge(&code, libc::SYS_personality, 0x20), "EPERM");
        assert_eq!(judge(&code, i64::from(LAST_KNOWN) + 1, 0), "ENOSYS");
    }

    #[test]
    fn a_capability_brings_its_calls() {
        let code = program(capability::held(&["SYS_ADMIN".into()], &[]).unwrap());
        assert_eq!(judge(&code, libc::SYS_mount, 0), "allow");
        assert_eq!(judge(&code, libc::SYS_clone3, 0), "allow");
        assert_eq!(judge(&code, libc::SYS_keyctl, 0), "EPERM");
    }
}
