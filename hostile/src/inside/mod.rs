//! What attackers do in their containers: `hostile inside ACTION [ARGUMENT…] [then ACTION …]`.
//!
//! Each action prints one line of JSON: whether it worked, what it gave, or the name of the error.

mod escapes;
mod files;
mod packets;
mod processes;
mod sockets;
mod syscalls;

use std::io::{self, Write};

use serde_json::{Value, json};

/// What an action came to; an error is told by the name of its number.
type Outcome = io::Result<Value>;

/// An action: its name, how many arguments it takes, and what it does.
struct Action {
    name: &'static str,
    arguments: usize,
    run: fn(&[String]) -> Outcome,
}

const ACTIONS: &[Action] = &[
    // Files.
    action("read", 1, files::read),
    action("write", 2, files::write),
    action("fill", 2, files::fill),
    action("list", 1, files::list),
    action("link", 2, files::link),
    action("replace-link", 2, files::replace_link),
    action("mkdir", 1, files::make_directory),
    action("remove", 1, files::remove),
    action("stat", 1, files::stat),
    action("node", 4, files::make_node),
    action("open", 1, files::open),
    action("swap", 2, files::swap),
    action("mounts", 0, files::mounts),
    // Processes.
    action("wait", 0, processes::wait),
    action("exit", 1, processes::exit),
    action("until", 1, processes::until),
    action("status", 1, processes::status),
    action("descriptors", 0, processes::descriptors),
    action("where", 0, processes::whereabouts),
    action("fork", 1, processes::fork),
    action("print", 1, processes::print_much),
    // The network.
    action("serve", 2, sockets::serve),
    action("ask", 3, sockets::ask),
    action("ask-tls", 3, sockets::ask_tls),
    action("connect", 1, sockets::connect),
    action("serve-redirect", 2, sockets::serve_redirect),
    action("receive", 2, sockets::receive_datagrams),
    action("listen", 1, sockets::listen),
    action("knock", 2, sockets::knock),
    action("serve-tls", 1, sockets::serve_tls),
    action("raw-datagram", 5, packets::raw_datagram),
    action("claim", 2, packets::claim),
    action("link-address", 0, packets::link_address),
    // Ways out.
    action("overwrite-programs", 0, escapes::overwrite_programs),
    action("find-above", 1, escapes::find_above),
    action("handle", 1, escapes::open_by_handle),
    action("syscalls", 0, syscalls::forbidden),
    action("mount", 3, syscalls::mount),
];

const fn action(name: &'static str, arguments: usize, run: fn(&[String]) -> Outcome) -> Action {
    Action { name, arguments, run }
}

/// Does one thing after the other. Returns the code to end with.
pub fn run(arguments: &[String]) -> u8 {
    processes::end_when_asked();
    for words in arguments.split(|word| word == "then") {
        let outcome = run_one(words);
        let line = match &outcome {
            Ok(value) => json!({"ok": true, "value": value}),
            Err(error) => json!({"ok": false, "error": name_of(error)}),
        };
        // Whoever listens may have gone.
        let _ = writeln!(io::stdout(), "{line}");
    }
    0
}

fn run_one(words: &[String]) -> Outcome {
    let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let action = ACTIONS.iter().find(|action| action.name == name);
    let action = action.ok_or_else(|| io::Error::other(format!("there is no action {name}")))?;
    if arguments.len() != action.arguments {
        return Err(io::Error::other(format!("{name} takes {} arguments", action.arguments)));
    }
    (action.run)(arguments)
}

fn name_of(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => ERRORS
            .iter()
            .find(|(known, _)| *known == number)
            .map_or_else(|| format!("error {number}"), |(_, name)| (*name).to_owned()),
        None => error.to_string(),
    }
}

/// The errors that defences answer with, and the most common others.
const ERRORS: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::ESRCH, "ESRCH"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::EBADF, "EBADF"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::EINVAL, "EINVAL"),
    (libc::ETXTBSY, "ETXTBSY"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::EROFS, "EROFS"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ELOOP, "ELOOP"),
    (libc::EDQUOT, "EDQUOT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::EHOSTUNREACH, "EHOSTUNREACH"),
    (libc::ENETUNREACH, "ENETUNREACH"),
];

/// The result of a system call.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        other => Ok(other),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse()
        .map_err(|_| io::Error::other(format!("{text:?} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_have_names_of_their_own() {
        for (index, action) in ACTIONS.iter().enumerate() {
            assert!(
                ACTIONS[..index].iter().all(|other| other.name != action.name),
                "{}",
                action.name
            );
        }
    }

    #[test]
    fn errors_are_told_by_name() {
        let missing = run_one(&["read".into(), "/nowhere/at/all".into()]).unwrap_err();
        assert_eq!(name_of(&missing), "ENOENT");
        assert!(run_one(&["read".into()]).is_err());
    }
}
