//! What is kept on disk of sandboxes and containers: a record in JSON, and the kubelet's configuration as it came.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use prost::Message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::spec::{ContainerSpec, SandboxSpec};

const RECORD: &str = "record.json";
const CONFIG: &str = "config.pb";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxRecord {
    pub id: String,
    pub created_at_ns: i64,
    pub spec: SandboxSpec,
    /// The pod's addresses, the primary one first; none in the host's network.
    pub ips: Vec<IpAddr>,
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

/// Writes a record and its configuration; a directory without the record is one that was never finished.
pub fn write(dir: &Path, record: &impl Serialize, config: &impl Message) -> io::Result<()> {
    disk::write(&dir.join(CONFIG), &config.encode_to_vec())?;
    write_record(dir, record)
}

pub fn write_record(dir: &Path, record: &impl Serialize) -> io::Result<()> {
    disk::write(&dir.join(RECORD), &serde_json::to_vec(record)?)
}

pub fn read<R: DeserializeOwned, C: Message + Default>(dir: &Path) -> io::Result<(R, C)> {
    let record = serde_json::from_slice(&std::fs::read(dir.join(RECORD))?)?;
    let config = C::decode(std::fs::read(dir.join(CONFIG))?.as_slice()).map_err(io::Error::other)?;
    Ok((record, config))
}
