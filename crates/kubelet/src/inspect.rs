//! Asking the runtime about one container or sandbox, and reading what a container left behind when it ended.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use cri::{Runtime, v1};

use crate::beneath;
use crate::container::labels;
use crate::limits;
use crate::observed::{Instance, Sandbox, State};

/// The newest state of a container; none if the runtime does not know it.
pub async fn container(runtime: &dyn Runtime, id: &str, sandbox_id: &str) -> cri::Result<Option<Instance>> {
    let request = v1::ContainerStatusRequest {
        container_id: id.to_owned(),
        verbose: false,
    };
    match runtime.container_status(request).await {
        Ok(answer) => Ok(answer.status.map(|status| instance(&status, sandbox_id))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

pub async fn sandbox(runtime: &dyn Runtime, id: &str) -> cri::Result<Option<Sandbox>> {
    let request = v1::PodSandboxStatusRequest {
        pod_sandbox_id: id.to_owned(),
        verbose: false,
    };
    match runtime.pod_sandbox_status(request).await {
        Ok(answer) => Ok(answer.status.as_ref().map(Sandbox::from_status)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// An instance with its termination message.
pub fn instance(status: &v1::ContainerStatus, sandbox_id: &str) -> Instance {
    let mut instance = Instance::from_status(status, sandbox_id);
    if let State::Exited(exit) = &mut instance.state
        && let Some(message) = termination_message(status)
    {
        exit.message = message;
    }
    instance
}

/// What the container wrote to its message file or, after a failure and if the pod wants that, the end of its log.
fn termination_message(status: &v1::ContainerStatus) -> Option<String> {
    let path = status.annotations.get(labels::CONTAINER_MESSAGE_PATH)?;
    let mount = status.mounts.iter().find(|mount| mount.container_path == *path);
    let written = mount.and_then(|mount| head(Path::new(&mount.host_path), limits::TERMINATION_MESSAGE_BYTES));
    let written = written.filter(|message| !message.is_empty());
    let policy = status
        .annotations
        .get(labels::CONTAINER_MESSAGE_POLICY)
        .map(String::as_str);
    let fall_back = policy == Some("FallbackToLogsOnError") && status.exit_code != 0;
    written.or_else(|| fall_back.then(|| log_end(Path::new(&status.log_path))).flatten())
}

/// The beginning of a file that the container may have replaced, if a volume of its own is mounted there.
fn head(path: &Path, limit: usize) -> Option<String> {
    let mut content = Vec::new();
    beneath::open_file(path)
        .ok()?
        .take(limit as u64)
        .read_to_end(&mut content)
        .ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

/// The last lines of a CRI log, without their prefixes.
fn log_end(path: &Path) -> Option<String> {
    // Room for the time stamps of every line that may be kept.
    let window = limits::LOG_MESSAGE_BYTES + limits::LOG_MESSAGE_LINES * 48;
    let mut file = beneath::open_log(path).ok()?;
    let length = file.metadata().ok()?.len();
    let skipped = length.saturating_sub(window as u64);
    file.seek(SeekFrom::Start(skipped)).ok()?;
    let mut content = Vec::new();
    // The container may still write.
    file.take(window as u64).read_to_end(&mut content).ok()?;
    let text = String::from_utf8_lossy(&content);
    let lines: Vec<&str> = text.lines().skip(usize::from(skipped > 0)).collect();
    let kept = &lines[lines.len().saturating_sub(limits::LOG_MESSAGE_LINES)..];
    let message: String = kept.iter().flat_map(|line| message_of(line)).collect();
    let cut = message.len().saturating_sub(limits::LOG_MESSAGE_BYTES);
    let cut = (cut..=message.len()).find(|at| message.is_char_boundary(*at))?;
    Some(message[cut..].to_owned())
}

/// The text of `TIME STREAM TAG MESSAGE` and its end: a piece (`P`) of a line has none.
fn message_of(line: &str) -> [&str; 2] {
    let mut parts = line.splitn(4, ' ').skip(2);
    let is_piece = parts.next() == Some("P");
    [parts.next().unwrap_or_default(), if is_piece { "" } else { "\n" }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(dir: &Path, policy: &str, exit_code: i32) -> v1::ContainerStatus {
        v1::ContainerStatus {
            state: v1::ContainerState::ContainerExited.into(),
            exit_code,
            annotations: [
                (
                    labels::CONTAINER_MESSAGE_PATH.to_owned(),
                    "/dev/termination-log".to_owned(),
                ),
                (labels::CONTAINER_MESSAGE_POLICY.to_owned(), policy.to_owned()),
            ]
            .into(),
            mounts: vec![v1::Mount {
                container_path: "/dev/termination-log".to_owned(),
                host_path: dir.join("message").to_string_lossy().into_owned(),
                ..v1::Mount::default()
            }],
            log_path: dir.join("0.log").to_string_lossy().into_owned(),
            ..v1::ContainerStatus::default()
        }
    }

    #[test]
    fn the_message_is_the_files_or_else_the_logs() {
        let dir = tempfile::tempdir().unwrap();
        let log = "2023-01-01T00:00:00Z stdout F one\n2023-01-01T00:00:01Z stderr F two words\n";
        std::fs::write(dir.path().join("0.log"), log).unwrap();
        std::fs::write(dir.path().join("message"), "").unwrap();
        let message = |policy: &str, code: i32| termination_message(&status(dir.path(), policy, code));
        assert_eq!(message("File", 1), None);
        assert_eq!(message("FallbackToLogsOnError", 0), None);
        assert_eq!(message("FallbackToLogsOnError", 1).as_deref(), Some("one\ntwo words\n"));
        std::fs::write(dir.path().join("0.log"), "2023-01-01T00:00:00Z stdout P no end").unwrap();
        assert_eq!(message("FallbackToLogsOnError", 1).as_deref(), Some("no end"));
        std::fs::write(dir.path().join("message"), "done").unwrap();
        assert_eq!(message("FallbackToLogsOnError", 1).as_deref(), Some("done"));
    }

    /// A container may mount a file of its volume at its message path, or have been given the machine's logs. A FIFO must
    /// not be waited for, and neither a link nor what has no end must be read.
    #[test]
    fn messages_come_from_files_of_the_container_only() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let message = || termination_message(&status(dir.path(), "FallbackToLogsOnError", 1));
        std::fs::write(path("secret"), "2023-01-01T00:00:00Z stdout F of the host\n").unwrap();
        for name in ["message", "0.log"] {
            std::os::unix::fs::symlink(path("secret"), path(name)).unwrap();
            assert_eq!(message(), None, "{name} is a link");
            std::fs::remove_file(path(name)).unwrap();
            mknodat(CWD, path(name), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
            assert_eq!(message(), None, "{name} is a FIFO");
            std::fs::remove_file(path(name)).unwrap();
            std::fs::create_dir(path(name)).unwrap();
            assert_eq!(message(), None, "{name} is a directory");
            std::fs::remove_dir(path(name)).unwrap();
        }
        std::fs::write(path("message"), vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(
            message().map(|message| message.len()),
            Some(limits::TERMINATION_MESSAGE_BYTES)
        );
        std::fs::remove_file(path("message")).unwrap();
        let line = format!("2023-01-01T00:00:00Z stdout F {}\n", "x".repeat(1 << 20));
        std::fs::write(path("0.log"), line.repeat(3)).unwrap();
        assert!(message().is_none_or(|message| message.len() <= limits::LOG_MESSAGE_BYTES));
    }
}
