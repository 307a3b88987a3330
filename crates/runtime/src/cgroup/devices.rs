//! Which devices the processes of a cgroup may open: by the devices controller of version 1, by a program that the
//! kernel asks on version 2.
//!
//! The mounts of a container refuse device nodes anyway; this is for containers that may mount, and for devices that
//! are given with fewer rights than their nodes have.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::{Layout, join, make_dir};
use crate::sys::{self, BpfInstruction};

/// Where the processes of a container are in the devices hierarchy of version 1, below the container's cgroup. A
/// container that may mount can write to the cgroup that it sees as the root; the rules are one above.
pub const INNER: &str = "inner";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    Block,
    Character,
}

/// What may be done with a device: bits as the kernel numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    pub const MAKE: Self = Self(1);
    pub const READ: Self = Self(2);
    pub const WRITE: Self = Self(4);
    pub const ALL: Self = Self(7);

    /// As `r`, `w` and `m`. None for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        text.chars().try_fold(Self(0), |known, letter| match letter {
            'r' => Some(known.with(Self::READ)),
            'w' => Some(known.with(Self::WRITE)),
            'm' => Some(known.with(Self::MAKE)),
            _ => None,
        })
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn letters(self) -> String {
        let letters = [('r', Self::READ), ('w', Self::WRITE), ('m', Self::MAKE)];
        let given = letters.into_iter().filter(|(_, access)| self.0 & access.0 != 0);
        given.map(|(letter, _)| letter).collect()
    }
}

/// Something that is allowed. A number that is absent stands for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRule {
    pub kind: DeviceKind,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    pub access: Access,
}

const fn character(major: u32, minor: u32) -> DeviceRule {
    DeviceRule {
        kind: DeviceKind::Character,
        major: Some(major),
        minor: Some(minor),
        access: Access::ALL,
    }
}

const fn make_any(kind: DeviceKind) -> DeviceRule {
    DeviceRule {
        kind,
        major: None,
        minor: None,
        access: Access::MAKE,
    }
}

/// What every container may open: the nodes it has, and its terminals. Making a node opens nothing.
pub const DEFAULT: &[DeviceRule] = &[
    make_any(DeviceKind::Block),
    make_any(DeviceKind::Character),
    character(1, 3),
    character(1, 5),
    character(1, 7),
    character(1, 8),
    character(1, 9),
    character(5, 0),
    character(5, 1),
    character(5, 2),
    DeviceRule {
        kind: DeviceKind::Character,
        major: Some(136),
        minor: None,
        access: Access::ALL,
    },
];

/// The default rules and those of devices that a container is given. A device that is given twice may be used in
/// either way.
pub fn with_given(given: &[DeviceRule]) -> Vec<DeviceRule> {
    let mut rules = DEFAULT.to_vec();
    for rule in given {
        let same =
            |known: &&mut DeviceRule| (known.kind, known.major, known.minor) == (rule.kind, rule.major, rule.minor);
        match rules.iter_mut().find(same) {
            Some(known) => known.access = known.access.with(rule.access),
            None => rules.push(*rule),
        }
    }
    rules
}

/// A program of version 2 that allows the default rules, loaded once for all containers.
#[derive(Default)]
pub struct DefaultProgram(Option<OwnedFd>);

impl DefaultProgram {
    /// Loaded for all who are forked from this process, where it can be.
    pub fn for_layout(layout: &Layout) -> Self {
        match layout.is_unified() {
            // Should it not load, the first container says why.
            true => Self(sys::load_device_program(&program(DEFAULT)).ok()),
            false => Self(None),
        }
    }

    fn loaded(&mut self) -> io::Result<&OwnedFd> {
        let loaded = match self.0.take() {
            Some(loaded) => loaded,
            None => sys::load_device_program(&program(DEFAULT))?,
        };
        Ok(self.0.insert(loaded))
    }
}

impl Layout {
    /// Whether this host can restrict devices.
    pub fn has_devices(&self) -> bool {
        self.dir("devices", Path::new("/")).is_some()
    }

    /// Lets the processes of a cgroup open what the rules allow, or everything without rules.
    pub fn restrict_devices(
        &self,
        path: &Path,
        rules: Option<&[DeviceRule]>,
        default: &mut DefaultProgram,
    ) -> io::Result<()> {
        let Some(dir) = self.dir("devices", path) else {
            return Ok(());
        };
        match (self, rules) {
            (Self::Legacy { .. }, None) => {}
            (Self::Legacy { .. }, Some(rules)) => write_rules(&dir, rules)?,
            (Self::Unified { .. }, None) => return Ok(()),
            (Self::Unified { .. }, Some(rules)) => {
                let cgroup = fs::File::open(&dir)?;
                return match rules == DEFAULT {
                    true => sys::attach_device_program(cgroup.as_fd(), default.loaded()?.as_fd()),
                    false => {
                        sys::attach_device_program(cgroup.as_fd(), sys::load_device_program(&program(rules))?.as_fd())
                    }
                };
            }
        }
        make_dir(&join(&dir, Path::new(INNER))).map(drop)
    }
}

/// Version 1: each write is one rule.
fn write_rules(dir: &Path, rules: &[DeviceRule]) -> io::Result<()> {
    fs::write(dir.join("devices.deny"), "a")?;
    let mut allow = fs::File::options().write(true).open(dir.join("devices.allow"))?;
    rules.iter().try_for_each(|rule| allow.write_all(line(rule).as_bytes()))
}

/// A rule in the words of version 1.
fn line(rule: &DeviceRule) -> String {
    let kind = match rule.kind {
        DeviceKind::Block => 'b',
        DeviceKind::Character => 'c',
    };
    let number = |number: Option<u32>| number.map_or("*".to_owned(), |number| number.to_string());
    format!(
        "{kind} {}:{} {}",
        number(rule.major),
        number(rule.minor),
        rule.access.letters()
    )
}

// What the kernel hands to a program of version 2: the access in the upper half of a word and the kind in the lower,
// then the two numbers.
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;
const SCRATCH: u8 = 1;
const CONTEXT: u8 = 1;
const RESULT: u8 = 0;

/// The program of version 2 that allows what the rules do and refuses everything else.
fn program(rules: &[DeviceRule]) -> Vec<BpfInstruction> {
    let mut code = vec![
        BpfInstruction::load_word(KIND, CONTEXT, 0),
        BpfInstruction::copy(ACCESS, KIND),
        BpfInstruction::and(KIND, 0xFFFF),
        BpfInstruction::shift_right(ACCESS, 16),
        BpfInstruction::load_word(MAJOR, CONTEXT, 4),
        BpfInstruction::load_word(MINOR, CONTEXT, 8),
    ];
    for rule in rules {
        code.extend(allow_if(rule));
    }
    code.extend([BpfInstruction::set(RESULT, 0), BpfInstruction::exit()]);
    code
}

fn allow_if(rule: &DeviceRule) -> Vec<BpfInstruction> {
    let kind = match rule.kind {
        DeviceKind::Block => 1,
        DeviceKind::Character => 2,
    };
    // Each test leads past the end of this rule if it fails; how far that is becomes known at the end.
    let mut code = vec![BpfInstruction::jump_unless_equal(KIND, kind)];
    if rule.access != Access::ALL {
        code.push(BpfInstruction::copy(SCRATCH, ACCESS));
        code.push(BpfInstruction::and(SCRATCH, rule.access.0 as i32));
        code.push(BpfInstruction::jump_unless_same(SCRATCH, ACCESS));
    }
    for (register, number) in [(MAJOR, rule.major), (MINOR, rule.minor)] {
        code.extend(number.map(|number| BpfInstruction::jump_unless_equal(register, number as i32)));
    }
    code.extend([BpfInstruction::set(RESULT, 1), BpfInstruction::exit()]);
    let end = code.len();
    for (at, instruction) in code
        .iter_mut()
        .enumerate()
        .filter(|(_, instruction)| instruction.is_jump())
    {
        instruction.offset = (end - at - 1) as i16;
    }
    code
}

#[cfg(test)]
mod tests;
