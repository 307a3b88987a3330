//! Files and links.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::{Outcome, check, number};

/// Files of the kernel and of hosts are small; what is longer is cut.
const MAX_READ: u64 = 1 << 16;

pub fn read(arguments: &[String]) -> Outcome {
    let mut bytes = Vec::new();
    File::open(&arguments[0])?.take(MAX_READ).read_to_end(&mut bytes)?;
    Ok(json!(String::from_utf8_lossy(&bytes)))
}

/// Writes over what is there, as shells do.
pub fn write(arguments: &[String]) -> Outcome {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&arguments[0])?;
    file.write_all(arguments[1].as_bytes())?;
    Ok(Value::Null)
}

/// Writes this many bytes that no file system can leave out.
pub fn fill(arguments: &[String]) -> Outcome {
    let mut left: u64 = number(&arguments[1])?;
    let mut file = OpenOptions::new().create(true).append(true).open(&arguments[0])?;
    let block = [0x5a; 1 << 16];
    while left > 0 {
        let now = left.min(block.len() as u64);
        file.write_all(&block[..now as usize])?;
        left -= now;
    }
    Ok(Value::Null)
}

pub fn list(arguments: &[String]) -> Outcome {
    let mut names: Vec<String> = fs::read_dir(&arguments[0])?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(json!(names))
}

pub fn link(arguments: &[String]) -> Outcome {
    symlink(&arguments[0], &arguments[1])?;
    Ok(Value::Null)
}

/// `ln -sfn`: whatever is there gives way to the link at once.
pub fn replace_link(arguments: &[String]) -> Outcome {
    let staged = format!("{}.hostile", arguments[1]);
    let _ = fs::remove_file(&staged);
    symlink(&arguments[0], &staged)?;
    fs::rename(&staged, &arguments[1])?;
    Ok(Value::Null)
}

pub fn make_directory(arguments: &[String]) -> Outcome {
    fs::create_dir_all(&arguments[0])?;
    Ok(Value::Null)
}

pub fn remove(arguments: &[String]) -> Outcome {
    let path = Path::new(&arguments[0]);
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path)?,
        false => fs::remove_file(path)?,
    }
    Ok(Value::Null)
}

pub fn stat(arguments: &[String]) -> Outcome {
    let found = fs::symlink_metadata(&arguments[0])?;
    Ok(
        json!({"mode": found.mode(), "size": found.size(), "uid": found.uid(), "device": found.rdev(), "inode": found.ino()}),
    )
}

/// `node PATH b|c MAJOR MINOR`.
pub fn make_node(arguments: &[String]) -> Outcome {
    let kind = if arguments[1] == "b" {
        libc::S_IFBLK
    } else {
        libc::S_IFCHR
    };
    let device = libc::makedev(number(&arguments[2])?, number(&arguments[3])?);
    let path = CString::new(Path::new(&arguments[0]).as_os_str().as_bytes())?;
    // SAFETY: the path lives until the call returns.
    check(i64::from(unsafe { libc::mknod(path.as_ptr(), kind | 0o666, device) }))?;
    Ok(Value::Null)
}

/// Opens for reading and reads a little, which needs no right to see what is read.
pub fn open(arguments: &[String]) -> Outcome {
    let mut byte = [0; 1];
    let count = File::open(&arguments[0])?.read(&mut byte)?;
    Ok(json!(count))
}

/// Exchanges two names without end, for whoever looks up one of them twice.
pub fn swap(arguments: &[String]) -> Outcome {
    let names = [
        CString::new(arguments[0].as_str())?,
        CString::new(arguments[1].as_str())?,
    ];
    loop {
        // SAFETY: the names live until the call returns.
        let result = unsafe {
            libc::syscall(
                libc::SYS_renameat2,
                libc::AT_FDCWD,
                names[0].as_ptr(),
                libc::AT_FDCWD,
                names[1].as_ptr(),
                libc::RENAME_EXCHANGE,
            )
        };
        // Names may be away for a moment while others make them.
        match check(result) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
            _ => std::thread::yield_now(),
        }
    }
}

pub fn mounts(_arguments: &[String]) -> Outcome {
    Ok(json!(fs::read_to_string("/proc/self/mountinfo")?))
}
