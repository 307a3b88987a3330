//! Which system calls a container's processes may make.
//!
//! A [`Profile`] says it as data: `default` has the one called RuntimeDefault, `localhost` reads those of files.
//! `compile` turns one into the program that the kernel runs before each call, with the numbers that `syscalls` knows.
//! [`Filters`] keeps what was compiled. No IO but loading a filter.

mod compile;
mod default;
mod filters;
mod localhost;
mod syscalls;

use serde::{Deserialize, Serialize};

pub use compile::check;
pub use filters::{Filter, Filters};
pub use localhost::{Conditions, parse};

/// What is done about each system call. Names that no architecture has are left out when it is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Profile {
    /// For calls without a rule.
    pub default_action: Action,
    /// Beside the machine's own. Programs of others are killed at their first call.
    pub architectures: Vec<Architecture>,
    pub rules: Vec<Rule>,
    /// Have the kernel log what is refused.
    pub log: bool,
    /// Leave speculative execution as it is.
    pub allow_speculation: bool,
}

/// The first rule of a call whose conditions all hold decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    pub names: Vec<String>,
    pub action: Action,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    Allow,
    Errno(u16),
    KillThread,
    KillProcess,
    Log,
    /// A number for the tracer.
    Trace(u16),
    Trap,
}

/// A condition on one of a call's six arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Condition {
    pub argument: u8,
    pub comparison: Comparison,
    pub value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// The argument's bits under this mask equal the value.
    Masked(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Architecture {
    X86_64,
    X86,
    X32,
    Aarch64,
    Arm,
    Riscv64,
}

impl Architecture {
    /// The one this program was built for.
    pub const fn native() -> Self {
        if cfg!(target_arch = "aarch64") {
            Self::Aarch64
        } else if cfg!(target_arch = "riscv64") {
            Self::Riscv64
        } else {
            Self::X86_64
        }
    }

    /// Those whose programs this machine may run too.
    pub const fn others() -> &'static [Self] {
        match Self::native() {
            Self::X86_64 => &[Self::X86, Self::X32],
            Self::Aarch64 => &[Self::Arm],
            _ => &[],
        }
    }

    /// By the name that profiles give it.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "SCMP_ARCH_X86_64" => Some(Self::X86_64),
            "SCMP_ARCH_X86" => Some(Self::X86),
            "SCMP_ARCH_X32" => Some(Self::X32),
            "SCMP_ARCH_AARCH64" => Some(Self::Aarch64),
            "SCMP_ARCH_ARM" => Some(Self::Arm),
            "SCMP_ARCH_RISCV64" => Some(Self::Riscv64),
            _ => None,
        }
    }

    /// By the name that Go gives it, which is what the conditions in profiles of Docker's form use.
    pub const fn go_name(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::X86 => "x86",
            Self::X32 => "x32",
            Self::Aarch64 => "arm64",
            Self::Arm => "arm",
            Self::Riscv64 => "riscv64",
        }
    }
}
