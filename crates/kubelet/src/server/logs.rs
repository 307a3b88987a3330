//! Container logs.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Body;
use cri::v1;
use http::{Response, StatusCode, header};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use tokio::io::{AsyncBufReadExt, AsyncSeekExt, BufReader};

use super::query::{Query, QueryError};
use super::{Answer, Refusal};
use crate::container::labels;
use crate::moment::Moment;
use crate::pod::Pod;
use crate::shared::Shared;

/// How often a log that is followed is looked at for more.
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);
/// How often to ask whether the container of a followed log still runs.
const ALIVE_CHECK: u32 = 20;
/// Chunks that wait for a slow reader; then the log waits too.
const CHUNKS: usize = 16;
const CHUNK_BYTES: usize = 32 * 1024;
/// A log line that has no end in this many bytes is cut.
const MAX_LINE_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
    since: Option<Moment>,
    /// Only `stdout` or only `stderr`.
    stream: Option<String>,
}

impl LogOptions {
    fn parse(query: &Query) -> Result<LogOptions, QueryError> {
        let positive = |name: &str| -> Result<Option<usize>, QueryError> {
            let number = query.number(name)?;
            number
                .map(|n| usize::try_from(n).map_err(|_| QueryError::Negative(name.to_owned())))
                .transpose()
        };
        let since_time = query.get("sinceTime").filter(|text| !text.is_empty());
        let since_time = since_time
            .map(|text| {
                Moment::parse(text).ok_or_else(|| QueryError::Time {
                    name: "sinceTime".to_owned(),
                    value: text.to_owned(),
                })
            })
            .transpose()?;
        let since_seconds = positive("sinceSeconds")?;
        let stream = query
            .get("stream")
            .filter(|stream| !stream.is_empty() && *stream != "All");
        Ok(LogOptions {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            tail_lines: positive("tailLines")?,
            limit_bytes: positive("limitBytes")?,
            since: since_time.or(since_seconds.map(|seconds| Moment(Moment::now().0 - seconds as i64 * 1000))),
            stream: stream.map(str::to_lowercase),
        })
    }
}

pub async fn answer(shared: &Arc<Shared>, pod: &Pod, container: &str, query: &Query) -> Answer {
    let options = LogOptions::parse(query).map_err(|error| Refusal::bad_request(error.to_string()))?;
    if pod.container(container).is_none() {
        let message = format!("container {container:?} not found in pod {:?}", pod.metadata.name);
        return Err(Refusal::not_found(message));
    }
    let found = find(shared, pod, container, options.previous).await?;
    let path = log_path(shared, pod, &found).await?;
    let (sender, body) = Channel::<Bytes, client::TransportError>::new(CHUNKS);
    let shared = shared.clone();
    tokio::spawn(async move {
        let mut output = Output::new(sender, options.limit_bytes);
        let copied = copy(&shared, &path, &found.id, &options, &mut output).await;
        if let Err(error) = copied.and(output.flush().await) {
            tracing::debug!(%error, path = %path.display(), "Failed to send a container log to its end");
        }
    });
    let mut response = Response::new(Body::new(body.map_err(|never| never)));
    *response.status_mut() = StatusCode::OK;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The newest instance of a container, or the one before it.
async fn find(shared: &Shared, pod: &Pod, name: &str, previous: bool) -> Result<v1::Container, Refusal> {
    let labels = [
        (labels::POD_UID, pod.metadata.uid.as_str()),
        (labels::CONTAINER_NAME, name),
    ];
    let filter = v1::ContainerFilter {
        label_selector: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..v1::ContainerFilter::default()
    };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let listed = shared.runtime.list_containers(request).await;
    let mut found = listed.map_err(|error| Refusal::internal(error.to_string()))?.containers;
    found.sort_by_key(|container| {
        let attempt = container.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        std::cmp::Reverse((attempt, container.created_at))
    });
    let pod_name = &pod.metadata.name;
    match (found.into_iter().nth(usize::from(previous)), previous) {
        (Some(container), _) => Ok(container),
        (None, true) => Err(Refusal::bad_request(format!(
            "previous terminated container {name:?} in pod {pod_name:?} not found"
        ))),
        (None, false) => Err(Refusal::bad_request(format!(
            "container {name:?} in pod {pod_name:?} is waiting to start: {}",
            if pod.spec.init_containers.is_empty() {
                "ContainerCreating"
            } else {
                "PodInitializing"
            }
        ))),
    }
}

async fn log_path(shared: &Shared, pod: &Pod, container: &v1::Container) -> Result<PathBuf, Refusal> {
    let request = v1::ContainerStatusRequest {
        container_id: container.id.clone(),
        verbose: false,
    };
    let status = shared.runtime.container_status(request).await;
    let status = status
        .map_err(|error| Refusal::internal(error.to_string()))?
        .status
        .unwrap_or_default();
    if !status.log_path.is_empty() {
        return Ok(PathBuf::from(status.log_path));
    }
    let metadata = container.metadata.clone().unwrap_or_default();
    let relative = crate::paths::Paths::relative_log(&metadata.name, metadata.attempt);
    Ok(shared.paths.pod_logs(pod).join(relative))
}

async fn copy(
    shared: &Shared,
    path: &PathBuf,
    container_id: &str,
    options: &LogOptions,
    output: &mut Output,
) -> io::Result<()> {
    let mut file = open(path).await?;
    if let Some(lines) = options.tail_lines {
        let start = tail_start(file.try_clone().await?.into_std().await, lines).await?;
        file.seek(io::SeekFrom::Start(start)).await?;
    }
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut looks = 0;
    loop {
        let read = read_line(&mut reader, &mut line).await?;
        if line.ends_with(b"\n") || line.len() >= MAX_LINE_BYTES {
            let more = output.line(&line, options).await?;
            line.clear();
            if !more {
                return Ok(());
            }
            continue;
        }
        if read > 0 {
            continue;
        }
        output.flush().await?;
        if !options.follow || output.is_closed() {
            return Ok(());
        }
        // Everything a container wrote is in its log before it counts as ended, so one more look is enough.
        if looks == u32::MAX {
            return Ok(());
        }
        if is_replaced(&reader, path).await {
            // Nothing is written any more to a log that was put aside once there is another: one more look at it.
            if read_line(&mut reader, &mut line).await? == 0 {
                reader = BufReader::new(open(path).await?);
            }
            continue;
        }
        looks += 1;
        if looks % ALIVE_CHECK == 0 && !is_running(shared, container_id).await {
            looks = u32::MAX;
            continue;
        }
        tokio::time::sleep(FOLLOW_PAUSE).await;
    }
}

/// Pods that were given the machine's logs may put links there; what those lead to is not a log.
async fn open(path: &Path) -> io::Result<tokio::fs::File> {
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || crate::beneath::open_log(&path));
    Ok(tokio::fs::File::from_std(opened.await.map_err(io::Error::other)??))
}

/// Whether the log that is being read was put aside and there is a new one.
async fn is_replaced(reader: &BufReader<tokio::fs::File>, path: &PathBuf) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (
        reader.get_ref().metadata().await,
        tokio::fs::symlink_metadata(path).await,
    ) {
        (Ok(open), Ok(named)) => open.ino() != named.ino() || open.dev() != named.dev(),
        _ => false,
    }
}

/// Reads up to the end of a line, or of what is there yet.
async fn read_line(reader: &mut BufReader<tokio::fs::File>, line: &mut Vec<u8>) -> io::Result<usize> {
    let available = reader.fill_buf().await?;
    let end = available
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(available.len(), |at| at + 1);
    line.extend_from_slice(&available[..end]);
    reader.consume(end);
    Ok(end)
}

async fn is_running(shared: &Shared, id: &str) -> bool {
    let found = crate::inspect::container(&*shared.runtime, id, "").await;
    found.is_ok_and(|found| found.is_some_and(|instance| instance.is_running()))
}

/// Where the last `lines` whole lines of a log begin. Lines of the log are counted, as upstream does.
async fn tail_start(mut file: std::fs::File, lines: usize) -> io::Result<u64> {
    let find = move || {
        use std::io::{Read, Seek};
        let mut position = file.seek(io::SeekFrom::End(0))?;
        if lines == 0 {
            return Ok(position);
        }
        let end = position;
        let (mut seen, mut block) = (0, vec![0; CHUNK_BYTES]);
        while position > 0 {
            let size = (block.len() as u64).min(position);
            position -= size;
            file.seek(io::SeekFrom::Start(position))?;
            let part = &mut block[..size as usize];
            file.read_exact(part)?;
            for (index, _) in part.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
                let after = position + index as u64 + 1;
                // The newline that ends the last line starts none.
                if after == end {
                    continue;
                }
                seen += 1;
                if seen == lines {
                    return Ok(after);
                }
            }
        }
        Ok(0)
    };
    tokio::task::spawn_blocking(find).await.map_err(io::Error::other)?
}

/// Where the lines go: gathered into chunks, up to the limit.
struct Output {
    sender: http_body_util::channel::Sender<Bytes, client::TransportError>,
    gathered: VecDeque<u8>,
    left: Option<usize>,
    /// The last line was only a part, so that its continuation gets no time stamp.
    within_line: bool,
    closed: bool,
}

impl Output {
    fn new(sender: http_body_util::channel::Sender<Bytes, client::TransportError>, left: Option<usize>) -> Output {
        Output {
            sender,
            gathered: VecDeque::new(),
            left,
            within_line: false,
            closed: false,
        }
    }

    fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes one line of a CRI log; false when nothing more is wanted.
    async fn line(&mut self, line: &[u8], options: &LogOptions) -> io::Result<bool> {
        let Some(entry) = Entry::parse(line) else {
            return Ok(true);
        };
        let wanted = options
            .stream
            .as_ref()
            .is_none_or(|stream| entry.stream == stream.as_bytes());
        if !wanted
            || options
                .since
                .is_some_and(|since| entry.time().is_some_and(|time| time < since))
        {
            return Ok(true);
        }
        if options.timestamps && !self.within_line {
            self.gathered.extend(entry.stamp);
            self.gathered.push_back(b' ');
        }
        self.gathered.extend(entry.content);
        if !entry.partial {
            self.gathered.push_back(b'\n');
        }
        self.within_line = entry.partial;
        if self.gathered.len() >= CHUNK_BYTES || self.left.is_some_and(|left| self.gathered.len() >= left) {
            self.flush().await?;
        }
        Ok(!self.closed && self.left != Some(0))
    }

    async fn flush(&mut self) -> io::Result<()> {
        let mut chunk: Vec<u8> = std::mem::take(&mut self.gathered).into();
        if let Some(left) = &mut self.left {
            chunk.truncate(*left);
            *left -= chunk.len();
        }
        if !chunk.is_empty() && self.sender.send_data(Bytes::from(chunk)).await.is_err() {
            self.closed = true;
        }
        Ok(())
    }
}

/// One line of a CRI log: `TIME STREAM TAG CONTENT`.
struct Entry<'a> {
    stamp: &'a [u8],
    stream: &'a [u8],
    partial: bool,
    content: &'a [u8],
}

impl Entry<'_> {
    fn parse(line: &[u8]) -> Option<Entry<'_>> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (stamp, stream, tag) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Entry {
            stamp,
            stream,
            partial: tag.split(|byte| *byte == b':').next() == Some(b"P"),
            content: parts.next().unwrap_or_default(),
        })
    }

    fn time(&self) -> Option<Moment> {
        Moment::parse(std::str::from_utf8(self.stamp).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const LOG: &str = "\
2023-01-01T00:00:00.1Z stdout F one
2023-01-01T00:00:01.1Z stderr P two, 
2023-01-01T00:00:01.2Z stderr F continued
2023-01-01T00:00:02.1Z stdout F three
";

    async fn check(query: &str, expected: Expect) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(&path, LOG).unwrap();
        let options = LogOptions::parse(&Query::parse(query)).unwrap();
        let (sender, body) = Channel::<Bytes, client::TransportError>::new(CHUNKS);
        let mut output = Output::new(sender, options.limit_bytes);
        let mut file = open(&path).await.unwrap();
        if let Some(lines) = options.tail_lines {
            let log = std::fs::File::open(&path).unwrap();
            let start = tail_start(log, lines).await.unwrap();
            file.seek(io::SeekFrom::Start(start)).await.unwrap();
        }
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        while read_line(&mut reader, &mut line).await.unwrap() > 0 {
            if !output.line(&line, &options).await.unwrap() {
                break;
            }
            line.clear();
        }
        output.flush().await.unwrap();
        drop(output);
        let text = body.collect().await.unwrap().to_bytes();
        expected.assert_eq(&String::from_utf8_lossy(&text));
    }

    /// A pod that was given the machine's logs puts a link to a file of the host in the place of its own log.
    #[tokio::test]
    async fn only_logs_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, host) = (dir.path().join("pods/pod"), dir.path().join("host"));
        std::fs::create_dir_all(pod.join("main")).unwrap();
        std::fs::create_dir(&host).unwrap();
        std::fs::write(host.join("0.log"), LOG).unwrap();
        std::os::unix::fs::symlink(host.join("0.log"), pod.join("main/0.log")).unwrap();
        std::os::unix::fs::symlink(&host, pod.join("linked")).unwrap();
        assert!(open(&pod.join("main/0.log")).await.is_err());
        assert!(open(&pod.join("linked/0.log")).await.is_err());
        std::fs::rename(host.join("0.log"), pod.join("main/1.log")).unwrap();
        assert!(open(&pod.join("main/1.log")).await.is_ok());
    }

    #[tokio::test]
    async fn logs_are_cut_as_asked() {
        check(
            "",
            expect![[r#"
            one
            two, continued
            three
        "#]],
        )
        .await;
        check(
            "timestamps=true&tailLines=1",
            expect![[r#"
            2023-01-01T00:00:02.1Z three
        "#]],
        )
        .await;
        check(
            "timestamps=true&stream=Stderr",
            expect![[r#"
            2023-01-01T00:00:01.1Z two, continued
        "#]],
        )
        .await;
        check(
            "sinceTime=2023-01-01T00:00:02Z",
            expect![[r#"
            three
        "#]],
        )
        .await;
        check(
            "limitBytes=6",
            expect![[r#"
            one
            tw"#]],
        )
        .await;
        check("tailLines=0", expect![""]).await;
    }
}
