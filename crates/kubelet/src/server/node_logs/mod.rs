//! The node's own logs: files below `/var/log`, and the journal of its services where queries are switched on.
//!
//! Files are reached without following links, so that no log leads elsewhere.

mod query;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use client::Body;
use http::{Response, StatusCode, header};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::query::{Query, unescape_path};
use super::{Answer, Refusal, respond, text};
use crate::beneath::Dir;
use query::LogQuery;

/// Where a node's programs write their logs.
const ROOT: &str = "/var/log";
/// Chunks that wait for a slow reader; then the log waits too.
const CHUNKS: usize = 16;
const CHUNK_BYTES: usize = 32 * 1024;
/// How long the journal may be read for one answer.
const JOURNAL: Duration = Duration::from_secs(30);

type Chunks = Sender<Bytes, client::TransportError>;

/// Answers `/logs/PATH`; with `queries`, also questions about services.
pub async fn answer(path: &[&str], query: &Query, queries: bool) -> Answer {
    let path: PathBuf = path.iter().map(|part| unescape_path(part)).collect();
    let asked = match queries {
        true => LogQuery::parse(query).map_err(Refusal::bad_request)?,
        false => None,
    };
    let Some(asked) = asked else {
        return serve(Path::new(ROOT), path).await;
    };
    let refuse = |message: &str| Refusal::new(StatusCode::NOT_ACCEPTABLE, message);
    if !path.as_os_str().is_empty() {
        return Err(refuse("path not allowed in query mode"));
    }
    asked.validate().map_err(|problem| refuse(&problem))?;
    match asked.files.first() {
        Some(file) => serve(Path::new(ROOT), PathBuf::from(file.trim_start_matches('/'))).await,
        None => Ok(stream(move |chunks| services(asked, chunks))),
    }
}

/// A file, or the names in a directory.
async fn serve(root: &Path, path: PathBuf) -> Answer {
    let (root, shown) = (root.to_owned(), path.display().to_string());
    let found = tokio::task::spawn_blocking(move || find(&root, &path)).await;
    match found.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(Found::Directory(page)) => Ok(respond(StatusCode::OK, "text/html; charset=utf-8", page.into_bytes())),
        Ok(Found::File(file, length)) => Ok(stream(move |mut chunks| async move {
            let file = tokio::fs::File::from_std(file).take(length);
            copy(file, &mut chunks).await;
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Refusal::not_found("404 page not found")),
        Err(error) => {
            tracing::debug!(%error, file = shown, "A log of the node was asked for and not given");
            Err(Refusal::new(StatusCode::FORBIDDEN, "403 Forbidden"))
        }
    }
}

enum Found {
    Directory(String),
    /// With its length, for a log that grows must have an end.
    File(File, u64),
}

/// Blocks on the file system.
fn find(root: &Path, path: &Path) -> io::Result<Found> {
    let root = Dir::open(root)?;
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    match root.below(path) {
        Ok(directory) => Ok(Found::Directory(page(&directory)?)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let file = root.open_file(path)?;
            let length = file.metadata()?.size();
            Ok(Found::File(file, length))
        }
        Err(error) => Err(error),
    }
}

/// The names in a directory as links.
fn page(directory: &Dir) -> io::Result<String> {
    let mut names: Vec<String> = directory
        .entries()?
        .into_iter()
        .map(|(name, kind)| match kind {
            FileType::Directory => format!("{}/", name.to_string_lossy()),
            _ => name.to_string_lossy().into_owned(),
        })
        .collect();
    names.sort_unstable();
    let link = |name: &String| {
        let (address, shown) = (escape_path(name), escape_html(name));
        format!("<a href=\"{address}\">{shown}</a>\n")
    };
    let links: String = names.iter().map(link).collect();
    Ok(format!("<!doctype html>\n<pre>\n{links}</pre>\n"))
}

/// Whatever could be more than a name in an address is written as a number.
fn escape_path(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(escape).collect()
}

fn escape_html(name: &str) -> String {
    let escape = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&#34;".to_owned(),
        '\'' => "&#39;".to_owned(),
        c => c.to_string(),
    };
    name.chars().map(escape).collect()
}

/// An answer that `write` makes while it is sent.
fn stream<F>(write: impl FnOnce(Chunks) -> F) -> Response<Body>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, body) = Channel::<Bytes, client::TransportError>::new(CHUNKS);
    tokio::spawn(write(sender));
    let mut response = text(StatusCode::OK, "");
    *response.body_mut() = Body::new(body.map_err(|never| never));
    let kind = header::HeaderValue::from_static("text/plain;charset=UTF-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The logs of services: from the journal, or from files that have the services' names.
async fn services(asked: LogQuery, mut chunks: Chunks) {
    let units = journal_units().await;
    let (journaled, others): (Vec<String>, Vec<String>) = asked
        .services
        .iter()
        .cloned()
        .partition(|service| units.iter().any(|unit| *unit == format!("{service}.service")));
    if !journaled.is_empty() {
        let arguments = asked.journal_arguments(&journaled);
        if tokio::time::timeout(JOURNAL, journal(&arguments, &mut chunks))
            .await
            .is_err()
        {
            say(&mut chunks, "\nerror: reading the journal took too long\n".to_owned()).await;
        }
    }
    if !others.is_empty() && asked.options != query::LogQueryOptions::default() {
        let message = format!(
            "\noptions present and query resolved to log files for {others:?}\ntry without specifying options\n"
        );
        return say(&mut chunks, message).await;
    }
    for service in others {
        service_file(&service, &mut chunks).await;
    }
}

/// Prints the file of a service: one of its name, with `.log`, or so in a directory of its name.
async fn service_file(service: &str, chunks: &mut Chunks) {
    let candidates = [
        service.to_owned(),
        format!("{service}.log"),
        format!("{service}/{service}.log"),
    ];
    for name in candidates {
        let found = tokio::task::spawn_blocking(move || find(Path::new(ROOT), Path::new(&name))).await;
        match found.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(Found::File(file, length)) => return copy(tokio::fs::File::from_std(file).take(length), chunks).await,
            Ok(Found::Directory(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return say(chunks, format!("\nerror getting log for {service}: {error}\n")).await,
        }
    }
    say(chunks, format!("\nlog not found for {service}\n")).await;
}

/// The units that the journal has entries of; none where there is no journal.
async fn journal_units() -> Vec<String> {
    let mut command = journalctl();
    command.args(["--field", "_SYSTEMD_UNIT"]).stderr(Stdio::null());
    match tokio::time::timeout(JOURNAL, command.output()).await {
        Ok(Ok(output)) => {
            let units = String::from_utf8_lossy(&output.stdout);
            units.lines().map(|unit| unit.trim().to_owned()).collect()
        }
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// What journalctl prints and what it complains about, in the order in which it does.
async fn journal(arguments: &[String], chunks: &mut Chunks) {
    let started = || -> io::Result<_> {
        let (reader, writer) = io::pipe()?;
        let mut command = journalctl();
        command.args(arguments).stderr(writer.try_clone()?).stdout(writer);
        let child = command.spawn()?;
        // The command holds the other end of the pipe, which must close with the program.
        drop(command);
        Ok((child, tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into())?))
    };
    match started() {
        Ok((mut child, output)) => {
            copy(output, chunks).await;
            // How it ended is told by what it printed.
            let _ = child.wait().await;
        }
        Err(error) => {
            tracing::debug!(%error, "journalctl could not be started");
            say(chunks, "\nerror: journal output not available\n".to_owned()).await;
        }
    }
}

fn journalctl() -> Command {
    let mut command = Command::new(OsStr::new("journalctl"));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Until the end, or until nobody reads any more.
async fn copy(mut from: impl AsyncRead + Unpin, chunks: &mut Chunks) {
    let mut room = vec![0; CHUNK_BYTES];
    loop {
        match from.read(&mut room).await {
            Ok(0) => return,
            Ok(read) => {
                if chunks.send_data(Bytes::copy_from_slice(&room[..read])).await.is_err() {
                    return;
                }
            }
            Err(error) => return say(chunks, format!("\nerror: {error}\n")).await,
        }
    }
}

/// Nobody may be listening any more, which is no error.
async fn say(chunks: &mut Chunks, message: String) {
    let _ = chunks.send_data(Bytes::from(message)).await;
}

#[cfg(test)]
mod tests;
