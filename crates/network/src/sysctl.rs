//! Kernel settings of the calling thread's network namespace.

use std::fs;
use std::path::Path;

use crate::NetworkError;

/// Sets `net.…` to a value, unless it has it.
pub fn set(name: &str, value: &str) -> Result<(), NetworkError> {
    let path = Path::new("/proc/sys/net").join(name);
    let error = |operation| {
        let path = path.clone();
        move |source| NetworkError::File {
            operation,
            path,
            source,
        }
    };
    let current = fs::read_to_string(&path).map_err(error("read"))?;
    if current.trim() == value {
        return Ok(());
    }
    fs::write(&path, value).map_err(error("write"))
}
