//! Profiles in files of the node: JSON as the OCI's runtime specification has it, or as Docker does, whose rules may
//! depend on capabilities, the machine and the kernel.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Action, Architecture, Comparison, Condition, Profile, Rule};
use crate::capability;

/// The most names and conditions that the rules of a profile may have. Docker's own has 500.
const MAX_ENTRIES: usize = 10_000;

const MAX_ARGUMENTS: u32 = 6;

/// The largest error number there is.
const MAX_ERRNO: u32 = 4095;

/// The architectures that profiles may name and that this machine cannot run.
const FOREIGN: &[&str] = &[
    "SCMP_ARCH_LOONGARCH64",
    "SCMP_ARCH_MIPS",
    "SCMP_ARCH_MIPS64",
    "SCMP_ARCH_MIPS64N32",
    "SCMP_ARCH_MIPSEL",
    "SCMP_ARCH_MIPSEL64",
    "SCMP_ARCH_MIPSEL64N32",
    "SCMP_ARCH_PPC",
    "SCMP_ARCH_PPC64",
    "SCMP_ARCH_PPC64LE",
    "SCMP_ARCH_S390",
    "SCMP_ARCH_S390X",
];

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("decoding failed: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("string {0} is not a valid action for seccomp")]
    Action(String),
    #[error("string {0} is not a valid operator for seccomp")]
    Operator(String),
    #[error("string {0} is not a valid arch for seccomp")]
    Architecture(String),
    #[error("seccomp flag {0} is not known")]
    Flag(String),
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    #[error("system call {0} has a condition on argument {1}; arguments are 0 to 5")]
    Argument(String, u32),
    #[error("errno {0} is larger than 4095")]
    Errno(u32),
    #[error("system call {0} has two rules without conditions and different actions")]
    Conflict(String),
    #[error("'architectures' and 'archMap' cannot both be given")]
    TwoArchitectures,
    #[error("'name' and 'names' cannot both be given")]
    TwoNames,
    #[error("minKernel {0:?} is not a version of the form 4.8")]
    Kernel(String),
    #[error(transparent)]
    Capability(#[from] capability::UnknownCapability),
    #[error("the rules have more than {MAX_ENTRIES} names and conditions")]
    TooLarge,
}

/// What rules may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The container's capabilities.
    pub held: u64,
    /// The kernel's version.
    pub kernel: (u32, u32),
}

/// Reads a profile. Rules that the conditions exclude are left out.
pub fn parse(text: &[u8], conditions: Conditions) -> Result<Profile, ProfileError> {
    let file: File = serde_json::from_slice(text)?;
    if !file.listener_path.unwrap_or_default().is_empty() {
        return Err(ProfileError::Unsupported("listenerPath"));
    }
    let flags = file.flags.unwrap_or_default();
    let known = [
        "SECCOMP_FILTER_FLAG_LOG",
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
        "SECCOMP_FILTER_FLAG_TSYNC",
    ];
    if let Some(unknown) = flags.iter().find(|flag| !known.contains(&flag.as_str())) {
        return Err(ProfileError::Flag(unknown.clone()));
    }
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let default_action = action(&file.default_action, file.default_errno_ret)?;
    Ok(Profile {
        default_action,
        architectures: architectures(file.architectures, file.arch_map)?,
        rules: rules(file.syscalls.unwrap_or_default(), conditions)?,
        log: has("SECCOMP_FILTER_FLAG_LOG"),
        allow_speculation: has("SECCOMP_FILTER_FLAG_SPEC_ALLOW"),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    default_action: String,
    default_errno_ret: Option<u32>,
    architectures: Option<Vec<String>>,
    arch_map: Option<Vec<ArchitectureMap>>,
    flags: Option<Vec<String>>,
    listener_path: Option<String>,
    syscalls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchitectureMap {
    architecture: String,
    sub_architectures: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call {
    name: Option<String>,
    names: Option<Vec<String>>,
    action: String,
    errno_ret: Option<u32>,
    args: Option<Vec<Argument>>,
    includes: Option<Selection>,
    excludes: Option<Selection>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    index: u32,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

/// When a rule of Docker's form applies.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Selection {
    caps: Option<Vec<String>>,
    arches: Option<Vec<String>>,
    min_kernel: Option<String>,
}

impl Call {
    fn applies(&self, conditions: Conditions) -> Result<bool, ProfileError> {
        let mut applies = true;
        if let Some(includes) = &self.includes {
            applies &= includes.arches().is_empty() || includes.names_machine();
            for name in includes.caps() {
                applies &= conditions.held & capability::mask(name)? != 0;
            }
            applies &= includes.kernel()?.is_none_or(|least| conditions.kernel >= least);
        }
        if let Some(excludes) = &self.excludes {
            applies &= !excludes.names_machine();
            for name in excludes.caps() {
                applies &= conditions.held & capability::mask(name)? == 0;
            }
            applies &= excludes.kernel()?.is_none_or(|least| conditions.kernel < least);
        }
        Ok(applies)
    }

    fn names(&self) -> Result<Vec<String>, ProfileError> {
        match (&self.name, self.names.as_deref().unwrap_or_default()) {
            (Some(name), []) => Ok(vec![name.clone()]),
            (Some(_), _) => Err(ProfileError::TwoNames),
            (None, names) => Ok(names.to_vec()),
        }
    }
}

impl Selection {
    fn caps(&self) -> &[String] {
        self.caps.as_deref().unwrap_or_default()
    }

    fn arches(&self) -> &[String] {
        self.arches.as_deref().unwrap_or_default()
    }

    fn names_machine(&self) -> bool {
        self.arches()
            .iter()
            .any(|name| name == Architecture::native().go_name())
    }

    fn kernel(&self) -> Result<Option<(u32, u32)>, ProfileError> {
        let Some(text) = self.min_kernel.as_ref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let version = text
            .split_once('.')
            .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        version.map(Some).ok_or_else(|| ProfileError::Kernel(text.clone()))
    }
}

fn architectures(
    listed: Option<Vec<String>>,
    map: Option<Vec<ArchitectureMap>>,
) -> Result<Vec<Architecture>, ProfileError> {
    let (listed, map) = (listed.unwrap_or_default(), map.unwrap_or_default());
    if !listed.is_empty() && !map.is_empty() {
        return Err(ProfileError::TwoArchitectures);
    }
    let of_map = map
        .into_iter()
        .find(|entry| architecture(&entry.architecture).ok().flatten() == Some(Architecture::native()));
    let sub = of_map.and_then(|entry| entry.sub_architectures).unwrap_or_default();
    let mut found = Vec::new();
    for name in listed.iter().chain(&sub) {
        found.extend(
            architecture(name)?.filter(|known| Architecture::others().contains(known) && !found.contains(known)),
        );
    }
    Ok(found)
}

fn architecture(name: &str) -> Result<Option<Architecture>, ProfileError> {
    match Architecture::by_name(name) {
        None if !FOREIGN.contains(&name) => Err(ProfileError::Architecture(name.to_owned())),
        known => Ok(known),
    }
}

fn action(name: &str, errno: Option<u32>) -> Result<Action, ProfileError> {
    let number = || match errno {
        None => Ok(libc::EPERM as u16),
        Some(number) if number <= MAX_ERRNO => Ok(number as u16),
        Some(number) => Err(ProfileError::Errno(number)),
    };
    match name {
        "SCMP_ACT_ALLOW" => Ok(Action::Allow),
        "SCMP_ACT_ERRNO" => Ok(Action::Errno(number()?)),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Ok(Action::KillThread),
        "SCMP_ACT_KILL_PROCESS" => Ok(Action::KillProcess),
        "SCMP_ACT_LOG" => Ok(Action::Log),
        "SCMP_ACT_TRACE" => Ok(Action::Trace(number()?)),
        "SCMP_ACT_TRAP" => Ok(Action::Trap),
        "SCMP_ACT_NOTIFY" => Err(ProfileError::Unsupported("SCMP_ACT_NOTIFY")),
        _ => Err(ProfileError::Action(name.to_owned())),
    }
}

fn rules(calls: Vec<Call>, conditions: Conditions) -> Result<Vec<Rule>, ProfileError> {
    let entries = |call: &Call| call.names.as_ref().map_or(1, Vec::len) + call.args.as_ref().map_or(0, Vec::len);
    if calls.iter().map(entries).sum::<usize>() > MAX_ENTRIES {
        return Err(ProfileError::TooLarge);
    }
    let mut rules = Vec::new();
    for call in calls {
        let action = action(&call.action, call.errno_ret)?;
        let names = call.names()?;
        let tests = tests(
            names.first().map_or("", String::as_str),
            call.args.as_deref().unwrap_or_default(),
        )?;
        if call.applies(conditions)? {
            rules.extend(tests.into_iter().map(|conditions| Rule {
                names: names.clone(),
                action,
                conditions,
            }));
        }
    }
    settle(rules)
}

/// The conditions of a rule's arguments: all of them, or any one where an argument is named twice, as libseccomp and
/// what is built on it have always read it.
fn tests(name: &str, arguments: &[Argument]) -> Result<Vec<Vec<Condition>>, ProfileError> {
    let mut conditions = Vec::new();
    for argument in arguments {
        conditions.push(condition(name, argument)?);
    }
    let distinct: BTreeSet<_> = conditions.iter().map(|condition| condition.argument).collect();
    Ok(match distinct.len() == conditions.len() {
        true => vec![conditions],
        false => conditions.into_iter().map(|condition| vec![condition]).collect(),
    })
}

fn condition(name: &str, argument: &Argument) -> Result<Condition, ProfileError> {
    let (comparison, value) = match argument.op.as_str() {
        "SCMP_CMP_EQ" => (Comparison::Equal, argument.value),
        "SCMP_CMP_NE" => (Comparison::NotEqual, argument.value),
        "SCMP_CMP_LT" => (Comparison::Less, argument.value),
        "SCMP_CMP_LE" => (Comparison::LessOrEqual, argument.value),
        "SCMP_CMP_GT" => (Comparison::Greater, argument.value),
        "SCMP_CMP_GE" => (Comparison::GreaterOrEqual, argument.value),
        "SCMP_CMP_MASKED_EQ" => (Comparison::Masked(argument.value), argument.value_two),
        _ => return Err(ProfileError::Operator(argument.op.clone())),
    };
    match u8::try_from(argument.index) {
        Ok(index) if argument.index < MAX_ARGUMENTS => Ok(Condition {
            argument: index,
            comparison,
            value,
        }),
        _ => Err(ProfileError::Argument(name.to_owned(), argument.index)),
    }
}

/// Puts the rules without conditions first: one decides for its calls whatever other rules say of them.
fn settle(rules: Vec<Rule>) -> Result<Vec<Rule>, ProfileError> {
    let mut decided = BTreeMap::new();
    for rule in rules.iter().filter(|rule| rule.conditions.is_empty()) {
        for name in &rule.names {
            if *decided.entry(name.clone()).or_insert(rule.action) != rule.action {
                return Err(ProfileError::Conflict(name.clone()));
            }
        }
    }
    let (mut first, last): (Vec<_>, Vec<_>) = rules.into_iter().partition(|rule| rule.conditions.is_empty());
    first.extend(last);
    Ok(first)
}

#[cfg(test)]
mod tests;
