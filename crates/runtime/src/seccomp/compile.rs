//! From a profile to the program that the kernel runs before each system call.
//!
//! The program looks the call's number up in a tree of ranges, so that it takes ten steps where a list would take
//! hundreds: for every call on kernels before 5.11, and on later ones, which remember the calls that are always
//! allowed, when the filter is loaded.

use std::collections::BTreeMap;

use libc::sock_filter;

use super::syscalls::{self, X32_BIT};
use super::{Action, Architecture, Comparison, Condition, Profile};

// Where the kernel puts things in `struct seccomp_data`.
pub const NUMBER: u32 = 0;
pub const ARCHITECTURE: u32 = 4;
pub const FIRST_ARGUMENT: u32 = 16;

/// The longest program the kernel takes.
pub const MAX_STEPS: usize = libc::BPF_MAXINSNS as usize;

/// A larger gap between numbers is where a table of calls ends. What follows are an architecture's private ones.
const MAX_GAP: u32 = 0x1000;

/// The farthest a conditional jump reaches.
const MAX_JUMP: usize = u8::MAX as usize;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error("the seccomp profile needs {0} steps, more than the {MAX_STEPS} that the kernel takes")]
    TooLong(usize),
    #[error("the conditions of system call {0} are too many")]
    TooManyConditions(u32),
}

/// What is done about a call: the first alternative whose conditions hold, or else the last word.
#[derive(Clone, Debug, PartialEq)]
struct Decision {
    alternatives: Vec<(Vec<Condition>, Action)>,
    otherwise: Action,
}

impl Decision {
    fn always(action: Action) -> Self {
        Self {
            alternatives: Vec::new(),
            otherwise: action,
        }
    }
}

/// A range of numbers, from this one up to the next range's.
type Range = (u32, Decision);

pub fn compile(profile: &Profile) -> Result<Vec<sock_filter>, CompileError> {
    let native = Architecture::native();
    let mut code = vec![load_word(ARCHITECTURE)];
    let others = profile.architectures.iter().copied().filter(|other| *other != native);
    let foreign = others.filter(|other| *other != Architecture::X32);
    for architecture in [native].into_iter().chain(foreign) {
        let mut block = vec![load_word(NUMBER)];
        block.extend(search(&ranges(profile, architecture), is_narrow(architecture))?);
        // Only the program's end is out of reach of a short jump, and this may be long.
        code.push(jump(libc::BPF_JEQ, token(architecture), 1, 0));
        code.push(skip(block.len()));
        code.extend(block);
    }
    code.push(answer(Action::KillThread));
    match code.len() {
        length if length > MAX_STEPS => Err(CompileError::TooLong(length)),
        _ => Ok(code),
    }
}

/// Whether the kernel would take the filter of a profile.
pub fn check(profile: &Profile) -> Result<(), CompileError> {
    compile(profile).map(drop)
}

/// What the kernel calls an architecture.
const fn token(architecture: Architecture) -> u32 {
    match architecture {
        Architecture::X86_64 | Architecture::X32 => 0xC000_003E,
        Architecture::X86 => 0x4000_0003,
        Architecture::Aarch64 => 0xC000_00B7,
        Architecture::Arm => 0x4000_0028,
        Architecture::Riscv64 => 0xC000_00F3,
    }
}

/// Whether arguments have 32 bits only.
const fn is_narrow(architecture: Architecture) -> bool {
    matches!(architecture, Architecture::X86 | Architecture::Arm)
}

/// All numbers of an architecture, those of x32 included where it shares them.
fn ranges(profile: &Profile, architecture: Architecture) -> Vec<Range> {
    let mut ranges = ranges_from(profile, architecture, 0);
    if architecture == Architecture::X86_64 {
        match profile.architectures.contains(&Architecture::X32) {
            true => ranges.extend(ranges_from(profile, Architecture::X32, X32_BIT)),
            false => ranges.push((X32_BIT, Decision::always(Action::KillThread))),
        }
    }
    ranges
}

fn ranges_from(profile: &Profile, architecture: Architecture, first: u32) -> Vec<Range> {
    let mut ranges = vec![(first, Decision::always(profile.default_action))];
    let mut decisions = decisions(profile, architecture).into_iter().peekable();
    while let Some((number, decision)) = decisions.next() {
        extend(&mut ranges, number, decision);
        let gap = match decisions.peek() {
            Some((next, _)) if *next == number + 1 => continue,
            Some((next, _)) if next - number <= MAX_GAP => profile.default_action,
            // Programs take ENOSYS as a sign of an old kernel and do without; what is newer than the profile looks
            // like that.
            _ => beyond(profile.default_action),
        };
        extend(&mut ranges, number + 1, Decision::always(gap));
    }
    ranges
}

/// Begins a range at a number, unless the one before it says the same.
fn extend(ranges: &mut Vec<Range>, number: u32, decision: Decision) {
    match ranges.last_mut() {
        Some((_, last)) if *last == decision => {}
        Some((start, last)) if *start == number => *last = decision,
        _ => ranges.push((number, decision)),
    }
}

fn beyond(default: Action) -> Action {
    match default {
        Action::Allow | Action::Log | Action::Trace(_) => default,
        _ => Action::Errno(libc::ENOSYS as u16),
    }
}

/// The calls that the profile has rules for.
fn decisions(profile: &Profile, architecture: Architecture) -> BTreeMap<u32, Decision> {
    let numbers = syscalls::numbers(architecture);
    let mut decisions = BTreeMap::<u32, (Decision, bool)>::new();
    for rule in &profile.rules {
        for number in rule.names.iter().filter_map(|name| numbers.get(name.as_str())) {
            let (decision, decided) = decisions
                .entry(*number)
                .or_insert_with(|| (Decision::always(profile.default_action), false));
            match (*decided, rule.conditions.is_empty()) {
                (true, _) => {}
                (false, true) => (decision.otherwise, *decided) = (rule.action, true),
                (false, false) => decision.alternatives.push((rule.conditions.clone(), rule.action)),
            }
        }
    }
    decisions
        .into_iter()
        .map(|(number, (decision, _))| (number, decision))
        .collect()
}

/// Code that finds the range of the number that is loaded, and answers as it says.
fn search(ranges: &[Range], narrow: bool) -> Result<Vec<sock_filter>, CompileError> {
    let (lower, upper) = match ranges {
        [] => return Ok(Vec::new()),
        [(number, decision)] => return decide(*number, decision, narrow),
        _ => ranges.split_at(ranges.len() / 2),
    };
    let (below, above) = (search(lower, narrow)?, search(upper, narrow)?);
    let middle = upper.first().map_or(0, |(number, _)| *number);
    let mut code = match u8::try_from(below.len()) {
        Ok(length) => vec![jump(libc::BPF_JGE, middle, length, 0)],
        Err(_) => vec![jump(libc::BPF_JGE, middle, 0, 1), skip(below.len())],
    };
    code.extend(below);
    code.extend(above);
    Ok(code)
}

fn decide(number: u32, decision: &Decision, narrow: bool) -> Result<Vec<sock_filter>, CompileError> {
    let mut code = Vec::new();
    for (conditions, action) in &decision.alternatives {
        let tests: Vec<_> = conditions.iter().map(|condition| test(condition, narrow)).collect();
        let length: usize = tests.iter().map(Vec::len).sum();
        if length > MAX_JUMP {
            return Err(CompileError::TooManyConditions(number));
        }
        let mut left = length;
        for test in tests {
            let mut left_of_test = test.len();
            left -= left_of_test;
            for step in test {
                left_of_test -= 1;
                // Past the rest of this test, or past all tests and the answer after them.
                let distance = |go: Go| match go {
                    Go::On => 0,
                    Go::Pass => left_of_test as u8,
                    Go::Fail => (left_of_test + left + 1) as u8,
                };
                code.push(sock_filter {
                    code: step.code,
                    jt: distance(step.yes),
                    jf: distance(step.no),
                    k: step.k,
                });
            }
        }
        code.push(answer(*action));
    }
    code.push(answer(decision.otherwise));
    Ok(code)
}

/// Where to go on after a step of a test.
#[derive(Clone, Copy)]
enum Go {
    On,
    Pass,
    Fail,
}

struct Step {
    code: u16,
    k: u32,
    yes: Go,
    no: Go,
}

/// A condition as steps. The kernel's programs see arguments in halves of 32 bits.
fn test(condition: &Condition, narrow: bool) -> Vec<Step> {
    let at = FIRST_ARGUMENT + 8 * u32::from(condition.argument);
    let (high_at, low_at) = if cfg!(target_endian = "big") {
        (at, at + 4)
    } else {
        (at + 4, at)
    };
    let (high, low) = ((condition.value >> 32) as u32, condition.value as u32);
    use Go::{Fail, On, Pass};
    use libc::{BPF_JEQ, BPF_JGE, BPF_JGT};
    // What the high half decides alone, and what the low half does when the high ones are equal.
    let (higher, lower, last) = match condition.comparison {
        Comparison::Masked(mask) => return masked(condition.value, mask, high_at, low_at, narrow),
        Comparison::Equal => (Fail, Fail, (BPF_JEQ, Pass, Fail)),
        Comparison::NotEqual => (Pass, Pass, (BPF_JEQ, Fail, Pass)),
        Comparison::Greater => (Pass, Fail, (BPF_JGT, Pass, Fail)),
        Comparison::GreaterOrEqual => (Pass, Fail, (BPF_JGE, Pass, Fail)),
        Comparison::Less => (Fail, Pass, (BPF_JGE, Fail, Pass)),
        Comparison::LessOrEqual => (Fail, Pass, (BPF_JGT, Fail, Pass)),
    };
    let mut steps = Vec::new();
    if !narrow {
        steps.push(load_step(high_at));
        steps.push(jump_step(BPF_JGT, high, higher, On));
        steps.push(jump_step(BPF_JEQ, high, On, lower));
    }
    steps.push(load_step(low_at));
    steps.push(jump_step(last.0, low, last.1, last.2));
    steps
}

fn masked(value: u64, mask: u64, high_at: u32, low_at: u32, narrow: bool) -> Vec<Step> {
    let halves = [
        (high_at, (mask >> 32) as u32, (value >> 32) as u32),
        (low_at, mask as u32, value as u32),
    ];
    let mut steps = Vec::new();
    let seen = halves.into_iter().skip(usize::from(narrow));
    // A half without a bit in the mask needs no look, unless it could never be equal.
    for (at, mask, value) in seen.filter(|(_, mask, value)| *mask != 0 || *value != 0) {
        steps.push(load_step(at));
        steps.push(step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask));
        steps.push(jump_step(libc::BPF_JEQ, value, Go::On, Go::Fail));
    }
    steps
}

fn step(code: u32, k: u32) -> Step {
    Step {
        code: code as u16,
        k,
        yes: Go::On,
        no: Go::On,
    }
}

fn load_step(offset: u32) -> Step {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn jump_step(condition: u32, k: u32, yes: Go, no: Go) -> Step {
    Step {
        yes,
        no,
        ..step(libc::BPF_JMP | condition | libc::BPF_K, k)
    }
}

fn load_word(offset: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn skip(steps: usize) -> sock_filter {
    statement(libc::BPF_JMP | libc::BPF_JA, steps as u32)
}

fn answer(action: Action) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, returned(action))
}

/// An action as the number that a filter answers.
pub const fn returned(action: Action) -> u32 {
    match action {
        Action::Allow => libc::SECCOMP_RET_ALLOW,
        Action::Errno(number) => libc::SECCOMP_RET_ERRNO | number as u32,
        Action::KillThread => libc::SECCOMP_RET_KILL_THREAD,
        Action::KillProcess => libc::SECCOMP_RET_KILL_PROCESS,
        Action::Log => libc::SECCOMP_RET_LOG,
        Action::Trace(number) => libc::SECCOMP_RET_TRACE | number as u32,
        Action::Trap => libc::SECCOMP_RET_TRAP,
    }
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
pub mod tests;
