//! Port forwarding: connections to ports inside a pod.

use std::collections::HashMap;
use std::sync::Arc;

use cri::{Duplex, PortTarget, Runtime, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use super::channels::{Channels, Received};
use super::query::Query;
use super::{Refusal, remote};
use crate::container::labels;
use crate::pod::Pod;
use crate::shared::Shared;
use crate::spdy;

const BLOCK_BYTES: usize = 32 * 1024;
const BLOCKS: usize = 8;
/// Ports that one connection may ask for.
const MAX_PORTS: usize = 100;

/// A pod whose ports are to be reached.
pub struct Forward {
    runtime: Arc<dyn Runtime>,
    sandbox: String,
    /// The ports that were asked for beforehand; over SPDY each stream names its own.
    ports: Vec<u16>,
}

pub async fn open(shared: &Arc<Shared>, pod: &Pod, query: &Query, by_channel: bool) -> Result<Forward, Refusal> {
    let ports = match by_channel {
        true => ports(query)?,
        false => Vec::new(),
    };
    let sandbox = sandbox(shared, pod).await?;
    Ok(Forward::new(shared.runtime.clone(), sandbox, ports))
}

fn ports(query: &Query) -> Result<Vec<u16>, Refusal> {
    let listed = query.all("port").into_iter().chain(query.all("ports"));
    let parse = |text: &str| match text.parse::<u16>() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(Refusal::bad_request(format!(
            "query parameter \"port\" is not a port: {text:?}"
        ))),
    };
    let ports: Vec<u16> = listed
        .flat_map(|list| list.split(',').map(parse).collect::<Vec<_>>())
        .collect::<Result<_, _>>()?;
    match ports.len() {
        0 => Err(Refusal::bad_request("query parameter \"port\" is required")),
        1..=MAX_PORTS => Ok(ports),
        _ => Err(Refusal::bad_request(format!(
            "no more than {MAX_PORTS} ports can be forwarded at once"
        ))),
    }
}

pub async fn sandbox(shared: &Shared, pod: &Pod) -> Result<String, Refusal> {
    let filter = v1::PodSandboxFilter {
        label_selector: [(labels::POD_UID.to_owned(), pod.metadata.uid.clone())].into(),
        state: Some(v1::PodSandboxStateValue {
            state: v1::PodSandboxState::SandboxReady.into(),
        }),
        ..v1::PodSandboxFilter::default()
    };
    let request = v1::ListPodSandboxRequest { filter: Some(filter) };
    let listed = shared.runtime.list_pod_sandbox(request).await;
    let listed = listed.map_err(|error| Refusal::internal(error.to_string()))?;
    let first = listed.items.into_iter().next();
    let missing = || {
        Refusal::bad_request(format!(
            "unable to forward port because pod is not running: {}",
            pod.key()
        ))
    };
    first.map(|sandbox| sandbox.id).ok_or_else(missing)
}

/// What goes to the client.
struct Block(u8, Vec<u8>);

impl Forward {
    pub fn new(runtime: Arc<dyn Runtime>, sandbox: String, ports: Vec<u16>) -> Forward {
        Forward {
            runtime,
            sandbox,
            ports,
        }
    }

    /// Each port has two channels: its data, and what went wrong with it. Both begin with the port's number.
    pub async fn run(self, channels: Channels) {
        let Channels {
            mut receiver,
            mut sender,
        } = channels;
        let (blocks, mut output) = mpsc::channel::<Block>(BLOCKS);
        let mut inputs: Vec<Option<mpsc::Sender<bytes::Bytes>>> = Vec::new();
        for (index, port) in self.ports.iter().enumerate() {
            let data = (index * 2) as u8;
            for channel in [data, data + 1] {
                if sender.send(channel, &port.to_le_bytes()).await.is_err() {
                    return;
                }
            }
            let (input, received) = mpsc::channel(BLOCKS);
            inputs.push(Some(input));
            let (runtime, sandbox) = (self.runtime.clone(), self.sandbox.clone());
            tokio::spawn(forward(runtime, sandbox, *port, data, received, blocks.clone()));
        }
        drop(blocks);
        loop {
            tokio::select! {
                block = output.recv() => match block {
                    Some(Block(channel, data)) if sender.send(channel, &data).await.is_ok() => {}
                    _ => break,
                },
                received = receiver.next() => match received {
                    Some(Received::Data(channel, data)) if channel % 2 == 0 => {
                        if let Some(Some(input)) = inputs.get(usize::from(channel / 2)) {
                            let _ = input.send(data).await;
                        }
                    }
                    Some(Received::Closed(channel)) => {
                        if let Some(input) = inputs.get_mut(usize::from(channel / 2)) {
                            *input = None;
                        }
                    }
                    Some(Received::Data(..)) => {}
                    None => break,
                },
            }
        }
        sender.close().await;
    }

    /// Every connection is a pair of streams with the same request number: its data, and what went wrong with it.
    pub async fn run_streams(self, session: spdy::Session, mut streams: mpsc::Receiver<spdy::Stream>) {
        let mut halves: HashMap<String, spdy::Stream> = HashMap::new();
        while let Some(stream) = streams.recv().await {
            let request = stream.header("requestID").unwrap_or_default().to_owned();
            let is_data = stream.header("streamType") == Some("data");
            let Some(other) = halves.remove(&request) else {
                // A client that opens halves only is told nothing more.
                if halves.len() < MAX_PORTS {
                    halves.insert(request, stream);
                }
                continue;
            };
            let (data, errors) = if is_data { (stream, other) } else { (other, stream) };
            tokio::spawn(forward_stream(self.runtime.clone(), self.sandbox.clone(), data, errors));
        }
        drop(session);
    }
}

async fn forward_stream(runtime: Arc<dyn Runtime>, sandbox: String, data: spdy::Stream, mut errors: spdy::Stream) {
    let port = data
        .header("port")
        .and_then(|port| port.parse::<u16>().ok())
        .unwrap_or_default();
    let spdy::Stream {
        mut reader, mut writer, ..
    } = data;
    match connect(&*runtime, &sandbox, port).await {
        Ok(stream) => {
            let (mut from_pod, mut to_pod) = tokio::io::split(stream);
            let feeding = tokio::spawn(async move {
                while let Some(block) = reader.next().await {
                    if to_pod.write_all(&block).await.is_err() {
                        return;
                    }
                }
                let _ = to_pod.shutdown().await;
            });
            let mut buffer = vec![0; BLOCK_BYTES];
            while let Ok(read @ 1..) = from_pod.read(&mut buffer).await {
                if writer.send(&buffer[..read]).await.is_err() {
                    break;
                }
            }
            feeding.abort();
        }
        Err(error) => {
            let message = format!("error forwarding port {port} to pod {sandbox}: {error}");
            let _ = errors.writer.send(message.as_bytes()).await;
        }
    }
    writer.finish().await;
    errors.writer.finish().await;
}

async fn forward(
    runtime: Arc<dyn Runtime>,
    sandbox: String,
    port: u16,
    channel: u8,
    input: mpsc::Receiver<bytes::Bytes>,
    blocks: mpsc::Sender<Block>,
) {
    match connect(&*runtime, &sandbox, port).await {
        Ok(stream) => {
            let (reader, writer) = tokio::io::split(stream);
            let feeding = tokio::spawn(feed(writer, input));
            drain(reader, channel, &blocks).await;
            feeding.abort();
        }
        Err(error) => {
            let message = format!("error forwarding port {port} to pod {sandbox}: {error}");
            let _ = blocks.send(Block(channel + 1, message.into_bytes())).await;
        }
    }
}

/// Why there is no connection to a port of a pod.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error(transparent)]
    Runtime(#[from] cri::Error),
    #[error(transparent)]
    Stream(#[from] remote::StreamError),
}

/// A connection to a port on the pod's loopback address.
pub async fn connect(runtime: &dyn Runtime, sandbox: &str, port: u16) -> Result<Box<dyn Duplex>, ForwardError> {
    match runtime.open_port_forward(sandbox, port).await {
        Ok(PortTarget::Native(stream)) => Ok(stream),
        Ok(PortTarget::Url(url)) => Ok(remote::port(&url, port).await?),
        Err(error) => Err(error.into()),
    }
}

async fn feed(mut writer: WriteHalf<Box<dyn Duplex>>, mut input: mpsc::Receiver<bytes::Bytes>) {
    while let Some(data) = input.recv().await {
        if writer.write_all(&data).await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}

async fn drain(mut reader: ReadHalf<Box<dyn Duplex>>, channel: u8, blocks: &mpsc::Sender<Block>) {
    let mut buffer = vec![0; BLOCK_BYTES];
    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
        if blocks.send(Block(channel, buffer[..read].to_vec())).await.is_err() {
            return;
        }
    }
}
