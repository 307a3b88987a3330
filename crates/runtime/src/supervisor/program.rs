//! The last steps of a child inside its container: streams, credentials, working directory, exec.

use std::convert::Infallible;
use std::ffi::CString;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use super::child::{Stage, StartError};
use super::{credentials, stdio};
use crate::seccomp::Filter;
use crate::spec::Process;
use crate::{sys, within};

/// Where a program is looked for when the environment does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Becomes a container's program. This process is in the container's namespaces and root already.
///
/// Nothing of the image is looked up before every descriptor but the standard streams is closed: a path can lead
/// through `/proc/self/fd`, and so to whatever the supervisor had open (CVE-2024-21626). What is left is the channel, a
/// socket that no path opens and that exec closes.
pub fn become_program(process: &Process, filter: Option<&Filter>, channel: &OwnedFd) -> Result<Infallible, StartError> {
    if process.tty {
        stdio::connect_terminal(channel)?;
    }
    sys::close_all_but(&[channel.as_fd()]).stage("closing what is not the container's")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    sys::allow_huge_pages().stage("allowing huge pages")?;
    sys::new_session_keyring().stage("making a session keyring")?;
    credentials::become_user(process)?;
    enter_working_directory(&process.cwd)?;
    sys::reset_signals();
    credentials::give_up_privileges(process, filter)?;
    Err(execute(process))
}

/// Enters the working directory by a path that never leaves the container's root, and looks whether it did.
fn enter_working_directory(cwd: &str) -> Result<(), StartError> {
    let stage = || format!("changing to directory {cwd}");
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, "/", directory, Mode::empty()).stage_with(stage)?;
    let place = within::open(root.as_fd(), Path::new(cwd)).stage_with(stage)?;
    rustix::process::fchdir(&place).stage_with(stage)?;
    match sys::working_directory().stage_with(stage)?.starts_with(b"/") {
        true => Ok(()),
        false => Err(StartError(format!(
            "working directory {cwd} is outside of the container's root"
        ))),
    }
}

fn execute(process: &Process) -> StartError {
    let strings = |of: &[String]| {
        of.iter()
            .map(|s| CString::new(s.as_str()))
            .collect::<Result<Vec<_>, _>>()
    };
    let mut env = process.env.clone();
    if !env.iter().any(|entry| entry.starts_with("HOME=")) {
        env.push(format!(
            "HOME={}",
            if process.user.home.is_empty() {
                "/"
            } else {
                &process.user.home
            }
        ));
    }
    let (Ok(args), Ok(env)) = (strings(&process.args), strings(&env)) else {
        return StartError("a command or environment with a zero byte cannot be executed".to_owned());
    };
    let Some(program) = process.args.first() else {
        return StartError("no command specified".to_owned());
    };
    let mut denied = false;
    for candidate in candidates(program, &process.env) {
        let Ok(path) = CString::new(candidate.as_str()) else {
            continue;
        };
        let error = sys::exec(&path, &args, &env);
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if !program.contains('/') => {}
            io::ErrorKind::PermissionDenied if !program.contains('/') => denied = true,
            io::ErrorKind::NotFound => return explain(program, format!("stat {program}: no such file or directory")),
            io::ErrorKind::PermissionDenied => return explain(program, "permission denied"),
            _ => return explain(program, error),
        }
    }
    explain(
        program,
        if denied {
            "permission denied"
        } else {
            "executable file not found in $PATH"
        },
    )
}

fn explain(program: &str, why: impl Display) -> StartError {
    StartError(format!("unable to start container process: exec: {program:?}: {why}"))
}

/// The paths a program's name may stand for.
fn candidates(program: &str, env: &[String]) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    let path = env
        .iter()
        .find_map(|entry| entry.strip_prefix("PATH="))
        .unwrap_or(DEFAULT_PATH);
    path.split(':')
        .map(|dir| format!("{}/{program}", if dir.is_empty() { "." } else { dir }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_looked_for_in_the_containers_path() {
        let env = ["HOME=/".to_owned(), "PATH=/a::/b".to_owned()];
        assert_eq!(candidates("sh", &env), ["/a/sh", "./sh", "/b/sh"]);
        assert_eq!(candidates("bin/sh", &env), ["bin/sh"]);
        assert_eq!(candidates("sh", &[]).len(), 6);
    }
}
