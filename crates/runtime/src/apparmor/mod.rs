//! AppArmor: whether the host has it, which profiles it has loaded, and the one that containers get by default.
//!
//! A profile is applied by name when a container's program is executed: see `supervisor::credentials`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

/// The name of the profile in `default.profile`.
pub const DEFAULT_PROFILE: &str = "karve-default-v1";

const DEFAULT_PROFILE_TEXT: &str = include_str!("default.profile");

/// The version of AppArmor's language that the profile is written in, where the host has a description of it.
const ABI: &str = "abi/3.0";

/// Where programs that turn the text of a profile into what the kernel takes are found.
const PARSERS: &[&str] = &["/sbin/apparmor_parser", "/usr/sbin/apparmor_parser"];

/// The longest name of a profile.
const MAX_NAME_BYTES: usize = 4096;

/// AppArmor of this host.
pub struct AppArmor {
    /// None where the kernel has none.
    interface: Option<PathBuf>,
    /// Whether the default profile is loaded, once someone has tried, and if not, why.
    default: OnceLock<Result<(), Arc<LoadError>>>,
}

/// Why the default profile is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("failed to list the loaded AppArmor profiles: {0}")]
    List(#[source] io::Error),
    #[error("apparmor_parser is not installed")]
    NoParser,
    #[error("failed to run {parser}: {source}")]
    RunParser { parser: &'static str, source: io::Error },
    #[error("{parser} failed: {output}")]
    Refused { parser: &'static str, output: String },
}

impl AppArmor {
    pub fn detect() -> Self {
        let enabled =
            fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with('Y'));
        let interface = PathBuf::from("/sys/kernel/security/apparmor");
        Self {
            interface: (enabled && interface.is_dir()).then_some(interface),
            default: OnceLock::new(),
        }
    }

    pub fn is_enabled(&self) -> bool {
        self.interface.is_some()
    }

    /// Whether a profile of this name is loaded.
    pub fn is_loaded(&self, name: &str) -> io::Result<bool> {
        let Some(interface) = &self.interface else {
            return Ok(false);
        };
        Ok(names_profile(&fs::read_to_string(interface.join("profiles"))?, name))
    }

    /// Loads the default profile unless it is, once. It takes a program of the host's and some time.
    pub fn load_default(&self) -> Result<(), Arc<LoadError>> {
        let load = || match self.is_loaded(DEFAULT_PROFILE) {
            Ok(true) => Ok(()),
            Ok(false) => load(),
            Err(error) => Err(LoadError::List(error)),
        };
        self.default.get_or_init(|| load().map_err(Arc::new)).clone()
    }
}

/// Whether the kernel's list of profiles, a line each with the mode behind the name, has a name.
fn names_profile(list: &str, name: &str) -> bool {
    list.lines()
        .any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(" (")))
}

fn load() -> Result<(), LoadError> {
    let parser = PARSERS.iter().find(|path| Path::new(path).exists());
    let parser = *parser.ok_or(LoadError::NoParser)?;
    let failed = |source: io::Error| LoadError::RunParser { parser, source };
    let mut child = Command::new(parser)
        .args(["--skip-cache", "--replace"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        let mut text = String::new();
        if Path::new("/etc/apparmor.d").join(ABI).exists() {
            text = format!("abi <{ABI}>,\n");
        }
        // A parser that does not read to the end says why on its own.
        let _ = stdin.write_all((text + DEFAULT_PROFILE_TEXT).as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(LoadError::Refused {
            parser,
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

/// Whether a name can be one of a profile. What is written to the kernel ends at a zero byte or a line's end.
pub fn is_name(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(|c| c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_has_the_name_it_is_applied_by() {
        let declared = format!("profile {DEFAULT_PROFILE} flags=");
        assert!(DEFAULT_PROFILE_TEXT.contains(&declared));
        assert_eq!(DEFAULT_PROFILE_TEXT.matches("peer=karve-").count(), 2);
        assert_eq!(
            DEFAULT_PROFILE_TEXT
                .matches(&format!("peer={DEFAULT_PROFILE},"))
                .count(),
            2
        );
    }

    #[test]
    fn profiles_are_found_by_their_whole_name() {
        let list = "karve-default-v1 (enforce)\n/usr/sbin/named (complain)\nweb (enforce)\n";
        assert!(names_profile(list, "web") && names_profile(list, "/usr/sbin/named"));
        assert!(!names_profile(list, "we") && !names_profile(list, "karve-default") && !names_profile(list, ""));
    }

    #[test]
    fn a_name_has_no_end_of_its_own() {
        assert!(is_name("k8s-deny-write") && is_name("/usr/bin/foo//child"));
        assert!(!is_name("") && !is_name("  ") && !is_name("a\nb") && !is_name("a\0b"));
    }
}
