//! What is kept on disk of sandboxes and containers: what we decided, and the kubelet's configuration as it came.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use prost::Message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::spec::{ContainerSpec, SandboxSpec};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxRecord {
    pub id: String,
    pub created_at_ns: i64,
    pub spec: SandboxSpec,
    /// The pod's addresses, the primary one first; none in the host's network.
    pub ips: Vec<IpAddr>,
    /// What the pod's RuntimeClass names; empty for pods without one.
    #[serde(default)]
    pub runtime_handler: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerRecord {
    pub id: String,
    pub sandbox_id: String,
    pub created_at_ns: i64,
    pub image_id: String,
    /// A name with a digest where the image has one, its id otherwise.
    pub image_ref: String,
    pub stop_signal: i32,
    pub spec: ContainerSpec,
}

/// A record as it is on disk, in one file: a file system takes longer for a file than for its contents.
#[derive(Serialize, Deserialize)]
struct Stored<R> {
    record: R,
    /// The kubelet's configuration in protobuf, base64.
    config: String,
}

/// Writes a record and its configuration, once: whole, or not at all. It reaches the disk a little later, for nothing
/// that it tells of survives the machine; what a power cut leaves torn is refused by reading, and removed.
pub fn write(path: &Path, record: &impl Serialize, config: &impl Message) -> io::Result<()> {
    let stored = Stored {
        record,
        config: BASE64.encode(config.encode_to_vec()),
    };
    let file = crate::disk::write(path, &serde_json::to_vec(&stored)?)?;
    let parent = path.parent().map(std::path::Path::to_owned);
    crate::disk::sync_later(file, parent);
    Ok(())
}

pub fn read<R: DeserializeOwned, C: Message + Default>(path: &Path) -> io::Result<(R, C)> {
    let stored: Stored<R> = serde_json::from_slice(&std::fs::read(path)?)?;
    let malformed = |error: Box<dyn std::error::Error + Send + Sync>| io::Error::new(io::ErrorKind::InvalidData, error);
    let config = BASE64.decode(stored.config).map_err(|error| malformed(error.into()))?;
    let config = C::decode(config.as_slice()).map_err(|error| malformed(error.into()))?;
    Ok((stored.record, config))
}
