use super::super::{Rule, default};
use super::*;
use crate::capability;

/// One system call as a filter sees it.
#[derive(Clone, Copy)]
pub struct Seen {
    pub token: u32,
    pub number: u32,
    pub arguments: [u64; 6],
}

/// Interprets a filter as the kernel does. Answers the result and how many steps it took.
pub fn run(code: &[sock_filter], seen: Seen) -> (u32, usize) {
    let (mut at, mut word) = (0, 0_u32);
    for steps in 1.. {
        let step = code[at];
        at += 1;
        match u32::from(step.code) & 0x07 {
            libc::BPF_LD => {
                word = match step.k {
                    NUMBER => seen.number,
                    ARCHITECTURE => seen.token,
                    offset => {
                        let offset = offset - FIRST_ARGUMENT;
                        (seen.arguments[offset as usize / 8] >> (8 * (offset % 8))) as u32
                    }
                }
            }
            libc::BPF_ALU => word &= step.k,
            libc::BPF_RET => return (step.k, steps),
            _ if u32::from(step.code) & 0xF0 == libc::BPF_JA => at += step.k as usize,
            _ => {
                let holds = match u32::from(step.code) & 0xF0 {
                    libc::BPF_JEQ => word == step.k,
                    libc::BPF_JGT => word > step.k,
                    libc::BPF_JGE => word >= step.k,
                    _ => word & step.k != 0,
                };
                at += usize::from(if holds { step.jt } else { step.jf });
            }
        }
    }
    unreachable!()
}

/// What a filter says of a call of an architecture, by name.
pub fn judge(code: &[sock_filter], architecture: Architecture, name: &str, arguments: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let seen = Seen {
        token: token(architecture),
        number: syscalls::numbers(architecture)[name],
        arguments: all,
    };
    run(code, seen).0
}

const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
const EPERM: u32 = returned(Action::Errno(libc::EPERM as u16));
const ENOSYS: u32 = returned(Action::Errno(libc::ENOSYS as u16));
const NATIVE: Architecture = Architecture::native();

fn default_filter(add: &[&str]) -> Vec<sock_filter> {
    let add: Vec<_> = add.iter().map(|name| (*name).to_owned()).collect();
    compile(&default::profile(capability::held(&add, &[]).unwrap())).unwrap()
}

#[test]
fn ordinary_programs_run_on_every_architecture() {
    let code = default_filter(&[]);
    for architecture in [NATIVE].iter().chain(Architecture::others()) {
        for name in [
            "read",
            "execve",
            "futex",
            "statx",
            "ptrace",
            "openat2",
            "mseal",
            "exit_group",
            "chroot",
        ] {
            assert_eq!(
                judge(&code, *architecture, name, &[]),
                ALLOWED,
                "{architecture:?} {name}"
            );
        }
        assert_eq!(judge(&code, *architecture, "clone", &[0x11]), ALLOWED);
        assert_eq!(judge(&code, *architecture, "personality", &[8]), ALLOWED);
        for family in [libc::AF_INET, libc::AF_NETLINK, 39, 41] {
            assert_eq!(judge(&code, *architecture, "socket", &[family as u64]), ALLOWED);
        }
    }
}

#[test]
fn what_is_not_allowed_by_name_is_refused_on_every_architecture() {
    let code = default_filter(&[]);
    for architecture in [NATIVE].iter().chain(Architecture::others()) {
        for name in [
            "mount",
            "keyctl",
            "add_key",
            "request_key",
            "bpf",
            "io_uring_setup",
            "userfaultfd",
            "unshare",
            "setns",
            "kexec_load",
            "init_module",
            "perf_event_open",
            "open_by_handle_at",
            "swapon",
            "reboot",
            "pivot_root",
        ] {
            assert_eq!(judge(&code, *architecture, name, &[]), EPERM, "{architecture:?} {name}");
        }
        assert_eq!(judge(&code, *architecture, "clone3", &[]), ENOSYS);
        for flag in [
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWNS,
            libc::CLONE_NEWCGROUP,
            libc::CLONE_NEWNET,
        ] {
            assert_eq!(judge(&code, *architecture, "clone", &[flag as u64 | 0x11]), EPERM);
        }
        assert_eq!(judge(&code, *architecture, "personality", &[0x20]), EPERM);
        for family in [libc::AF_ALG, libc::AF_VSOCK] {
            assert_eq!(judge(&code, *architecture, "socket", &[family as u64]), EPERM);
        }
    }
}

/// The kernel takes a family, a personality and the flags of clone as numbers of 32 bits.
#[test]
fn the_upper_half_of_a_number_changes_nothing() {
    let code = default_filter(&[]);
    let upper = 0x7_0000_0000;
    assert_eq!(judge(&code, NATIVE, "socket", &[upper | libc::AF_VSOCK as u64]), EPERM);
    assert_eq!(judge(&code, NATIVE, "socket", &[upper | libc::AF_ALG as u64]), EPERM);
    assert_eq!(
        judge(&code, NATIVE, "clone", &[upper | libc::CLONE_NEWUSER as u64]),
        EPERM
    );
    assert_eq!(judge(&code, NATIVE, "personality", &[upper | 0x20]), EPERM);
}

#[test]
fn calls_newer_than_the_profile_look_like_those_of_an_old_kernel() {
    let code = default_filter(&[]);
    for architecture in [NATIVE].iter().chain(Architecture::others()) {
        let first = if *architecture == Architecture::X32 { X32_BIT } else { 0 };
        for number in [600, 5000] {
            let seen = Seen {
                token: token(*architecture),
                number: first + number,
                arguments: [0; 6],
            };
            assert_eq!(run(&code, seen).0, ENOSYS, "{architecture:?} {number}");
        }
    }
    let nobodys = Seen {
        token: 0x8000_0016,
        number: 0,
        arguments: [0; 6],
    };
    assert_eq!(run(&code, nobodys).0, libc::SECCOMP_RET_KILL_THREAD);
}

#[test]
fn a_capability_brings_its_calls() {
    let code = default_filter(&["SYS_ADMIN"]);
    for name in ["mount", "clone3", "unshare", "setns", "bpf"] {
        assert_eq!(judge(&code, NATIVE, name, &[]), ALLOWED, "{name}");
    }
    assert_eq!(judge(&code, NATIVE, "clone", &[libc::CLONE_NEWUSER as u64]), ALLOWED);
    assert_eq!(judge(&code, NATIVE, "keyctl", &[]), EPERM);
    assert_eq!(
        judge(&default_filter(&["SYS_TIME"]), NATIVE, "clock_settime", &[]),
        ALLOWED
    );
    let none = compile(&default::profile(0)).unwrap();
    assert_eq!(judge(&none, NATIVE, "chroot", &[]), EPERM);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn sockets_are_not_made_by_the_old_way_around_the_filter() {
    let code = default_filter(&[]);
    assert_eq!(judge(&code, Architecture::X86, "socketcall", &[1]), EPERM);
    assert_eq!(judge(&code, Architecture::X86, "socketcall", &[3]), ALLOWED);
}

#[test]
fn a_call_is_found_in_few_steps() {
    let code = default_filter(&[]);
    let longest = |architecture: Architecture| {
        let numbers = syscalls::numbers(architecture).into_values();
        let seen = |number| Seen {
            token: token(architecture),
            number,
            arguments: [0; 6],
        };
        numbers.map(|number| run(&code, seen(number)).1).max().unwrap()
    };
    assert!(longest(NATIVE) <= 24, "{}", longest(NATIVE));
    assert!(code.len() < 1200, "{}", code.len());
}

fn with_rule(comparison: Comparison, value: u64) -> Vec<sock_filter> {
    let profile = Profile {
        default_action: Action::Errno(1),
        architectures: Architecture::others().to_vec(),
        rules: vec![Rule {
            names: vec!["read".to_owned()],
            action: Action::Allow,
            conditions: vec![Condition {
                argument: 2,
                comparison,
                value,
            }],
        }],
        log: false,
        allow_speculation: false,
    };
    compile(&profile).unwrap()
}

#[test]
fn comparisons_are_of_all_64_bits() {
    let values = [
        0,
        1,
        7,
        8,
        0xFFFF_FFFF,
        0x1_0000_0000,
        0x1_0000_0007,
        0x8_0000_0007,
        u64::MAX,
    ];
    for value in values {
        for argument in values {
            let check = |comparison: Comparison, holds: bool| {
                let result = judge(&with_rule(comparison, value), NATIVE, "read", &[0, 0, argument]);
                assert_eq!(result == ALLOWED, holds, "{argument:#x} {comparison:?} {value:#x}");
            };
            check(Comparison::Equal, argument == value);
            check(Comparison::NotEqual, argument != value);
            check(Comparison::Less, argument < value);
            check(Comparison::LessOrEqual, argument <= value);
            check(Comparison::Greater, argument > value);
            check(Comparison::GreaterOrEqual, argument >= value);
            for mask in [0, 1, 0xFF00, 0x1_0000_0000, u64::MAX] {
                check(Comparison::Masked(mask), argument & mask == value);
            }
        }
    }
}

#[test]
fn a_profile_that_the_kernel_would_not_take_is_refused() {
    let rule = |value: u64| Rule {
        names: vec!["read".to_owned()],
        action: Action::Allow,
        conditions: vec![Condition {
            argument: 0,
            comparison: Comparison::Equal,
            value,
        }],
    };
    let profile = Profile {
        default_action: Action::Errno(1),
        architectures: Vec::new(),
        rules: (0..2000).map(rule).collect(),
        log: false,
        allow_speculation: false,
    };
    assert!(matches!(compile(&profile), Err(CompileError::TooLong(_))));
}
