//! What was asked of plugins for each sandbox, on disk: a sandbox is taken down by the configuration it was made with,
//! even if that has changed or this process was killed in between.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::CniError;
use super::config::NetworkConfig;
use crate::SandboxNetwork;

/// One sandbox that plugins have, or may have, connected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub sandbox: SandboxNetwork,
    pub network: NetworkConfig,
    /// What the last plugin answered; absent while plugins are still being called.
    pub result: Option<Value>,
}

/// The directory with one file per sandbox.
#[derive(Clone, Debug)]
pub struct Records(pub PathBuf);

impl Records {
    pub fn read(&self, id: &str) -> Result<Option<Record>, CniError> {
        let path = self.path(id)?;
        match fs::read(&path) {
            Ok(text) => parse(&path, &text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(file_error("read", &path, source)),
        }
    }

    /// Replaces the file whole, so that a killed process leaves the old one or the new one.
    pub fn write(&self, record: &Record) -> Result<(), CniError> {
        let path = self.path(&record.sandbox.id)?;
        let text = serde_json::to_vec(record).map_err(|error| file_error("encode", &path, error.into()))?;
        let new = path.with_extension("new");
        fs::create_dir_all(&self.0).map_err(|source| file_error("create", &self.0, source))?;
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        written.map_err(|source| file_error("write", &path, source))
    }

    pub fn remove(&self, id: &str) -> Result<(), CniError> {
        let path = self.path(id)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error("remove", &path, error)),
            _ => Ok(()),
        }
    }

    pub fn all(&self) -> Result<Vec<Record>, CniError> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(file_error("list", &self.0, source)),
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.map_err(|source| file_error("list", &self.0, source))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let text = fs::read(&path).map_err(|source| file_error("read", &path, source))?;
                records.push(parse(&path, &text)?);
            }
        }
        Ok(records)
    }

    fn path(&self, id: &str) -> Result<PathBuf, CniError> {
        if id.is_empty() || id.contains(['/', '.']) {
            return Err(CniError::SandboxId { id: id.to_owned() });
        }
        Ok(self.0.join(format!("{id}.json")))
    }
}

fn parse(path: &Path, text: &[u8]) -> Result<Record, CniError> {
    serde_json::from_slice(text).map_err(|error| file_error("decode", path, error.into()))
}

fn file_error(operation: &'static str, path: &Path, source: io::Error) -> CniError {
    CniError::File {
        operation,
        path: path.to_owned(),
        source,
    }
}
