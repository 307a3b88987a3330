//! Commands in containers, and the containers' own streams.

use std::sync::Arc;
use std::time::Duration;

use cri::{Runtime, StreamTarget, Streams, TerminalSize, v1};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::channels::{Channels, RESIZE, Received, Receiver, STATUS, STDERR, STDIN, STDOUT, Sender};
use super::query::Query;
use super::{Refusal, remote};
use crate::container::labels;
use crate::pod::Pod;
use crate::shared::Shared;

const BLOCK_BYTES: usize = 32 * 1024;
/// Blocks of output that wait for a slow client; then the process waits.
const BLOCKS: usize = 8;
/// How long output is still read once the process has ended: a child of it may hold the streams open for ever.
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    exec: bool,
    command: Vec<String>,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

impl Options {
    /// The kubelet's own parameter names, and those of the API server's for callers that pass them on.
    pub fn parse(query: &Query, exec: bool) -> Result<Options, Refusal> {
        let either = |a: &str, b: &str| query.flag(a) || query.flag(b);
        let tty = query.flag("tty");
        let options = Options {
            exec,
            command: query.all("command"),
            stdin: either("input", "stdin"),
            stdout: either("output", "stdout"),
            // A terminal has one output.
            stderr: either("error", "stderr") && !tty,
            tty,
        };
        if exec && options.command.is_empty() {
            return Err(Refusal::bad_request("you must specify a command for the container"));
        }
        if !options.stdin && !options.stdout && !options.stderr {
            return Err(Refusal::bad_request(
                "you must specify at least 1 of stdin, stdout, stderr",
            ));
        }
        Ok(options)
    }

    /// As a kubelet asks a runtime.
    pub fn of_exec(request: &v1::ExecRequest) -> Options {
        Options {
            exec: true,
            command: request.cmd.clone(),
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr && !request.tty,
            tty: request.tty,
        }
    }

    pub fn of_attach(request: &v1::AttachRequest) -> Options {
        Options {
            exec: false,
            command: Vec::new(),
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr && !request.tty,
            tty: request.tty,
        }
    }
}

/// A command that runs, or a container that is attached to, and waits for its client's connection.
pub struct Command {
    streams: Streams,
    options: Options,
}

/// Starts the command or attaches.
pub async fn open(shared: &Arc<Shared>, pod: &Pod, container: &str, options: Options) -> Result<Command, Refusal> {
    let id = running(shared, pod, container).await?;
    open_by_id(&*shared.runtime, id, options).await
}

/// The same for a container that is known by the runtime's own name for it.
pub async fn open_by_id(runtime: &dyn Runtime, container_id: String, options: Options) -> Result<Command, Refusal> {
    let target = match options.exec {
        true => {
            let request = v1::ExecRequest {
                container_id,
                cmd: options.command.clone(),
                tty: options.tty,
                stdin: options.stdin,
                stdout: options.stdout,
                stderr: options.stderr,
            };
            runtime.open_exec(request).await
        }
        false => {
            let request = v1::AttachRequest {
                container_id,
                stdin: options.stdin,
                tty: options.tty,
                stdout: options.stdout,
                stderr: options.stderr,
            };
            runtime.open_attach(request).await
        }
    };
    match target.map_err(|error| Refusal::internal(error.to_string()))? {
        StreamTarget::Native(streams) => Ok(Command { streams, options }),
        StreamTarget::Url(url) => {
            let streams = remote::command(&url, &options).await;
            let streams = streams.map_err(|error| Refusal::internal(error.to_string()))?;
            Ok(Command { streams, options })
        }
    }
}

async fn running(shared: &Shared, pod: &Pod, name: &str) -> Result<String, Refusal> {
    let labels = [
        (labels::POD_UID, pod.metadata.uid.as_str()),
        (labels::CONTAINER_NAME, name),
    ];
    let filter = v1::ContainerFilter {
        label_selector: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        state: Some(v1::ContainerStateValue {
            state: v1::ContainerState::ContainerRunning.into(),
        }),
        ..v1::ContainerFilter::default()
    };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let listed = shared.runtime.list_containers(request).await;
    let listed = listed.map_err(|error| Refusal::internal(error.to_string()))?;
    let first = listed.containers.into_iter().next();
    let missing = || Refusal::not_found(format!("container not found ({name:?})"));
    first.map(|container| container.id).ok_or_else(missing)
}

/// Output on its way to the client.
struct Block(u8, Vec<u8>);

impl Command {
    /// How many channels the client opens for it: the status and what it asked for.
    pub fn channels(&self) -> usize {
        let options = &self.options;
        let asked = [options.stdin, options.stdout, options.stderr, options.tty];
        1 + asked.into_iter().filter(|asked| *asked).count()
    }

    /// Joins the client and the process until one of them has gone.
    pub async fn run(self, channels: Channels) {
        let Command { streams, options } = self;
        let Channels { receiver, mut sender } = channels;
        // An empty message tells the client that the connection stands.
        let first = match (options.stdout, options.stderr) {
            (true, _) => STDOUT,
            (_, true) => STDERR,
            _ => STATUS,
        };
        if sender.send(first, &[]).await.is_err() {
            return;
        }
        let input = tokio::spawn(feed(receiver, streams.stdin, streams.resize));
        let (blocks, mut output) = mpsc::channel::<Block>(BLOCKS);
        for (channel, reader) in [(STDOUT, streams.stdout), (STDERR, streams.stderr)] {
            if let Some(reader) = reader {
                tokio::spawn(drain(channel, reader, blocks.clone()));
            }
        }
        drop(blocks);
        let ended = relay(&mut sender, &mut output, streams.exit).await;
        input.abort();
        let Some(ended) = ended else { return };
        let told = sender.send(STATUS, &report(&sender, &ended, &options.command)).await;
        if told.is_ok() {
            sender.close().await;
        }
    }
}

/// Passes output on until the process has ended and everything it wrote is sent; none if the client went first.
async fn relay(
    sender: &mut Sender,
    output: &mut mpsc::Receiver<Block>,
    mut exit: std::pin::Pin<Box<dyn Future<Output = cri::Result<cri::ExecStatus>> + Send>>,
) -> Option<cri::Result<cri::ExecStatus>> {
    let mut ended = None;
    let deadline = tokio::time::sleep(Duration::from_secs(u64::from(u32::MAX)));
    tokio::pin!(deadline);
    let mut open = true;
    loop {
        if let (Some(ended), false) = (&ended, open) {
            return Some(Clone::clone(ended));
        }
        tokio::select! {
            block = output.recv(), if open => match block {
                Some(Block(channel, data)) => sender.send(channel, &data).await.ok()?,
                None => open = false,
            },
            result = &mut exit, if ended.is_none() => {
                ended = Some(result);
                deadline.as_mut().reset(tokio::time::Instant::now() + DRAIN);
            }
            () = &mut deadline => return ended,
        }
    }
}

async fn drain(channel: u8, mut reader: cri::Reader, blocks: mpsc::Sender<Block>) {
    let mut buffer = vec![0; BLOCK_BYTES];
    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
        if blocks.send(Block(channel, buffer[..read].to_vec())).await.is_err() {
            return;
        }
    }
}

/// Passes what the client sends on to the process; its leaving is the end of input.
async fn feed(mut receiver: Receiver, mut stdin: Option<cri::Writer>, resize: mpsc::Sender<TerminalSize>) {
    while let Some(received) = receiver.next().await {
        match received {
            Received::Data(STDIN, data) => {
                if let Some(writer) = &mut stdin {
                    let written = writer.write_all(&data).await;
                    if written.and(writer.flush().await).is_err() {
                        stdin = None;
                    }
                }
            }
            Received::Closed(STDIN) => {
                if let Some(mut writer) = stdin.take() {
                    let _ = writer.shutdown().await;
                }
            }
            Received::Data(RESIZE, data) => {
                if let Some(size) = terminal_size(&data) {
                    let _ = resize.send(size).await;
                }
            }
            Received::Data(..) | Received::Closed(_) => {}
        }
    }
}

fn terminal_size(data: &[u8]) -> Option<TerminalSize> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Size {
        width: u16,
        height: u16,
    }
    let size: Size = serde_json::from_slice(data).ok()?;
    Some(TerminalSize {
        columns: size.width,
        rows: size.height,
    })
}

/// The end of the command in the client's protocol.
fn report(sender: &Sender, ended: &cri::Result<cri::ExecStatus>, command: &[String]) -> Vec<u8> {
    let status = status_of(ended, command);
    match sender.has_status() {
        true => status.to_string().into_bytes(),
        // Older clients are told of failures alone, in words.
        false => status["message"].as_str().unwrap_or_default().as_bytes().to_vec(),
    }
}

/// A Status as upstream's kubelet writes it: kubectl reads the exit code from its causes.
pub fn status_of(ended: &cri::Result<cri::ExecStatus>, command: &[String]) -> Value {
    match ended {
        Ok(status) if status.exit_code == 0 => json!({"metadata": {}, "status": "Success"}),
        Ok(status) => {
            let code = status.exit_code;
            let command = command.join(" ");
            json!({
                "metadata": {},
                "status": "Failure",
                "message": format!(
                    "command terminated with non-zero exit code: error executing command [{command}], exit code {code}"
                ),
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            })
        }
        Err(error) => {
            let message = format!("error executing command in container: {error}");
            json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("Internal error occurred: {message}"),
                "reason": "InternalError",
                "details": {"causes": [{"message": message}]},
                "code": 500,
            })
        }
    }
}
