//! Processes and what they have.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Outcome, check, number};

/// The first process of a container is not ended by signals that it does not handle.
pub fn end_when_asked() {
    // Without it containers end more slowly, and nothing else.
    let _ = crate::signals::on_end(leave);
}

extern "C" fn leave(_signal: std::ffi::c_int) {
    // SAFETY: nothing is run on the way out.
    unsafe { libc::_exit(0) };
}

pub fn wait(_arguments: &[String]) -> Outcome {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

pub fn exit(arguments: &[String]) -> Outcome {
    std::process::exit(number(&arguments[0])?);
}

/// Waits until a file is there.
pub fn until(arguments: &[String]) -> Outcome {
    while !Path::new(&arguments[0]).exists() {
        thread::sleep(Duration::from_millis(5));
    }
    Ok(Value::Null)
}

/// A line of `/proc/self/status`.
pub fn status(arguments: &[String]) -> Outcome {
    let text = fs::read_to_string("/proc/self/status")?;
    let marked = format!("{}:", arguments[0]);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&marked))
        .ok_or(io::ErrorKind::NotFound)?;
    Ok(json!(line.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Every open descriptor and what it leads to.
pub fn descriptors(_arguments: &[String]) -> Outcome {
    // By number, for listing the directory would open one more.
    let found = (0..1024).filter_map(|number: u32| {
        let target = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        Some(json!([number, target]))
    });
    Ok(found.collect())
}

/// The working directory as the kernel tells it, which says so when it is outside of the root.
pub fn whereabouts(_arguments: &[String]) -> Outcome {
    Ok(json!(fs::read_link("/proc/self/cwd")?))
}

/// Forks children that do nothing, as many as it can. Returns how many it could.
pub fn fork(arguments: &[String]) -> Outcome {
    let wanted: u32 = number(&arguments[0])?;
    let mut children = Vec::new();
    let mut refused = None;
    for _ in 0..wanted {
        // SAFETY: there is one thread, and the child only waits for its end.
        match check(i64::from(unsafe { libc::fork() })) {
            Ok(0) => loop {
                // SAFETY: it touches nothing.
                unsafe { libc::pause() };
            },
            Ok(child) => children.push(child as i32),
            Err(error) => {
                refused = Some(error.to_string());
                break;
            }
        }
    }
    let count = children.len();
    for child in children {
        // SAFETY: these are children of this process that nobody has waited for yet.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
    Ok(json!({"forked": count, "refused": refused}))
}

/// Prints this many bytes as fast as it can.
pub fn print_much(arguments: &[String]) -> Outcome {
    let mut left: u64 = number(&arguments[0])?;
    let line = [&[b'x'; 1023][..], b"\n"].concat();
    let mut output = io::stdout().lock();
    while left > 0 {
        output.write_all(&line)?;
        left = left.saturating_sub(line.len() as u64);
    }
    Ok(Value::Null)
}
